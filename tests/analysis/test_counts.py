"""Analytic counts against the compiler's."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from transformer.activations.activation import GLU
from transformer.analysis.counts import (
    cache_bytes,
    forward_flops,
    forward_flops_per_token,
    parameter_count,
    product_flops,
    step_flops,
    train_flops,
    train_flops_per_token,
)
from transformer.core import modules as pure
from transformer.core.arrays import compiled_for
from transformer.core.errors import ConfigError
from transformer.core.weights import LowRank
from transformer.mixers.attention.backends import Fused
from transformer.models.build import pure_model
from transformer.models.config import ModelConfig
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.models.images import AutoencoderConfig, VisionConfig
from transformer.models.language_model import LanguageModel
from transformer.objectives.objective import NextToken
from transformer.objectives.pictures import Reconstruction
from transformer.objectives.tokens import MultiToken
from transformer.positions.relative import FIRE, ALiBi
from transformer.runs.config import RunConfig
from transformer.runs.presets import preset
from transformer.testing.subject import small

PLAIN = ModelConfig(vocab_size=65, max_length=32, d_model=64)
CONFIGS = {
    "plain": PLAIN,
    "grouped heads": PLAIN.replace({"mixer.num_kv_heads": 1, "mixer.head_dim": 32}),
    "gated, untied": PLAIN.replace({"feed_forward.activation": GLU(), "head.tied": False}),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_are_those_of_the_built_model(name):
    params, _ = pure.split(LanguageModel(CONFIGS[name], key=jax.random.key(0)))
    assert parameter_count(CONFIGS[name]) == sum(leaf.size for leaf in jax.tree.leaves(params))


def test_nanogpt_has_its_published_size():
    """0.80M without the position table, as nanoGPT counts; with vocabulary 65."""
    config = preset("nanogpt-cpu").model.replace(vocab_size=65)
    assert parameter_count(config) - 64 * 128 == pytest.approx(0.80e6, abs=0.005e6)


@pytest.mark.parametrize("name", CONFIGS)
def test_operations_agree_with_xla(name):
    """XLA also counts what is not a matrix product: a few per cent at these widths."""
    config = CONFIGS[name]
    params, apply = pure.split(pure.abstract(lambda key: LanguageModel(config, key=key)))
    tokens = jax.ShapeDtypeStruct((4, config.max_length), jnp.int32)
    count = 4 * config.max_length
    forward = jax.jit(apply).lower(params, tokens).compile().cost_analysis()["flops"] / count
    assert forward_flops_per_token(config) == pytest.approx(forward, rel=0.1)
    assert forward_flops_per_token(config) < forward

    def loss(params, tokens):
        return apply(params, tokens).sum()

    both = jax.jit(jax.value_and_grad(loss)).lower(params, tokens).compile().cost_analysis()["flops"] / count
    assert train_flops_per_token(config) == pytest.approx(both, rel=0.1)


@pytest.mark.parametrize(
    ("changes", "objective"),
    [
        ({}, NextToken()),
        ({"predict_ahead": 2}, MultiToken()),
        ({"memory_length": 16, "position": ALiBi()}, NextToken()),
        ({"weights": LowRank(8)}, NextToken()),
        ({"position": FIRE()}, NextToken()),
    ],
    ids=str,
)
def test_training_operations_are_those_of_the_gradient(changes, objective):
    """With what a model does in training alone; what does not depend on the batch is done once for each piece of it."""
    run = RunConfig(model=PLAIN.replace(changes), objective=objective, batch_size=6, accumulation=2)
    params, apply = pure_model(run.model)
    memory = None
    if run.model.memory_length is not None:
        memory = jax.eval_shape(lambda params: apply(params, 3, method="empty_memory"), params)

    def loss(params, tokens, memory):
        return objective.segment_sums(apply, params, {"tokens": tokens}, None, memory)[0].loss.sum()

    gradient = jax.make_jaxpr(jax.grad(loss))(params, jax.ShapeDtypeStruct((3, 33), jnp.int32), memory)
    assert train_flops(run.model, 3) == product_flops(gradient.jaxpr)
    assert step_flops(run) == 2 * train_flops(run.model, 3)


def of_batches(*batches):
    """Data whose training batches are these, in turn."""
    return SimpleNamespace(train_batches=lambda config, seed: list(batches))


def test_operations_of_data_are_those_of_their_batches():
    """Of rows shorter than the model, in pieces; where shapes differ their mean over the steps there are."""
    short, long = ({"tokens": np.zeros((8, length + 1), np.int32)} for length in (8, 16))
    run = RunConfig(model=PLAIN, batch_size=8, accumulation=2, steps=4)
    of_short, of_long = (step_flops(run.replace({"model.max_length": length})) for length in (8, 16))
    assert step_flops(run, of_batches(*[short] * 4)) == of_short < of_long < step_flops(run)
    assert step_flops(run, of_batches(long, short, short, short)) == (3 * of_short + of_long) / 4
    kept = run.replace({"model.memory_length": 16, "model.position": ALiBi(), "model.max_length": 8})
    assert step_flops(kept, of_batches(*[short] * 4)) == step_flops(kept)


def test_operations_are_those_of_what_the_objective_reads():
    """An autoencoder's encoder sees a quarter of the patches, and its decoder all."""
    model = AutoencoderConfig(image_size=(8, 8, 1), patch_size=1, d_model=32, num_layers=4, num_decoder_layers=1)
    run = RunConfig(model=model, objective=Reconstruction(rate=0.75), batch_size=4, steps=1)
    assert step_flops(run, of_batches({"inputs": np.zeros((4, 8, 8, 1), np.float32)})) < step_flops(run) / 2


def test_products_with_experts_and_their_gradients():
    """Rows, kernels and outer products: as many operations each, and twice as many for two models."""
    x_XD, kernels_EDF, sizes_E = jnp.ones((6, 4)), jnp.ones((3, 4, 5)), jnp.int32([1, 3, 2])

    def gradient(x_XD, kernels_EDF, sizes_E):
        return jax.grad(lambda *own: (lax.ragged_dot(*own, sizes_E) ** 2).sum(), (0, 1))(x_XD, kernels_EDF)

    def operations(function, *arguments):
        return product_flops(jax.make_jaxpr(function)(*arguments).jaxpr)

    assert operations(lax.ragged_dot, x_XD, kernels_EDF, sizes_E) == 2 * 6 * 4 * 5
    assert operations(gradient, x_XD, kernels_EDF, sizes_E) == 3 * 2 * 6 * 4 * 5
    two = [jnp.stack([array, array]) for array in (x_XD, kernels_EDF, sizes_E)]
    assert operations(jax.vmap(gradient), *two) == 2 * 3 * 2 * 6 * 4 * 5


def test_a_kernel_of_a_device_hides_no_product():
    """Whatever devices there are; a kernel is one operation, or one for all of its blocks."""
    model = ModelConfig(num_layers=1, d_model=256, vocab_size=32, max_length=256, dtype="bfloat16")
    model = model.replace({"mixer.num_heads": 2})
    fused = model.replace({"mixer.backend": Fused()})
    run = RunConfig(model=fused, batch_size=4)
    with compiled_for("tpu"):
        found = forward_flops(fused), train_flops(fused), step_flops(run)
    assert found == (forward_flops(model), train_flops(model), step_flops(run.replace({"model": model})))


def test_the_cache_of_a_decoder_with_a_source_has_its_keys_and_values():
    pairs = small(EncoderDecoderConfig)
    own = 2 * pairs.num_layers * pairs.d_model // 2 * 4  # half as many key-value heads
    assert cache_bytes(pairs) == own * (pairs.max_length + pairs.max_source_length)
    assert cache_bytes(pairs, 1) == own * (1 + pairs.max_source_length)


def test_what_is_counted_is_there():
    image = small(VisionConfig, image_size=(8, 8, 1), num_classes=3)
    with pytest.raises(
        ConfigError, match=r"^cache_bytes: a model that decodes is needed, and a VisionConfig is given$"
    ):
        cache_bytes(image)
    for length in (0, 5.5):
        with pytest.raises(ConfigError, match=rf"^cache_bytes: length {length} is not a positive number$"):
            cache_bytes(small(), length)
    for size in (0, -1):
        with pytest.raises(ConfigError, match=rf"^train_flops: batch_size {size} is not a positive number$"):
            train_flops(small(), size)
    with pytest.raises(ConfigError, match=r"^pure_model: ModelConfig is needed, and dict is given"):
        pure_model({})
    for per_token in (forward_flops_per_token, train_flops_per_token):
        with pytest.raises(ConfigError, match=r"^\w+: a language model is needed, and a VisionConfig is given$"):
            per_token(image)
