"""What the compiled programs of a run are made of."""

import chex
import jax
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.objectives.objective import NextToken
from transformer.runs.config import Replica, RunConfig, grid
from transformer.runs.mesh import MeshConfig
from transformer.runs.optimizer import OptimizerConfig, ParameterGroup
from transformer.runs.rules import SGD
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


@pytest.mark.parametrize(("d_model", "length", "devices"), [(32, 400, 2), (64, 40_000, 2), (1024, 400, 1)])
def test_the_devices_of_a_cpu_share_the_batches_of_small_models(d_model, length, devices):
    """However long they are; those of a large one only where that is asked for."""
    config = RunConfig(model=small(d_model=d_model, max_length=length), batch_size=2)
    assert make_program(config, grid([0])).data_devices == devices
    assert make_program(config, grid([0]), MeshConfig(data=2)).data_devices == 2


MODEL = small(num_layers=1)
TOKENS = np.random.default_rng(0).integers(0, 19, (4, 2, 9)).astype(np.int32)


def test_an_evaluation_is_without_dropout_smoothing_and_penalties():
    """The same parameters have the same sums, whatever the training adds."""
    plain = RunConfig(model=MODEL, batch_size=2, objective=NextToken(auxiliary=0.0))
    added = plain.replace({"model.dropout": 0.5, "objective": NextToken(label_smoothing=0.3, z_loss=0.1)})
    params = make_program(plain, grid([0])).init().params
    batches = {"tokens": TOKENS[:1], "weights": np.ones((1, 2, 8), np.float32)}
    sums = [make_program(config, grid([0])).evaluate(params, batches) for config in (plain, added)]
    chex.assert_trees_all_close(*sums, rtol=1e-6)


def test_all_that_is_random_in_a_run_follows_from_its_seed():
    """The initial values and the key of its steps: the same under one seed, others under another."""
    replicas = [Replica(seed=3), Replica(seed=4), Replica(seed=3, learning_rate=0.5)]
    state = make_program(RunConfig(model=MODEL, batch_size=2), replicas).init()
    for drawn in (state.params["embedding"]["table"], jax.random.key_data(state.key)):
        one, other, again = np.asarray(drawn)
        np.testing.assert_array_equal(one, again)
        assert (one != other).any()


def test_replicas_drop_other_features():
    """Of the same parameters, on the same batch: the same ones under one seed, others under another."""
    config = RunConfig(model=MODEL.replace(dropout=0.5), batch_size=2)
    program = make_program(config, [Replica(seed=3), Replica(seed=4), Replica(seed=3)])
    state = program.init()
    state = state._replace(params=jax.tree.map(lambda a: np.repeat(a[:1], 3, 0), jax.device_get(state.params)))
    _, metrics = program.train(state, {"tokens": np.stack([TOKENS[:1]] * 3)})
    one, other, again = metrics["loss"][:, 0].tolist()
    assert one == again
    assert abs(one - other) > 1e-3


def test_every_step_is_as_long_as_the_learning_rates_say():
    """Plain descent of each replica: warm-up, peak and the end of the decay at the last step."""
    schedule = {"warmup_steps": 1, "clip_norm": None, "weight_decay": 0.0}
    config = RunConfig(
        model=MODEL, batch_size=2, steps=4, optimizer=OptimizerConfig(rule=SGD(momentum=0.0), **schedule)
    )
    program = make_program(config, [Replica(learning_rate=0.1), Replica(learning_rate=0.4, warmup_steps=0)])
    factors = np.array([[0.5, 1, 0.775, 0.325], [1, 1 - 0.9 * (2 - 2**0.5) / 4, 0.55, 1 - 0.9 * (2 + 2**0.5) / 4]])
    rates = np.array([[0.1], [0.4]]) * factors
    np.testing.assert_allclose(program.learning_rates(), rates, rtol=1e-5)
    state, found = program.init(), []
    for tokens in TOKENS:
        before = jax.device_get(state.params)
        state, metrics = program.train(state, {"tokens": np.stack([tokens[None]] * 2)})
        moved = jax.tree.map(lambda new, old: np.square(new - old).sum(tuple(range(1, old.ndim))), state.params, before)
        found.append(np.sqrt(sum(jax.tree.leaves(moved))) / metrics["grad_norm"][:, 0])
    np.testing.assert_allclose(np.stack(found, 1), rates, rtol=1e-3)


def test_layers_that_the_model_lacks_are_refused_before_a_folder_is_made():
    config = RunConfig(model=MODEL, batch_size=2)
    with pytest.raises(ConfigError, match=r"^optimizer\.groups: layer 7 of blocks\."):
        make_program(config.replace({"optimizer.groups": (ParameterGroup("blocks.*", layers=(7,)),)}), [Replica()])
