"""Orders of the sublayers of a block."""

import functools
from dataclasses import dataclass

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from transformer.activations.activation import Activation
from transformer.analysis.activations import run_with_cache
from transformer.core.errors import ConfigError
from transformer.core.modules import split
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.sparsity import SlidingWindow
from transformer.mixers.mixer import Mixer
from transformer.mixers.recurrent.linear_attention import LinearAttention
from transformer.models.blocks import Macaron, Parallel, ParallelNorms, SideBySide
from transformer.models.build import pure_model
from transformer.models.config import ModelConfig
from transformer.models.language_model import LanguageModel
from transformer.models.stack import Scanned, Unrolled
from transformer.norms.norm import Norm
from transformer.testing import properties
from transformer.testing.subject import Subject, small

TINY = ModelConfig(vocab_size=11, max_length=8, d_model=8, mixer=Attention(num_heads=2), num_layers=2)
TOKENS = jnp.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]], jnp.int32)


def pure(config: ModelConfig, seed: int = 0):
    """Random parameters, none of which is at a special value, and the model."""
    params, apply = split(LanguageModel(config, key=jax.random.key(seed)))
    rng = np.random.default_rng(seed)
    params = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape, scale=0.3), a.dtype), params)
    return params, jax.jit(apply, static_argnames="method")


def test_each_of_two_parallel_sublayers_has_a_norm():
    """With equal norms it is the block that shares one; with others it is x + f(norm₁(x)) + g(norm₂(x))."""
    shared_params, shared = pure(TINY.replace(block=Parallel()))
    params, run = pure(TINY.replace(block=ParallelNorms()))

    def with_norms(attention, feed_forward):
        block = dict(shared_params["blocks"]["kinds"]["0"])
        block["attention_residual"] = {"norms": {"attention": attention, "feed_forward": feed_forward}}
        return shared_params | {"blocks": {"kinds": {"0": block}}}

    norm = shared_params["blocks"]["kinds"]["0"]["attention_residual"]["norms"]["input"]
    other = jax.tree.map(lambda a: a + 0.5, norm)
    chex.assert_trees_all_equal_shapes(params, with_norms(norm, norm))
    same = shared(shared_params, TOKENS)
    chex.assert_trees_all_close(run(with_norms(norm, norm), TOKENS), same, rtol=1e-5, atol=1e-6)
    outs = [run(with_norms(*norms), TOKENS) for norms in ((other, norm), (norm, other), (other, other))]
    assert min(np.abs(a - b).max() for i, a in enumerate(outs) for b in [same, *outs[:i]]) > 1e-3


@pytest.mark.parametrize("block", ["parallel", "parallel_norms"])
def test_sublayers_of_one_connection_have_one_residual(block):
    """Another one of the feed-forward sublayer would be left out, save for its initial values."""
    with pytest.raises(ConfigError, match=rf"^feed_forward\.residual: .* {block} share one .* is pre; use none"):
        ModelConfig().replace({"feed_forward.residual": "fixup"}, block=block, residual="pre")
    assert ModelConfig().replace({"feed_forward.residual": "pre"}, block=block, residual="pre").num_layers == 4


@dataclass(frozen=True)
class Wide(Activation):
    def __call__(self, x):
        return x.astype(jnp.float32)


@dataclass(frozen=True)
class WideMixer(Mixer):
    def __call__(self, x_BLD, context, params):
        return x_BLD.astype(jnp.float32), None


@dataclass(frozen=True)
class WideNorm(Norm):
    def __call__(self, x_BLD, params):
        return x_BLD.astype(jnp.float32)


@pytest.mark.parametrize("layers", [Unrolled(), Scanned()])
@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"mixer": WideMixer()}, "widemixer: widemixer"),
        ({"feed_forward.activation": Wide()}, r"feed_forward: dense\(activation=wide\)"),
        ({"norm": WideNorm()}, "attention_residual: pre with norm widenorm"),
    ],
)
def test_what_computes_in_another_dtype_is_named(layers, change, what):
    """Otherwise all layers after it would compute in float32 too."""
    params, apply = pure_model(TINY.replace(change, dtype="bfloat16", layers=layers))
    said = rf"^blocks\.\*\.{what} returns float32 for an input of bfloat16; end it with \.astype\(x\.dtype\)"
    with jax.numpy_dtype_promotion("standard"), pytest.raises(ConfigError, match=said):  # that of users
        jax.eval_shape(apply, params, TOKENS)


@dataclass(frozen=True)
class NarrowNorm(Norm):
    def __call__(self, x_BLD, params):
        return x_BLD.astype(jnp.float16)


def test_a_norm_that_rounds_more_is_named():
    """Sublayers would compute in its dtype, and their sum with the stream hides it."""
    params, apply = pure_model(TINY.replace(norm=NarrowNorm()))
    said = r"^blocks\.\*\.attention_residual: pre with norm narrownorm returns float16 for an input of float32;"
    with jax.numpy_dtype_promotion("standard"), pytest.raises(ConfigError, match=said):
        jax.eval_shape(apply, params, TOKENS)


def test_two_mixers_side_by_side_are_summed():
    """x + f(norm(x)) + g(norm(x)) with attention f and another mixer g, and then feed-forward."""
    config = TINY.replace(block=SideBySide(LinearAttention(num_heads=2)), num_layers=1, position=None)
    params, apply = pure(config)
    states = jax.jit(functools.partial(run_with_cache, apply))(params, TOKENS)[1]
    before, after = states["blocks.0.resid_pre"], states["blocks.0.resid_attention"]
    both = states["blocks.0.attention.out"], states["blocks.0.linear_attention.out"]
    assert all(np.abs(one).max() > 1e-2 for one in both)
    np.testing.assert_allclose(after, before + sum(both), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(states["blocks.0.attention.in"], states["blocks.0.linear_attention.in"])
    memories = LanguageModel(config, key=jax.random.key(0)).start(1, 4).layers[0]
    assert set(memories) == {"attention", "linear_attention"}


def test_two_sublayers_of_one_name_are_refused():
    """Parameters and memories are kept by it: the second would take the place of the first, and count twice."""
    with pytest.raises(ConfigError, match=r"^model\.block: side_by_side.* a second sublayer 'attention'"):
        TINY.replace(block=SideBySide(Attention(num_heads=2, sparsity=SlidingWindow(2))))


@dataclass(frozen=True)
class WithAttention(Mixer):
    """Attention, and the input times its mean: a mixer of one's own that has attention within."""

    attention: Attention = Attention(num_heads=2)

    def span(self, model):
        return self.attention.span(model)

    def num_maps(self, model):
        return self.attention.num_maps(model)

    def memory(self, model, batch_size, slots, dtype):
        return self.attention.memory(model, batch_size, slots, dtype)

    def build(self, model, *, key):
        return WithAttentionLayer(self, model, key=key)


class WithAttentionLayer(nnx.Module):
    def __init__(self, mixer, model, *, key):
        self.inner = mixer.attention.build(model, key=key)

    def __call__(self, x_BLD, *, context, key=None):
        y_BLD, aux = self.inner(x_BLD, context=context, key=key)
        return y_BLD + x_BLD * x_BLD.mean(-1, keepdims=True), aux


@pytest.mark.parametrize("position", ["rope", "alibi", "t5_bias", "learned"])
def test_an_own_mixer_with_attention_has_positions(position):
    """It is cached as attention is; a mixer without attention is refused under positions that enter attention."""
    subject = Subject(small(mixer=WithAttention()).replace(position=position))
    properties.cached(subject)
    properties.causal(subject)
    assert subject.config.num_maps == 2


def test_both_feed_forward_sublayers_of_a_macaron_take_half_a_step():
    """And the mixer between them a whole one (Lu et al. 2019, equation 10)."""
    made = [one for connection in ModelConfig(block=Macaron()).connections for one in connection]
    assert [(one.name, one.factor) for one in made] == [
        ("feed_forward_before", 0.5),
        ("attention", 1.0),
        ("feed_forward", 0.5),
    ]
