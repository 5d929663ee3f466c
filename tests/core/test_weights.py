"""Forms of the matrices of linear layers: their equations, training beside a frozen kernel, and merging."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.core.weights import LowRank, Ternary
from transformer.data.puzzles import AlgorithmicConfig, AlgorithmicRun
from transformer.data.tasks.rewriting import Sort
from transformer.feed_forwards.experts import TopKExperts
from transformer.inference.generate import generate
from transformer.inference.quantize import quantize
from transformer.mixers.attention.attention import Attention
from transformer.mixers.recurrent.mamba2 import Mamba2
from transformer.models.build import pure_model
from transformer.models.config import ModelConfig
from transformer.models.merge import merged
from transformer.models.pattern import Alternate
from transformer.positions.rotary import RoPE
from transformer.runs.config import grid
from transformer.runs.optimizer import OptimizerConfig, ParameterGroup
from transformer.testing.subject import Subject, shaken, small, tokens_of
from transformer.training.loop import train


def test_low_rank_matrices_are_added():
    kernel = jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    params = {"down": jnp.array([[1.0, 0.0], [0.0, 0.0], [-1.0, 1.0]]), "up": jnp.array([[2.0, 4.0], [0.0, 2.0]])}
    np.testing.assert_array_equal(LowRank(rank=2, alpha=1.0)(kernel, params), [[2, 4], [3, 4], [4, 5]])
    with pytest.raises(ConfigError, match=r"^low_rank\.rank: 0 is not a positive number$"):
        LowRank(rank=0)


def test_ternary_matrices_have_three_values_and_the_gradient_of_the_kernel():
    """The mean of |W| is 1 here; halves are rounded to the even number."""
    kernel = jnp.array([[2.0, -1.0], [0.4, -0.6]])
    np.testing.assert_allclose(Ternary()(kernel, {}), [[1, -1], [0, -1]], atol=1e-5)
    gradient = jax.grad(lambda kernel: (Ternary()(kernel, {}) * jnp.array([[1.0, 2.0], [3.0, 4.0]])).sum())(kernel)
    np.testing.assert_array_equal(gradient, [[1, 2], [3, 4]])


def paths(tree):
    return {jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in jax.tree.leaves_with_path(tree)}


def test_linear_layers_of_the_blocks_have_the_form_and_nothing_else():
    """Tables, head, norms and routers are as they were, and so is every other path."""
    plain = small()
    changed = plain.replace(weights=LowRank(rank=2))
    new = paths(pure_model(changed)[0]) - paths(pure_model(plain)[0])
    assert paths(pure_model(plain)[0]) < paths(pure_model(changed)[0])
    layers = {path.removesuffix(".down") for path in new if path.endswith(".weights.down")}
    assert {layer.removeprefix("blocks.kinds.0.").removesuffix(".weights") for layer in layers} == {
        f"attention.{name}" for name in ("query", "key", "value", "out")
    } | {"feed_forward.branches.0", "feed_forward.out"}  # fmt: skip
    experts = plain.replace({"feed_forward": TopKExperts(d_ff=24), "weights": LowRank(rank=2)})
    assert not [path for path in paths(pure_model(experts)[0]) if "feed_forward" in path and ".weights." in path]


def test_what_goes_on_from_a_model_trains_the_low_rank_matrices_alone(tmp_path):
    """A and B move, and what is frozen stays bit for bit."""
    base = AlgorithmicRun(
        model=ModelConfig(num_layers=1, d_model=16, position=RoPE(), mixer=Attention(num_heads=2)),
        data=AlgorithmicConfig(task=Sort(items=3), examples=200, validation_examples=32),
        optimizer=OptimizerConfig(learning_rate=1e-2, warmup_steps=0),
        batch_size=16,
        steps=8,
    )
    first = train(base, grid(1), workdir=tmp_path / "first")
    groups = (ParameterGroup("*.weights.*"), ParameterGroup("*", rate=0.0))
    beside = base.replace({"model.weights": LowRank(rank=2), "optimizer.groups": groups})
    run = train(beside, grid(1), workdir=tmp_path / "beside", initial=first.params())
    before, after = (each.params()["blocks"]["kinds"]["0"]["attention"]["query"] for each in (first, run))
    np.testing.assert_array_equal(after["kernel"], before["kernel"])
    assert jnp.abs(after["weights"]["up"]).max() > 1e-3
    frozen, kept = (each.params()["embedding"] for each in (run, first))
    jax.tree.map(np.testing.assert_array_equal, frozen, kept)


@pytest.mark.parametrize("form", [LowRank(rank=3), Ternary()])
@pytest.mark.parametrize("more", [{}, {"pattern": (Alternate("position", (RoPE(), None)),)}])
def test_a_merged_model_computes_the_same(form, more):
    config = small(weights=form, **more)
    params = shaken(Subject(config).initial)
    plain, kernels = merged(config, params)
    assert plain == config.replace(weights=None)
    assert paths(kernels) == paths(pure_model(plain)[0])
    tokens = tokens_of(2)
    out, expected = (jax.jit(pure_model(c)[1])(p, tokens) for c, p in ((plain, kernels), (config, params)))
    np.testing.assert_allclose(out, expected, atol=2e-5)
    quantized = generate(pure_model(plain)[1], quantize(kernels), tokens[:, :3], num_tokens=2)
    assert quantized.tokens_BT.shape == (2, 2)


def test_a_model_without_linear_layers_has_no_forms_of_them():
    mixer = Mamba2(num_heads=2, key_dim=4, value_dim=4)
    with pytest.raises(ConfigError, match=r"^model\.weights: ternary, but no layer has attention or a dense feed-forw"):
        ModelConfig(mixer=mixer, position=None, feed_forward=None, weights=Ternary())
    assert ModelConfig(mixer=mixer, position=None, weights=Ternary()).weights == Ternary()
    shared = ModelConfig(mixer=mixer, position=None, weights=Ternary(), feed_forward=TopKExperts(shared=1))
    assert shared.weights == Ternary()


def test_what_cannot_be_merged_or_put_into_8_bits_is_said():
    config = small(weights=LowRank(rank=3))
    params = Subject(config).initial
    with pytest.raises(ConfigError, match=r"^weights=low_rank\(rank=3\): a kernel in 8 bits has no other form; call"):
        pure_model(config)[1](quantize(params), tokens_of(2))
    with pytest.raises(ConfigError, match=r"^merged: model\.weights is none, so that there is nothing to merge$"):
        merged(small(), params)


def test_ternary_values_are_zero_and_the_mean_size_of_the_kernel():
    """γ = mean |W| = 3: what is beyond γ/2 is ±γ."""
    kernel = jnp.array([[6.0, -3.0], [1.2, -1.8]])
    np.testing.assert_allclose(Ternary()(kernel, {}), [[3, -3], [0, -3]], atol=1e-4)
