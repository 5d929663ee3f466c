"""Exact attention: its definition in numpy, rows with nothing to attend to, symmetries and errors."""

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.functional.attention import attention, masked_softmax
from transformer.functional.biases import LinearDistance
from transformer.functional.chunked_attention import chunked_attention
from transformer.functional.masks import Arbitrary, Causal, Full, Segment, Tokens

BATCH, QUERIES, KEYS, SIZE, VALUE_SIZE = 2, 3, 5, 4, 6


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def inputs(heads, kv_heads, queries=QUERIES, keys=KEYS):
    return (
        normal(0, BATCH, queries, heads, SIZE),
        normal(1, BATCH, keys, kv_heads, SIZE),
        normal(2, BATCH, keys, kv_heads, VALUE_SIZE),
    )


def at(*positions):
    return Tokens.at(jnp.array(positions))


ROWS, COLUMNS = Tokens.at(jnp.arange(QUERIES)), Tokens.at(jnp.arange(KEYS))


def reference(q, k, v, *, allowed=True, bias=0.0, scale=None):
    """The definition, head by head in float64; an empty row is zeros."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    (batch, length, heads, size), (_, keys, kv_heads, _) = q.shape, k.shape
    allowed, bias = (np.broadcast_to(x, (batch, heads, length, keys)) for x in (allowed, bias))
    weights, out = np.zeros((batch, heads, length, keys)), np.zeros((batch, length, heads, v.shape[-1]))
    for b in range(batch):
        for h in range(heads):
            g = h * kv_heads // heads
            scores = q[b, :, h] @ k[b, :, g].T * (1 / math.sqrt(size) if scale is None else scale) + bias[b, h]
            for i in range(length):
                if (row := allowed[b, h, i]).any():
                    exponentials = np.exp(scores[i, row] - scores[i, row].max())
                    weights[b, h, i, row] = exponentials / exponentials.sum()
            out[b, :, h] = weights[b, h] @ v[b, :, g]
    return out, weights


@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (4, 2), (3, 1)])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_equals_numpy(heads, kv_heads, masked, biased, scale):
    """Output and weights are the definition's, with grouped heads and values of their own size."""
    q, k, v = inputs(heads, kv_heads)
    allowed = np.random.default_rng(0).random((BATCH, heads, QUERIES, KEYS)) < 0.6
    slopes = np.arange(1, heads + 1) / 4
    distance = np.abs(np.arange(QUERIES)[:, None] - np.arange(KEYS))
    out, _, weights = attention(
        q,
        k,
        v,
        queries=ROWS,
        keys=COLUMNS,
        mask=Arbitrary(jnp.asarray(allowed)) if masked else None,
        bias=LinearDistance(jnp.asarray(slopes, jnp.float32)) if biased else None,
        scale=scale,
    )
    expected = reference(
        q,
        k,
        v,
        allowed=allowed if masked else True,
        bias=-slopes[:, None, None] * distance if biased else 0.0,
        scale=scale,
    )
    chex.assert_trees_all_close((out, weights), jax.tree.map(np.float32, expected), atol=1e-5, rtol=1e-5)


def exact(*args, **kwargs):
    return attention(*args, **kwargs).out


def chunked(*args, **kwargs):
    return chunked_attention(*args, block=2, **kwargs).out


def with_gradients(function, *arguments):
    """The output and the gradients of its sum, from one compiled program."""

    def run(*arguments):
        out, pull_back = jax.vjp(function, *arguments)
        return out, pull_back(jnp.ones_like(out))

    return jax.device_get(jax.jit(run)(*arguments))


@pytest.mark.parametrize("implementation", [exact, chunked])
@pytest.mark.parametrize("mask", [~Full(), Causal() & ~Causal(), ~(Full() | Segment())], ids=str)
def test_nothing_to_attend_to_gives_zeros(implementation, mask):
    """With no key allowed the output is zero and so is every gradient."""
    q, k, v = inputs(4, 2)

    def run(q, k, v):
        return implementation(q, k, v, queries=ROWS, keys=COLUMNS, mask=mask)

    out, gradients = with_gradients(run, q, k, v)
    chex.assert_trees_all_equal((out, *gradients), jax.tree.map(np.zeros_like, (out, q, k, v)))


@pytest.mark.parametrize("implementation", [exact, chunked])
def test_one_empty_row_among_others(implementation):
    """An empty row is zeros with finite gradients, and the rows beside it do not notice."""
    q, k, v = inputs(2, 2)
    allowed = jnp.asarray(np.arange(QUERIES)[:, None] != np.full(KEYS, 1))

    def run(q, k, v):
        return implementation(q, k, v, queries=ROWS, keys=COLUMNS, mask=Arbitrary(allowed))

    out, gradients = with_gradients(run, q, k, v)
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    assert not out[:, 1].any()
    assert not gradients[0][:, 1].any()
    chex.assert_trees_all_close(out[:, ::2], np.float32(reference(q, k, v)[0][:, ::2]), atol=1e-5)


@pytest.mark.parametrize("implementation", [exact, chunked])
def test_large_scores(implementation):
    """Scores of 10,000 choose the highest key, without overflow in value or gradient."""
    q, k, v = inputs(2, 2)

    def run(q, k, v):
        return implementation(q, k, v, queries=ROWS, keys=COLUMNS, mask=Full(), scale=1e4)

    out, gradients = with_gradients(run, q, k, v)
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    highest = np.einsum("blhk,bshk->blhs", q, k).argmax(-1)
    expected = np.stack([[[v[b, highest[b, i, h], h] for h in range(2)] for i in range(QUERIES)] for b in range(BATCH)])
    chex.assert_trees_all_close(out, expected, atol=1e-5)


def test_weights_are_a_distribution():
    """Each row of weights sums to one over the allowed keys and is zero elsewhere."""
    q, k, v = inputs(2, 2)
    weights = attention(q, k, v, queries=ROWS, keys=COLUMNS, mask=Causal()).weights
    assert weights is not None
    allowed = np.broadcast_to(Causal()(ROWS, COLUMNS), weights.shape)
    np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-6)
    assert (weights[allowed] > 0).all()
    assert not weights[~allowed].any()


@given(st.permutations(range(KEYS)), st.permutations(range(QUERIES)))
def test_permutation(keys, queries):
    """Without positions and mask, the order of keys is irrelevant and that of queries is kept."""
    q, k, v = inputs(2, 2)
    out = np.asarray(exact(q, k, v, queries=ROWS, keys=COLUMNS))
    q, k, v = (jnp.asarray(np.asarray(x)[:, order]) for x, order in ((q, queries), (k, keys), (v, keys)))
    chex.assert_trees_all_close(exact(q, k, v, queries=ROWS, keys=COLUMNS), out[:, queries], atol=1e-6)


@pytest.mark.parametrize("implementation", [exact, chunked])
def test_cached_step(implementation):
    """One query at its own position sees what its row of the whole sequence sees."""
    q, k, v = inputs(2, 2, queries=KEYS)
    bias = LinearDistance(jnp.array([0.5, 0.25]))
    run = jax.jit(lambda q, side: implementation(q, k, v, queries=side, keys=COLUMNS, mask=Causal(), bias=bias))
    out = run(q, COLUMNS)
    for position in (0, 3):
        step = run(q[:, position : position + 1], at(position))
        chex.assert_trees_all_close(step, out[:, position : position + 1], atol=1e-6)


@pytest.mark.parametrize("implementation", [exact, chunked])
def test_bfloat16(implementation):
    """bfloat16 inputs give bfloat16 outputs near those of float32."""
    q, k, v = (x.astype(jnp.bfloat16) for x in inputs(4, 2))
    arguments = {"queries": ROWS, "keys": COLUMNS, "mask": Causal()}
    run = jax.jit(lambda *qkv: implementation(*qkv, **arguments))
    out = run(q, k, v)
    assert out.dtype == jnp.bfloat16
    precise = run(*(x.astype(jnp.float32) for x in (q, k, v)))
    chex.assert_trees_all_close(out.astype(jnp.float32), precise, atol=2e-2, rtol=2e-2)


def test_softmax_statistics_are_float32():
    """1,024 equal bfloat16 scores have weights of 1/1024, which a bfloat16 sum could not reach."""
    keys, tokens = jnp.zeros((1, 1024, 1, 2), jnp.bfloat16), Tokens.at(jnp.arange(1024))
    weights = attention(jnp.ones((1, 1, 1, 2), jnp.bfloat16), keys, keys, queries=at(0), keys=tokens).weights
    assert weights is not None
    assert weights.dtype == jnp.float32
    chex.assert_trees_all_close(weights, jnp.full((1, 1, 1, 1024), 1 / 1024, jnp.float32), rtol=1e-6)


def test_masked_softmax_is_softmax_of_the_allowed():
    """Where everything is allowed it is softmax; a common shift of the scores changes nothing."""
    scores = normal(3, 4, 5)
    everywhere = masked_softmax(scores, jnp.ones((4, 5), bool))
    chex.assert_trees_all_close(everywhere, masked_softmax(scores, None), atol=1e-7)
    allowed = jnp.arange(5) < 3
    part = masked_softmax(scores, allowed)
    chex.assert_trees_all_close(part[:, :3], jax.nn.softmax(scores[:, :3]), atol=1e-7)
    chex.assert_trees_all_close(part, masked_softmax(scores - 50.0, allowed), atol=1e-6)


@pytest.mark.parametrize("implementation", [exact, chunked])
@pytest.mark.parametrize(
    ("shapes", "counts", "message"),
    [
        (((2, 3, 4, 4), (2, 5, 3, 4), (2, 5, 3, 4)), (3, 5), "4 query heads are not a multiple of 3 key-value heads"),
        (((2, 3, 2, 4), (2, 5, 2, 6), (2, 5, 2, 4)), (3, 5), r"query \(2, 3, 2, 4\), key \(2, 5, 2, 6\)"),
        (((2, 3, 2, 4), (1, 5, 2, 4), (1, 5, 2, 4)), (3, 5), "do not fit"),
        (((2, 3, 2, 4), (2, 5, 2, 4), (2, 4, 2, 4)), (3, 5), "do not fit"),
        (((2, 3, 2, 4), (2, 5, 2, 4), (2, 5, 2, 4)), (3, 4), "5 keys, but positions for 3 and 4"),
        (((2, 3, 2, 4), (2, 5, 2, 4), (2, 5, 2, 4)), (1, 5), "3 queries"),
    ],
)
def test_shape_errors(implementation, shapes, counts, message):
    """Arrays that do not fit together raise one line with their shapes."""
    queries, keys = (Tokens.at(jnp.arange(count)) for count in counts)
    with pytest.raises(ValueError, match=message):
        implementation(*map(jnp.zeros, shapes), queries=queries, keys=keys)


def test_large_scores_are_nearly_one_hot_and_have_small_gradients():
    """Why there is a scale: at Std √d the softmax saturates and its gradient vanishes."""
    q, k = np.random.default_rng(0).normal(size=(2, 32, 256)).astype(np.float32)
    jacobians = []
    for factor in (1.0, 256**-0.5):
        weights = np.asarray(jax.nn.softmax(factor * q @ k.T))
        jacobians.append((weights * (1 - weights)).max(-1).mean())
    assert jacobians[0] < 0.5 * jacobians[1]
