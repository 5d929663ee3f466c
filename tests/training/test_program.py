"""What the compiled programs of a run are made of."""

import jax
import numpy as np
import pytest

from transformer.runs.config import RunConfig, grid
from transformer.runs.mesh import MeshConfig
from transformer.testing.subject import small
from transformer.training.program import make_program


@pytest.mark.parametrize(("precision", "rounded"), [("bfloat16", True), ("float32", False), (None, False)])
def test_products_have_the_precision_of_the_config(precision, rounded):
    """In training, gradients included, and in the evaluation."""
    config = RunConfig(model=small(), batch_size=2, matmul_precision=precision)
    program = make_program(config, grid([0]))
    tokens = np.zeros((1, 1, 2, 9), np.int32)
    trained = jax.make_jaxpr(program.train)(program.abstract_state, {"tokens": tokens})
    evaluated = {"tokens": tokens[0], "weights": np.ones((1, 2, 8), np.float32)}
    tested = jax.make_jaxpr(program.evaluate)(program.abstract_state.params, evaluated)
    assert [("bf16" in str(one)) for one in (trained, tested)] == [rounded] * 2


@pytest.mark.parametrize(("d_model", "devices"), [(32, 2), (1024, 1)])
def test_the_devices_of_a_cpu_share_the_batches_of_small_models(d_model, devices):
    """Those of a large one only where that is asked for."""
    config = RunConfig(model=small(d_model=d_model, max_length=400), batch_size=2)
    assert make_program(config, grid([0])).data_devices == devices
    assert make_program(config, grid([0]), MeshConfig(data=2)).data_devices == 2
