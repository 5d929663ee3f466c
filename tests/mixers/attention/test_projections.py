"""Projections, merges and scales: each is its formula."""

import itertools
from dataclasses import dataclass
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from einops import rearrange

import transformer as T
from transformer.analysis.counts import parameter_count
from transformer.core.errors import ConfigError
from transformer.core.modules import split
from transformer.core.parameters import Xavier
from transformer.functional.attention import attention, attention_scores
from transformer.functional.masks import Tokens
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.backends import Chunked
from transformer.mixers.attention.base import Backend, Merge, Projection
from transformer.mixers.attention.projections import (
    ConcatenateOnly,
    ConstantScale,
    InverseScale,
    LearnedScale,
    NoProjections,
    ScaledProjections,
    SumHeads,
    TiedProjections,
)
from transformer.mixers.mixer import Context
from transformer.models.config import ModelConfig

KEY = jax.random.key(0)
L, D, H = 6, 8, 2
X = np.random.default_rng(0).normal(size=(L, D)).astype(np.float32)
TOKENS = Tokens.at(np.arange(L))
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def shipped(family):
    return [cls() for cls in family.variants().values() if cls.__module__.startswith("transformer.")]


def softmax(scores):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@dataclass(frozen=True)
class Recording(Backend):
    """Exact attention that remembers the last queries and keys."""

    last: ClassVar[list] = []

    def __call__(self, q, k, v, *, own_keys, **how):
        self.last[:] = q, k
        return attention(q, k, v, **how)


def scores_of(module):
    """q·k of every head, (H, L, L)."""
    module(jnp.asarray(X)[None], context=Context(TOKENS))
    q, k = (np.asarray(x[0]).transpose(1, 0, 2) for x in Recording.last)
    return q @ k.transpose(0, 2, 1)


WAYS = itertools.product([None, *shipped(Projection)], [None, *shipped(Merge)])


@pytest.mark.parametrize(
    ("projection", "merge"), [way for way in WAYS if way != (NoProjections(), SumHeads())], ids=str
)
def test_attention_by_hand(projection, merge, attention, attend, by_hand):
    """Every way to make queries, keys and values, and to merge the heads, is its formula."""
    module = attention(projection=projection, merge=merge)
    chex.assert_trees_all_close(attend(module), by_hand(module, factor=(D // H) ** -0.5), **CLOSE)


def test_without_projections_attention_is_softmax_of_x_times_x_times_x(attention, attend):
    """softmax(xxᵀ)x with one head, in every head's share with two, and there is nothing to train."""
    for heads in (1, 2):
        choices = {"projection": NoProjections(), "merge": ConcatenateOnly(), "scale": ConstantScale()}
        module = attention(num_heads=heads, **choices)
        expected = [softmax(x @ x.T) @ x for x in np.split(X, heads, 1)]
        chex.assert_trees_all_close(attend(module), np.concatenate(expected, 1), **CLOSE)
        assert jax.tree.leaves(split(module)[0]) == []


def test_values_as_wide_as_the_model_have_to_be_made(config):
    """Without projections there is nothing to sum over several heads, and the configuration says so."""
    with pytest.raises(ConfigError, match=r"mixer\."):
        config(Attention(num_heads=H, projection=NoProjections(), merge=SumHeads()))


def test_no_projections_are_identity_projections(attention, attend):
    """Three identity kernels give what no projections give."""
    none, separate = (attention(projection=p, merge=ConcatenateOnly()) for p in (NoProjections(), None))
    for name in ("query", "key", "value"):
        getattr(separate, name).kernel[...] = jnp.eye(D)
    chex.assert_trees_all_close(attend(none), attend(separate), **CLOSE)


def test_scaled_projections_begin_smaller():
    """As Xavier values of one matrix for all three would; the output projection is as it was."""
    model = ModelConfig(vocab_size=8, max_length=8, d_model=D, initializer=Xavier())
    own, usual = (Attention(H, projection=p).build(model, key=KEY) for p in (ScaledProjections(), None))
    for role in ("query", "key", "value"):
        found, expected = (getattr(layer, role).kernel[...] for layer in (own, usual))
        chex.assert_trees_all_close(found, expected / np.sqrt(2), rtol=1e-6)
        assert 0.9 < np.abs(found).max() / np.sqrt(6 / (D + 3 * D)) <= 1
    chex.assert_trees_all_equal(own.out.kernel[...], usual.out.kernel[...])
    with pytest.raises(ConfigError, match=r"^scaled\.gain: 0 is not a positive number"):
        ScaledProjections(gain=0)


@pytest.mark.parametrize("head_dim", [None, 2])
def test_tied_projections_have_symmetric_scores(head_dim, attention):
    """xᵀUᵀUx is the same in both directions, also with K < D; xᵀUₖᵀU_q x is not."""
    tied, separate = (
        scores_of(attention(projection=p, head_dim=head_dim, backend=Recording())) for p in (TiedProjections(), None)
    )
    chex.assert_trees_all_close(tied, tied.transpose(0, 2, 1), **CLOSE)
    assert np.abs(separate - separate.transpose(0, 2, 1)).max() > 0.1


def test_tied_projections_are_one_layer(attention, attend):
    """They equal two layers with one kernel, and have one kernel less."""
    tied, separate = (attention(projection=p) for p in (TiedProjections(), None))
    separate.key.kernel[...] = separate.query.kernel[...]
    chex.assert_trees_all_close(attend(tied), attend(separate), **CLOSE)
    sizes = [sum(leaf.size for leaf in jax.tree.leaves(split(m)[0])) for m in (tied, separate)]
    assert sizes[1] - sizes[0] == D * D


def test_the_head_size_is_free(attention, attend, by_hand):
    """K below D, and not D/H: scores of that rank, and the scale of that size."""
    module = attention(num_heads=1, head_dim=3, backend=Recording())
    assert module.query.kernel.shape == (D, 3)
    assert np.linalg.matrix_rank(scores_of(module)[0], tol=1e-4) == 3
    chex.assert_trees_all_close(attend(module), by_hand(module, factor=3**-0.5), **CLOSE)


SCALES = [
    (ConstantScale(), 1.0),
    (None, 3**-0.5),
    (InverseScale(), 1 / 3),
    (InverseScale(base=3), 3**-0.5),
    (InverseScale(base=12), 2 / 3**0.5),
    (LearnedScale(), 0.7),
    (ConstantScale(0.3), 0.3),
]


@pytest.mark.parametrize(("scale", "factor"), SCALES, ids=[str(s) for s, _ in SCALES])
def test_scale_by_hand(scale, factor, attention, attend, by_hand):
    """1, 1/√K, 1/K, a trained number, a given one: by hand, and in blocks too."""
    for backend in (None, Chunked(block=4)):
        module = attention(scale=scale, head_dim=3, backend=backend)
        if isinstance(scale, LearnedScale):
            np.testing.assert_allclose(module.params["scale"]()["scale"], 3**-0.5, rtol=1e-6)
            module.params["scale"].scale[...] = jnp.float32(factor)
        chex.assert_trees_all_close(attend(module), by_hand(module, factor=factor), **CLOSE)


def test_a_learned_scale_is_trained_and_not_decayed(config, attention):
    """It has a gradient, is one number per layer, and weight decay leaves it alone."""
    params, apply = split(attention(scale=LearnedScale()))
    arguments = {"context": Context(TOKENS)}
    gradient = jax.grad(lambda p: (apply(p, jnp.asarray(X)[None], **arguments)[0] ** 2).sum())(params)
    assert np.abs(gradient["params"]["scale"]["scale"]) > 1e-3
    assert parameter_count(config(Attention(num_heads=H, scale=LearnedScale()))) - parameter_count(config()) == 2
    assert not LearnedScale().parameters(4)["scale"].decayed


@pytest.mark.parametrize("size", [16, 256])
@pytest.mark.parametrize("law", ["normal", "uniform"])
def test_the_deviation_of_a_dot_product_is_the_root_of_its_size(size, law, attention):
    """Features of variance 1 give Std(q·k) = √d, 1 after 1/√d, and 1/√d after 1/d."""
    rng = np.random.default_rng(size)
    draw = rng.normal if law == "normal" else lambda size: rng.uniform(-(3**0.5), 3**0.5, size)
    q, k = (jnp.asarray(draw(size=(400, size)), jnp.float32) for _ in range(2))

    def deviation(scale):
        factor = attention(num_heads=1, head_dim=size, scale=scale).factor()
        return attention_scores(q[None, None, None], k[None, None], scale=factor).std()

    np.testing.assert_allclose(deviation(ConstantScale()), size**0.5, rtol=0.05)
    np.testing.assert_allclose(deviation(None), 1.0, rtol=0.05)
    np.testing.assert_allclose(deviation(InverseScale()), size**-0.5, rtol=0.05)


def test_the_sum_over_heads_is_concatenation_and_a_product(attention, attend):
    """Σ_h A_h x V_h with V_h = W_V,h W_O,h equals concat(A_h x W_V,h) W_O."""
    concat, summed = attention(), attention(merge=SumHeads())
    value, out = (np.asarray(layer.kernel[...]) for layer in (concat.value, concat.out))
    K = D // H
    joined = [value[:, h * K : (h + 1) * K] @ out[h * K : (h + 1) * K] for h in range(H)]
    summed.value.kernel[...] = jnp.asarray(np.concatenate(joined, 1))
    chex.assert_trees_all_equal(summed.query.kernel[...], concat.query.kernel[...])
    chex.assert_trees_all_close(attend(summed), attend(concat), **CLOSE)
    assert summed.out is None


def test_heads_side_by_side_need_no_product(config, attention, attend):
    """`concat_only` is the usual merge with the identity, and heads that do not fill the width are refused."""
    concat, plain = attention(), attention(merge=ConcatenateOnly())
    concat.out.kernel[...] = jnp.eye(D)
    chex.assert_trees_all_close(attend(plain), attend(concat), **CLOSE)
    assert plain.out is None
    with pytest.raises(ConfigError, match="merge: concat_only needs heads that fill d_model 8, and 2 heads of 3 are 6"):
        config(Attention(num_heads=H, merge=ConcatenateOnly(), head_dim=3))


@pytest.mark.parametrize("projection", [TiedProjections(), NoProjections()], ids=str)
def test_shapes_that_do_not_fit_a_projection(projection, config):
    """Shared queries and keys have the same heads; cut inputs fill the width."""
    with pytest.raises(ConfigError, match=rf"mixer.projection: {projection} needs as many key-value heads"):
        config(Attention(num_heads=H, projection=projection, num_kv_heads=1))
    if isinstance(projection, NoProjections):
        with pytest.raises(ConfigError, match="cuts d_model 8 into heads, and 2 heads of 3 are 6"):
            config(Attention(num_heads=H, projection=projection, head_dim=3))


def softmax_of_columns(scores):
    return softmax(scores.T).T


def test_columns_as_tokens_are_the_transposed_result(attention, attend):
    """Sa[X] = V · Softmax[KᵀQ/√d] with tokens as columns (D × N) is the attention of rows, transposed."""
    module = attention(num_heads=1, merge=ConcatenateOnly(), bias=("query", "key", "value"))
    layers = {}
    for i, name in enumerate(("query", "key", "value")):
        layer = getattr(module, name)
        layer.bias[...] = layer.bias[...] + 0.1 * i
        layers[name] = np.asarray(layer.kernel[...]).T, np.asarray(layer.bias[...])[:, None]
    columns = X.T
    q, k, v = (weights @ columns + bias @ np.ones((1, L), np.float32) for weights, bias in layers.values())
    out = v @ softmax_of_columns(k.T @ q / np.sqrt(np.float32(D)))
    chex.assert_trees_all_close(attend(module).T, out, **CLOSE)


def test_heads_as_columns_are_the_transposed_result(attention, attend):
    """Y = Σ_h V_h X A_h with A_h = Softmax[(U_k,h X)ᵀ U_q,h X] over its rows, transposed."""
    module = attention(merge=SumHeads(), scale=ConstantScale())
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


def test_a_learned_scale_begins_where_it_is_told():
    np.testing.assert_allclose(LearnedScale(0.3).parameters(4)["scale"].initial_value(KEY), 0.3, rtol=1e-6)


def test_a_residual_connection_scales_values_and_outputs():
    """By its inner and its outer factor, which in Fixup are 1/√branches and 0; queries and keys begin as ever."""
    plain = ModelConfig(d_model=D, num_layers=2, residual=T.NoNormResidual(), scale_residual_init=False)
    fixed, usual = (Attention(H).build(one, key=KEY) for one in (plain.replace(residual=T.Fixup()), plain))
    for role, factor in {"query": 1.0, "key": 1.0, "value": 0.5, "out": 0.0}.items():
        found, expected = (getattr(layer, role).kernel[...] for layer in (fixed, usual))
        np.testing.assert_allclose(found, factor * expected, rtol=1e-6)
