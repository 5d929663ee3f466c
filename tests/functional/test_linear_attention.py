"""Recurrent attention: the values and gradients of exact attention, in time and memory that grow with the length."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.functional.attention import attention
from transformer.functional.linear_attention import recurrent_attention
from transformer.functional.masks import Arbitrary, Causal, Full, Padding, Prefix, Segment, Tokens, Window
from transformer.functional.normalizers import Decay, Normalized, elu_features

B, L, H, G, K, V = 2, 11, 4, 2, 3, 5
WEIGHS = {"normalized": Normalized(), "decay": Decay(jnp.array([0.5, 0.8, 0.9, 1.0]))}


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


Q, KEYS, VALUES, WEIGHTS = (
    elu_features(normal(0, B, L, H, K)),
    elu_features(normal(1, B, L, G, K)),
    normal(2, B, L, G, V),
    normal(3, B, L, H, V),
)
SEGMENTS = np.array([[0] * 4 + [1] * 7, [0] * 5 + [1] * 1 + [2] * 5])
POSITIONS = np.array([[*range(4), *range(7)], [*range(5), 0, *range(3, 8)]])
HOLE = (np.arange(L) > 2) & (np.arange(L) < 7)
"""Padding, which has the position and the segment of no document."""
CONTEXTS = {
    "causal": (Tokens.at(jnp.arange(L)), Causal()),
    "padding": (Tokens.at(jnp.arange(L), valid=jnp.arange(L) < jnp.array([[L], [6]])), Causal() & Padding()),
    "a hole": (Tokens.at(jnp.arange(L), valid=jnp.arange(L)[None] % 4 != 3), Padding() & Causal()),
    "a hole elsewhere": (
        Tokens.at(jnp.where(HOLE, 0, jnp.cumsum(~HOLE) - 1), segments=jnp.where(HOLE, 0, 1), valid=~HOLE[None]),
        Padding() & Causal() & Segment(),
    ),
    "documents": (Tokens.at(POSITIONS, segments=jnp.asarray(SEGMENTS)), Causal() & Padding() & Segment()),
}


def test_padding_that_the_mask_does_not_name_is_like_other_tokens():
    tokens = Tokens.at(jnp.arange(L), valid=jnp.arange(L)[None] < 6)
    sides = {"mask": Causal(), "weigh": Normalized()}
    exact = attention(Q, KEYS, VALUES, queries=tokens, keys=tokens, **sides).out
    ours = recurrent_attention(Q, KEYS, VALUES, tokens=tokens, **sides, block=4).out
    np.testing.assert_allclose(ours, exact, atol=1e-5)


def gradient(function, **how):
    def loss(q, k, v):
        out = function(q, k, v, scale=0.7, **how).out
        return (out * WEIGHTS).sum(), out

    (_, out), gradients = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True))(Q, KEYS, VALUES)
    return out, gradients


@pytest.mark.parametrize("weigh", WEIGHS.values(), ids=WEIGHS)
@pytest.mark.parametrize(("tokens", "mask"), CONTEXTS.values(), ids=CONTEXTS)
def test_equals_exact(tokens, mask, weigh):
    """For blocks that fill the sequence or not, of one token, and longer than the sequence."""
    expected = gradient(attention, queries=tokens, keys=tokens, mask=mask, weigh=weigh)
    assert np.abs(expected[0]).max() > 0.1
    for block in (1, 3, 64):
        found = gradient(recurrent_attention, tokens=tokens, mask=mask, weigh=weigh, block=block)
        chex.assert_trees_all_close(found, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    "mask", [Full(), Causal() & Window(3), Causal() | Prefix(2), Arbitrary(jnp.ones((L, L), bool))]
)
def test_other_masks_are_refused(mask):
    """What is behind a query is one sum, so it can neither forget a part of it nor look ahead."""
    with pytest.raises(ValueError, match=r"a token sees less than those before it; use attention$"):
        recurrent_attention(Q, KEYS, VALUES, tokens=Tokens.at(jnp.arange(L)), mask=mask, weigh=Normalized())


@pytest.mark.parametrize("weigh", WEIGHS.values(), ids=WEIGHS)
def test_the_largest_array_grows_with_the_length(weigh):
    """Twice the length, twice the largest array of the backward pass: no scores of all pairs."""

    def largest(length):
        def loss(q, k, v):
            tokens = Tokens.at(jnp.arange(length))
            return recurrent_attention(q, k, v, tokens=tokens, mask=Causal(), weigh=weigh, block=8).out.sum()

        shapes = [jax.ShapeDtypeStruct((1, length, heads, 8), jnp.float32) for heads in (4, 2, 2)]
        return _largest(jax.make_jaxpr(jax.grad(loss, argnums=(0, 1, 2)))(*shapes).jaxpr)

    assert largest(512) == 2 * largest(256)


def _largest(jaxpr):
    sizes = [variable.aval.size for step in jaxpr.eqns for variable in step.outvars]
    inner = [_largest(getattr(p, "jaxpr", p)) for e in jaxpr.eqns for p in e.params.values() if hasattr(p, "eqns")]
    return max([*sizes, *inner])
