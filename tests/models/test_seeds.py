"""The ideas that the laboratory grew from, each as a property or against a calculation by hand."""

import itertools
from dataclasses import dataclass, replace
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from einops import rearrange

from transformer.analysis.counts import parameter_count
from transformer.core.modules import split
from transformer.core.parameters import Normal
from transformer.core.values import ConfigError
from transformer.embeddings.embedding import Embedding
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.functional.attention import attention, attention_scores
from transformer.functional.biases import LinearDistance, Scaled, alibi_slopes
from transformer.functional.masks import Causal, Full, Padding, Tokens
from transformer.functional.positions import sinusoidal
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.backends import Chunked
from transformer.mixers.attention.base import Backend, Merge, Projection
from transformer.mixers.attention.projections import (
    ConcatenateOnly,
    ConstantScale,
    InverseScale,
    LearnedScale,
    NoProjections,
    SumHeads,
    TiedProjections,
)
from transformer.mixers.mixer import Context
from transformer.models.config import ModelConfig
from transformer.models.encoder import Encoder
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.models.language_model import LanguageModel
from transformer.norms.norm import LayerNorm, Norm
from transformer.norms.sequence_norm import SequenceLayerNorm, sequence_layer_norm
from transformer.positions.absolute import Learned, QueryKeySinusoidal, Sinusoidal
from transformer.positions.position import Position
from transformer.positions.relative import ALiBi
from transformer.positions.rotary import RoPE
from transformer.residuals.residual import NoNormResidual

KEY = jax.random.key(0)
L, D, H = 6, 8, 2
X = np.random.default_rng(0).normal(size=(L, D)).astype(np.float32)
TOKENS = Tokens.at(np.arange(L))
HEADS = Attention(num_heads=H)
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def shipped(family):
    return [cls() for cls in family.variants().values() if cls.__module__.startswith("transformer.")]


def config(mixer=HEADS, **choices):
    sizes = {"vocab_size": 9, "max_length": 8, "num_layers": 2, "d_model": D}
    laws = {"initializer": Normal(0.5), "embedding": Embedding(initializer=Normal(0.5)), "scale_residual_init": False}
    return ModelConfig(**(sizes | laws | {"position": None} | choices), mixer=mixer)


def make(position=None, **choices):
    """A layer of attention with these choices."""
    mixer = replace(HEADS, **choices)
    return mixer.build(config(mixer, position=position), key=KEY)


def encoder(**fields):
    return Encoder(config(causal=False, **fields), key=KEY)


def attend(module, x=X, mask=None):
    return np.asarray(module(jnp.asarray(x)[None], context=Context(TOKENS, mask))[0][0])


def softmax(scores):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def cut(x, size):
    """(L, H · size) to (H, L, size)."""
    return x.reshape(len(x), -1, size).transpose(1, 0, 2)


def by_hand(module, x=X, *, factor, bias=0.0, after=0.0, at=0.0):
    """The output of an attention module from its kernels: softmax(factor · (q·k + bias) + after) · v, merged.

    `at` is added to what queries and keys are made of.
    """

    def made(role, x):
        name = module.layer_of[role]
        return x if name is None else x @ np.asarray(getattr(module, name).kernel[...])

    q, k = (cut(made(role, x + at), module.sizes.head_dim) for role in ("query", "key"))
    out = softmax(factor * (q @ k.transpose(0, 2, 1) + bias) + after) @ cut(made("value", x), module.sizes.value_dim)
    if isinstance(module.attention.merge, SumHeads):
        return out.sum(0)
    joined = out.transpose(1, 0, 2).reshape(len(x), -1)
    return joined if module.out is None else joined @ np.asarray(module.out.kernel[...])


@dataclass(frozen=True)
class Recording(Backend):
    """Exact attention that remembers the last queries and keys."""

    last: ClassVar[list] = []

    def __call__(self, q, k, v, *, own_keys, **how):
        self.last[:] = q, k
        return attention(q, k, v, **how)


def scores_of(module):
    """q·k of every head, (H, L, L)."""
    attend(module)
    q, k = (np.asarray(x[0]).transpose(1, 0, 2) for x in Recording.last)
    return q @ k.transpose(0, 2, 1)


# Projections, heads and scale.


WAYS = itertools.product([None, *shipped(Projection)], [None, *shipped(Merge)])


@pytest.mark.parametrize(
    ("projection", "merge"), [way for way in WAYS if way != (NoProjections(), SumHeads())], ids=str
)
def test_attention_by_hand(projection, merge):
    """Every way to make queries, keys and values, and to merge the heads, is its formula."""
    module = make(projection=projection, merge=merge)
    chex.assert_trees_all_close(attend(module), by_hand(module, factor=(D // H) ** -0.5), **CLOSE)


def test_without_projections_attention_is_softmax_of_x_times_x_times_x():
    """softmax(xxᵀ)x with one head, in every head's share with two, and there is nothing to train."""
    for heads in (1, 2):
        choices = {"projection": NoProjections(), "merge": ConcatenateOnly(), "scale": ConstantScale()}
        module = make(num_heads=heads, **choices)
        expected = [softmax(x @ x.T) @ x for x in np.split(X, heads, 1)]
        chex.assert_trees_all_close(attend(module), np.concatenate(expected, 1), **CLOSE)
        assert jax.tree.leaves(split(module)[0]) == []


def test_values_as_wide_as_the_model_have_to_be_made():
    """Without projections there is nothing to sum over several heads, and the configuration says so."""
    with pytest.raises(ConfigError, match=r"mixer\."):
        config(Attention(num_heads=H, projection=NoProjections(), merge=SumHeads()))


def test_no_projections_are_identity_projections():
    """Three identity kernels give what no projections give."""
    none, separate = (make(projection=p, merge=ConcatenateOnly()) for p in (NoProjections(), None))
    for name in ("query", "key", "value"):
        getattr(separate, name).kernel[...] = jnp.eye(D)
    chex.assert_trees_all_close(attend(none), attend(separate), **CLOSE)


@pytest.mark.parametrize("head_dim", [None, 2])
def test_tied_projections_have_symmetric_scores(head_dim):
    """xᵀUᵀUx is the same in both directions, also with K < D; xᵀUₖᵀU_q x is not."""
    tied, separate = (
        scores_of(make(projection=p, head_dim=head_dim, backend=Recording())) for p in (TiedProjections(), None)
    )
    chex.assert_trees_all_close(tied, tied.transpose(0, 2, 1), **CLOSE)
    assert np.abs(separate - separate.transpose(0, 2, 1)).max() > 0.1


def test_tied_projections_are_one_layer():
    """They equal two layers with one kernel, and have one kernel less."""
    tied, separate = (make(projection=p) for p in (TiedProjections(), None))
    separate.key.kernel[...] = separate.query.kernel[...]
    chex.assert_trees_all_close(attend(tied), attend(separate), **CLOSE)
    sizes = [sum(leaf.size for leaf in jax.tree.leaves(split(m)[0])) for m in (tied, separate)]
    assert sizes[1] - sizes[0] == D * D


def test_the_head_size_is_free():
    """K below D, and not D/H: scores of that rank, and the scale of that size."""
    module = make(num_heads=1, head_dim=3, backend=Recording())
    assert module.query.kernel.shape == (D, 3)
    assert np.linalg.matrix_rank(scores_of(module)[0], tol=1e-4) == 3
    chex.assert_trees_all_close(attend(module), by_hand(module, factor=3**-0.5), **CLOSE)


@pytest.mark.parametrize("position", [None, *shipped(Position)], ids=str)
def test_a_key_bias_does_nothing_unless_it_is_rotated(position):
    """q·(k + b) adds the same to all scores of a query, and softmax does not see it; RoPE turns b, CoPE's gates do."""
    params, keys, seen = {}, jnp.asarray(X).reshape(1, L, H, D // H), False
    if position is not None:
        params = {n: s.initial_value(KEY) for n, s in position.parameters(D, H, 8).items()}
        turned = (position.to_key(keys, TOKENS.positions, params) != keys).any()
        seen = turned or "score" in position.acts

    def out(value):
        module = make(position=position, bias=("key",))
        module.key.bias[...] = module.key.bias[...] + value
        return module(jnp.asarray(X)[None], context=Context(TOKENS, Causal(), params))[0]

    difference = np.abs(out(3.0) - out(0.0)).max()
    assert difference > 1e-2 if seen else difference < 1e-5


@pytest.mark.parametrize("role", ["query", "value", "out"])
def test_other_biases_do_something(role):
    """Those of queries, values and outputs change the output; all are counted, that of keys too."""
    module = make(bias=(role,))
    before = attend(module)
    layer = getattr(module, role)
    layer.bias[...] = layer.bias[...] + 1.0
    assert np.abs(attend(module) - before).max() > 1e-2
    plain = parameter_count(config())
    assert parameter_count(config(Attention(num_heads=H, bias=("key",)))) - plain == 2 * D
    everywhere = Attention(num_heads=H, bias=("query", "key", "value", "out"))
    assert parameter_count(config(everywhere)) - plain == 2 * 4 * D


SCALES = [
    (ConstantScale(), 1.0),
    (None, 3**-0.5),
    (InverseScale(), 1 / 3),
    (LearnedScale(), 0.7),
    (ConstantScale(0.3), 0.3),
]


@pytest.mark.parametrize(("scale", "factor"), SCALES, ids=[str(s) for s, _ in SCALES])
def test_scale_by_hand(scale, factor):
    """1, 1/√K, 1/K, a trained number, a given one: by hand, and in blocks too."""
    for backend in (None, Chunked(block=4)):
        module = make(scale=scale, head_dim=3, backend=backend)
        if isinstance(scale, LearnedScale):
            np.testing.assert_allclose(module.params["scale"]()["scale"], 3**-0.5, rtol=1e-6)
            module.params["scale"].scale[...] = jnp.float32(factor)
        chex.assert_trees_all_close(attend(module), by_hand(module, factor=factor), **CLOSE)


def test_a_learned_scale_is_trained_and_not_decayed():
    """It has a gradient, is one number per layer, and weight decay leaves it alone."""
    params, apply = split(make(scale=LearnedScale()))
    arguments = {"context": Context(TOKENS)}
    gradient = jax.grad(lambda p: (apply(p, jnp.asarray(X)[None], **arguments)[0] ** 2).sum())(params)
    assert np.abs(gradient["params"]["scale"]["scale"]) > 1e-3
    assert parameter_count(config(Attention(num_heads=H, scale=LearnedScale()))) - parameter_count(config()) == 2
    assert not LearnedScale().parameters(4)["scale"].decayed


@pytest.mark.parametrize("size", [16, 256])
@pytest.mark.parametrize("law", ["normal", "uniform"])
def test_the_deviation_of_a_dot_product_is_the_root_of_its_size(size, law):
    """Features of variance 1 give Std(q·k) = √d, 1 after 1/√d, and 1/√d after 1/d."""
    rng = np.random.default_rng(size)
    draw = rng.normal if law == "normal" else lambda size: rng.uniform(-(3**0.5), 3**0.5, size)
    q, k = (jnp.asarray(draw(size=(400, size)), jnp.float32) for _ in range(2))

    def deviation(scale):
        factor = make(num_heads=1, head_dim=size, scale=scale).factor()
        return attention_scores(q[None, None, None], k[None, None], scale=factor).std()

    np.testing.assert_allclose(deviation(ConstantScale()), size**0.5, rtol=0.05)
    np.testing.assert_allclose(deviation(None), 1.0, rtol=0.05)
    np.testing.assert_allclose(deviation(InverseScale()), size**-0.5, rtol=0.05)


def test_large_scores_are_nearly_one_hot_and_have_small_gradients():
    """Why there is a scale: at Std √d the softmax saturates and its gradient vanishes."""
    q, k = np.random.default_rng(0).normal(size=(2, 32, 256)).astype(np.float32)
    jacobians = []
    for factor in (1.0, 256**-0.5):
        weights = softmax(factor * q @ k.T)
        jacobians.append((weights * (1 - weights)).max(-1).mean())
    assert jacobians[0] < 0.5 * jacobians[1]


def test_the_sum_over_heads_is_concatenation_and_a_product():
    """Σ_h A_h x V_h with V_h = W_V,h W_O,h equals concat(A_h x W_V,h) W_O."""
    concat, summed = make(), make(merge=SumHeads())
    value, out = (np.asarray(layer.kernel[...]) for layer in (concat.value, concat.out))
    K = D // H
    joined = [value[:, h * K : (h + 1) * K] @ out[h * K : (h + 1) * K] for h in range(H)]
    summed.value.kernel[...] = jnp.asarray(np.concatenate(joined, 1))
    chex.assert_trees_all_equal(summed.query.kernel[...], concat.query.kernel[...])
    chex.assert_trees_all_close(attend(summed), attend(concat), **CLOSE)
    assert summed.out is None


def test_heads_side_by_side_need_no_product():
    """`concat_only` is the usual merge with the identity, and heads that do not fill the width are refused."""
    concat, plain = make(), make(merge=ConcatenateOnly())
    concat.out.kernel[...] = jnp.eye(D)
    chex.assert_trees_all_close(attend(plain), attend(concat), **CLOSE)
    assert plain.out is None
    with pytest.raises(ConfigError, match="merge: concat_only needs heads that fill d_model 8, and 2 heads of 3 are 6"):
        config(Attention(num_heads=H, merge=ConcatenateOnly(), head_dim=3))


@pytest.mark.parametrize("projection", [TiedProjections(), NoProjections()], ids=str)
def test_shapes_that_do_not_fit_a_projection(projection):
    """Shared queries and keys have the same heads; cut inputs fill the width."""
    with pytest.raises(ConfigError, match=rf"mixer.projection: {projection} needs as many key-value heads"):
        config(Attention(num_heads=H, projection=projection, num_kv_heads=1))
    if isinstance(projection, NoProjections):
        with pytest.raises(ConfigError, match="cuts d_model 8 into heads, and 2 heads of 3 are 6"):
            config(Attention(num_heads=H, projection=projection, head_dim=3))


# Masks, biases and padding.


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Additive:
    """A boolean mask as numbers: 0 and a number in place of −∞."""

    allowed: jax.Array
    never: jax.Array

    def __call__(self, queries, keys):
        return jnp.where(self.allowed, 0.0, self.never)


def weights_of(**arguments):
    q, k, v = jnp.asarray(np.random.default_rng(1).normal(size=(3, 1, L, H, 4)), jnp.float32)
    return attention(q, k, v, queries=TOKENS, keys=TOKENS, **arguments).weights


def test_minus_infinity_is_the_same_before_and_after_scaling():
    """softmax((QKᵀ + M)/√d) = softmax(QKᵀ/√d + M) = the boolean mask, for M of 0 and −∞ and not of 0 and −3."""
    allowed = Causal()(TOKENS, TOKENS)
    masked = weights_of(mask=Causal())
    for never, same in ((-np.inf, True), (-3.0, False)):
        bias = Additive(allowed, jnp.float32(never))
        after, before = weights_of(bias=bias), weights_of(bias=Scaled(bias, 0.5))
        assert (np.abs(after - before).max() < 1e-6) == same
        assert (np.abs(after - masked).max() < 1e-6) == same


@pytest.mark.parametrize("backend", [None, Chunked(block=4)], ids=str)
@pytest.mark.parametrize("scale_bias", [False, True])
def test_a_finite_bias_before_or_after_scaling_by_hand(scale_bias, backend):
    """ALiBi: softmax(QKᵀ/√d + M), and with `scale_bias` softmax((QKᵀ + M)/√d); they differ."""
    module = make(position=ALiBi(), scale_bias=scale_bias, backend=backend)
    slopes = np.array(alibi_slopes(H), np.float32)[:, None, None]
    bias = -slopes * np.abs(np.arange(L)[:, None] - np.arange(L))
    before, after = (by_hand(module, factor=(D // H) ** -0.5, **{name: bias}) for name in ("bias", "after"))
    assert np.abs(before - after).max() > 1e-2
    chex.assert_trees_all_close(attend(module), before if scale_bias else after, **CLOSE)


def test_masks_do_not_care_where_the_bias_is():
    """Under either order, what the mask forbids has no influence."""
    for scale_bias in (False, True):
        module = make(position=ALiBi(), scale_bias=scale_bias)
        changed = np.where(np.arange(L)[:, None] > 2, -X, X)
        before, after = attend(module, mask=Causal()), attend(module, changed, Causal())
        np.testing.assert_array_equal(before[:3], after[:3])


def test_the_factor_of_a_bias_is_differentiated():
    """A learned scale that multiplies the bias too is trained by both terms."""
    slopes = jnp.asarray(alibi_slopes(H), jnp.float32)

    def total(factor):
        bias = Scaled(LinearDistance(slopes), factor)
        return (weights_of(bias=bias, scale=0.0) ** 2).sum()

    step = 1e-2
    numeric = (total(jnp.float32(0.5 + step)) - total(jnp.float32(0.5 - step))) / (2 * step)
    np.testing.assert_allclose(jax.grad(total)(jnp.float32(0.5)), numeric, rtol=1e-2)


def test_padding_tokens_are_not_masked_padding():
    """`<EMPTY>` tokens that are fed as ordinary ones take a share of the attention; masked padding takes none."""
    model = encoder(position=Sinusoidal())
    text, empty = [5, 6, 7], 8
    alone = model(jnp.array([text]))
    padded = jnp.array([[*text, empty, empty]])
    masked = model(padded, valid_BL=jnp.array([[True] * 3 + [False] * 2]))
    chex.assert_trees_all_close(masked[:, :3], alone, **CLOSE)
    assert np.abs(model(padded)[:, :3] - alone).max() > 1e-2


def test_padding_on_the_right_does_not_reach_a_causal_decoder():
    """Behind the text nobody looks at `<EMPTY>`: the one place where the two are the same."""
    model = LanguageModel(config(), key=KEY)
    padded = model(jnp.array([[5, 6, 7, 8, 8]]))
    chex.assert_trees_all_close(padded[:, :3], model(jnp.array([[5, 6, 7]])), **CLOSE)


# Positions.


def test_additive_positions_reach_the_values():
    """(V + π)-attention: sinusoids added to the input are in queries, keys and values."""
    model = encoder(num_layers=1, position=Sinusoidal(), residual=NoNormResidual())
    tokens, block = jnp.array([[1, 2, 3, 4, 5, 6]]), model.blocks[0]
    x = np.asarray(model.embedding(tokens)[0] + sinusoidal(TOKENS.positions, D)[0])
    x = x + by_hand(block.attention, x, factor=(D // H) ** -0.5)
    x = x + np.asarray(block.feed_forward(jnp.asarray(x)[None])[0][0])
    chex.assert_trees_all_close(np.asarray(model(tokens)[0]), x, **CLOSE)


def test_query_key_positions_never_reach_the_values():
    """V · softmax((K + π)ᵀ(Q + π)) by hand, in the first layer and in the next."""
    position = QueryKeySinusoidal()
    model = encoder(position=position, residual=NoNormResidual())
    tokens = jnp.array([[1, 2, 3, 4, 5, 6]])
    x, at = np.asarray(model.embedding(tokens)[0]), np.asarray(sinusoidal(TOKENS.positions, D)[0])
    for block in model.blocks:
        x = x + by_hand(block.attention, x, factor=(D // H) ** -0.5, at=at)
        x = x + np.asarray(block.feed_forward(jnp.asarray(x)[None])[0][0])
    chex.assert_trees_all_close(np.asarray(model(tokens)[0]), x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("position", [None, *(p for p in shipped(Position) if "score" not in p.acts)], ids=str)
def test_an_encoder_without_positions_is_equivariant(position):
    """Permuted tokens have permuted outputs without positions, and with none of the schemes."""
    model = encoder(num_layers=1, position=position)
    tokens, order = np.array([[1, 2, 3, 4, 5, 6]]), np.array([4, 2, 5, 0, 1, 3])
    out, permuted = (np.asarray(model(jnp.asarray(t))) for t in (tokens, tokens[:, order]))
    difference = np.abs(out[:, order] - permuted).max()
    assert difference < 1e-5 if position is None else difference > 1e-3


def test_learned_positions_end():
    """A table of n vectors has no vector n + 1, and says so."""
    model = encoder(max_length=4, position=Learned())
    with pytest.raises(ConfigError, match="5 tokens are more than max_length 4"):
        model(jnp.zeros((1, 5), jnp.int32))


# Feed-forward, norms, and the convention of columns.


def test_the_feed_forward_sublayer_is_position_wise():
    """Permuting tokens commutes with it, and a token alone has the output it has among others."""
    layer = FeedForward(bias=True).build(config(), key=KEY)
    order = np.array([4, 2, 5, 0, 1, 3])
    out, _ = layer(jnp.asarray(X)[None])
    chex.assert_trees_all_close(layer(jnp.asarray(X[order])[None])[0], out[:, order], **CLOSE)
    chex.assert_trees_all_close(layer(jnp.asarray(X[2:3])[None])[0], out[:, 2:3], **CLOSE)
    gradient = jax.grad(lambda x: (layer(x)[0][0, 2] ** 2).sum())(jnp.asarray(X)[None])[0]
    assert np.flatnonzero(np.abs(gradient).max(-1)).tolist() == [2]


def test_sequence_layer_norm_by_hand():
    """One mean and one variance for all features of the real tokens, whatever stands in the padding."""
    x = np.stack([X, 3 * X + 1])
    valid = np.array([[True] * 4 + [False] * 2, [True] * 6])
    scale, bias = (np.random.default_rng(i).normal(size=D).astype(np.float32) for i in (2, 3))
    arguments = {"scale_D": jnp.asarray(scale), "bias_D": jnp.asarray(bias), "eps": 1e-3}
    out = sequence_layer_norm(jnp.asarray(x), jnp.asarray(valid), **arguments)
    for row, real, got in zip(x, valid, out, strict=True):
        expected = (row - row[real].mean()) / np.sqrt(row[real].var() + 1e-3) * scale + bias
        chex.assert_trees_all_close(got[real], expected[real], **CLOSE)
    other = np.where(valid[..., None], x, 100.0)
    again = sequence_layer_norm(jnp.asarray(other), jnp.asarray(valid), **arguments)
    chex.assert_trees_all_close(np.asarray(again)[valid], np.asarray(out)[valid], **CLOSE)


def test_statistics_over_tokens_leak_the_future():
    """A token's output depends on all later ones: by the gradient, and not so with statistics per token."""

    def seen(norm):
        params = {name: spec.initial_value(KEY) for name, spec in norm.parameters(D).items()}
        gradient = jax.grad(lambda x: (norm(x, params)[0, 2] ** 3).sum())(jnp.asarray(X)[None])[0]
        return np.flatnonzero(np.abs(gradient).max(-1) > 1e-6).tolist()

    assert seen(SequenceLayerNorm()) == list(range(L))
    assert seen(LayerNorm()) == [2]


@pytest.mark.parametrize("norm", [None, *shipped(Norm)], ids=str)
def test_norms_say_whether_they_mix_tokens(norm):
    """Exactly those whose output at a token depends on other tokens, and these are refused in causal models."""
    model, mixes = encoder(norm=norm), norm is not None and norm.mixes_tokens
    changed = np.where(np.arange(L)[:, None] == 5, 2 * X, X)
    first, second = (model.states_of(jnp.asarray(x)[None], None)[0, 2] for x in (X, changed))
    assert (np.abs(first - second).max() > 1e-6) == mixes
    if mixes:
        for kind in (ModelConfig, EncoderDecoderConfig):
            with pytest.raises(ConfigError, match=rf"model.norm: the statistics of {norm} .*use layernorm, or an enc"):
                kind(norm=norm)


def test_an_encoder_with_statistics_over_tokens_ignores_padding():
    """Neither the tokens nor the number of the padding changes the output of real tokens."""
    model = encoder(norm=SequenceLayerNorm(), position=RoPE())
    alone = model(jnp.array([[5, 6, 7]]))
    for padding in ([1], [2], [3, 4, 1]):
        valid = jnp.array([[True] * 3 + [False] * len(padding)])
        padded = model(jnp.array([[5, 6, 7, *padding]]), valid_BL=valid)
        chex.assert_trees_all_close(padded[:, :3], alone, **CLOSE)
    assert np.abs(model(jnp.array([[5, 6, 7, 1]]))[:, :3] - alone).max() > 1e-2


@pytest.mark.parametrize("norm", [None, *shipped(Norm)], ids=str)
def test_packed_documents_do_not_see_each_other_by_any_norm(norm):
    """An encoder of two packed documents is the encoder of each alone, or the norm is refused."""
    model = LanguageModel(config(norm=norm, causal=False, num_layers=1), key=KEY)
    segments, positions = jnp.array([[1, 1, 1, 2, 2]]), jnp.array([[0, 1, 2, 0, 1]])
    try:
        packed = model(jnp.array([[5, 6, 7, 1, 2]]), segments_BL=segments, positions_BL=positions)
    except ConfigError:
        assert norm.mixes_tokens
        return
    chex.assert_trees_all_close(packed[:, :3], model(jnp.array([[5, 6, 7]])), **CLOSE)
    chex.assert_trees_all_close(packed[:, 3:], model(jnp.array([[1, 2]])), **CLOSE)


def softmax_of_columns(scores):
    return softmax(scores.T).T


def test_columns_as_tokens_are_the_transposed_result():
    """Sa[X] = V · Softmax[KᵀQ/√d] with tokens as columns (D × N) is the attention of rows, transposed."""
    module = make(num_heads=1, merge=ConcatenateOnly(), bias=("query", "key", "value"))
    layers = {}
    for i, name in enumerate(("query", "key", "value")):
        layer = getattr(module, name)
        layer.bias[...] = layer.bias[...] + 0.1 * i
        layers[name] = np.asarray(layer.kernel[...]).T, np.asarray(layer.bias[...])[:, None]
    columns = X.T
    q, k, v = (weights @ columns + bias @ np.ones((1, L), np.float32) for weights, bias in layers.values())
    out = v @ softmax_of_columns(k.T @ q / np.sqrt(np.float32(D)))
    chex.assert_trees_all_close(attend(module).T, out, **CLOSE)


def test_heads_as_columns_are_the_transposed_result():
    """Y = Σ_h V_h X A_h with A_h = Softmax[(U_k,h X)ᵀ U_q,h X] over its rows, transposed."""
    module = make(merge=SumHeads(), scale=ConstantScale())
    query, key, value = (
        rearrange(np.asarray(layer.kernel[...]), "d (h k) -> h k d", h=H)
        for layer in (module.query, module.key, module.value)
    )
    columns = X.T
    out = sum(
        v @ columns @ softmax_of_columns((k @ columns).T @ (q @ columns))
        for q, k, v in zip(query, key, value, strict=True)
    )
    chex.assert_trees_all_close(attend(module).T, out, **CLOSE)


def test_padding_is_the_only_mask_of_an_encoder():
    """An encoder looks at all tokens; a source with padding needs its mask, one without does not."""
    model = encoder()
    assert model.mask_of(TOKENS) == Full()
    assert model.mask_of(TOKENS._replace(valid=jnp.ones((1, L), bool))) == Full() & Padding()
