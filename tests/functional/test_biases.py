"""Score biases: ALiBi's slopes and distances, and attention that only sees distances."""

from dataclasses import dataclass

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.functional.attention import attention
from transformer.functional.biases import (
    ByDistance,
    Interpolated,
    LinearDistance,
    LogDistance,
    Scaled,
    alibi_slopes,
    buckets,
    mixed_by_distance,
)
from transformer.functional.masks import Causal, Tokens


@pytest.mark.parametrize(
    ("heads", "exponents"),
    [
        (1, [8]),
        (2, [4, 8]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (3, [4, 8, 2]),
        (6, [2, 4, 6, 8, 1, 3]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
    ],
)
def test_slopes(heads, exponents):
    """The slopes are these powers of one half, as in the authors' code."""
    np.testing.assert_allclose(alibi_slopes(heads), [2.0**-e for e in exponents])


def test_linear_distance_table():
    """Minus slope times distance, on both sides of the query, per head; float32."""
    queries, keys = Tokens.at(jnp.array([2, 5])), Tokens.at(jnp.array([0, 2, 6]))
    bias = LinearDistance(jnp.array([1.0, 0.5]))(queries, keys)
    assert bias.dtype == jnp.float32
    expected = [[[[-2, 0, -4], [-5, -3, -1]], [[-1, 0, -2], [-2.5, -1.5, -0.5]]]]
    np.testing.assert_array_equal(bias, np.array(expected, np.float32))


def test_block_is_slice_of_whole():
    """A block of the bias is that block of its table."""
    tokens = Tokens.at(jnp.array([[0, 1, 2, 3], [0, 1, 0, 1]]))
    bias = LinearDistance(jnp.array([1.0, 0.5]))
    for i, j in ((0, 2), (2, 0), (1, 1)):
        block = bias(tokens.block(i, 2), tokens.block(j, 2))
        chex.assert_trees_all_equal(block, bias(tokens, tokens)[:, :, i : i + 2, j : j + 2])


@given(st.integers(-100_000, 100_000))
def test_attention_sees_distances_only(shift):
    """A common shift of all positions changes nothing, bit for bit."""
    q, k, v = (jnp.asarray(np.random.default_rng(i).normal(size=(1, 4, 2, 4)), jnp.float32) for i in range(3))
    bias = LinearDistance(jnp.array([1.0, 0.25]))
    here, there = (Tokens.at(jnp.asarray(np.arange(4) + s, jnp.int32)) for s in (0, shift))
    outs = [attention(q, k, v, queries=t, keys=t, mask=Causal(), bias=bias).out for t in (here, there)]
    chex.assert_trees_all_equal(*outs)
    assert np.abs(outs[0] - attention(q, k, v, queries=here, keys=here, mask=Causal()).out).max() > 1e-3


def test_buckets_of_t5():
    """One for each of the nearest 16 distances, then logarithmic ranges up to 128 (Raffel et al. 2019)."""
    distances = jnp.array([-3, 0, 1, 15, 16, 20, 32, 64, 127, 128, 5000], jnp.float32)
    assert buckets(distances, 32, 128, causal=True).tolist() == [0, 0, 1, 15, 16, 17, 21, 26, 31, 31, 31]
    both = buckets(jnp.array([-5000, -1, 0, 1, 7, 8, 5000], jnp.float32), 32, 128, causal=False)
    assert both.tolist() == [31, 17, 0, 1, 7, 8, 15]


def test_numbers_by_distance():
    """A query's number for the clipped distance of each key, looked up by the query's own row."""
    scores = jnp.asarray(np.random.default_rng(0).normal(size=(1, 5, 2, 5)), jnp.float32)
    tokens = Tokens.at(np.arange(5))
    out = np.asarray(ByDistance(scores)(tokens, tokens))
    for head, query, key in np.ndindex(2, 5, 5):
        assert out[0, head, query, key] == scores[0, query, head, np.clip(key - query, -2, 2) + 2]
    part = ByDistance(scores)(tokens.block(2, 2), tokens)
    np.testing.assert_array_equal(part, out[:, :, 2:4])


def test_vectors_of_distances_are_mixed_by_the_weights_of_the_keys():
    """Σ weight · vector of the clipped distance, also of packed documents, where a distance may occur twice."""
    rng = np.random.default_rng(0)
    weights, table = rng.normal(size=(2, 3, 4, 5)).astype(np.float32), rng.normal(size=(5, 6)).astype(np.float32)
    queries, keys = Tokens.at(jnp.array([[0, 1, 0, 1], [2, 3, 4, 9]])), Tokens.at(jnp.array([0, 1, 0, 1, 2]))
    out = np.asarray(mixed_by_distance(jnp.asarray(weights), jnp.asarray(table), queries, keys))
    for row, query, head in np.ndindex(2, 4, 3):
        distances = np.clip(keys.positions[0] - queries.positions[row, query], -2, 2)
        expected = weights[row, head, query] @ table[distances + 2]
        np.testing.assert_allclose(out[row, query, head], expected, rtol=1e-5, atol=1e-6)


def test_logarithmic_distance():
    """-r₁ log(1 + r₂ |i - j|), a pair of numbers a head."""
    tokens = Tokens.at(np.arange(4))
    out = LogDistance(jnp.array([1.0, 2.0]), jnp.array([0.5, 3.0]))(tokens, tokens)
    np.testing.assert_allclose(out[0, 1, 3, 0], -2 * np.log(1 + 3 * 3), rtol=1e-6)
    np.testing.assert_allclose(out[0, 0, 0, 2], -np.log(1 + 0.5 * 2), rtol=1e-6)


def test_interpolated_distance():
    """The network sees log(1 + c·distance) / log(1 + c·max(i, T)) (FIRE, equation 7)."""
    names = (jnp.float32(0.3), jnp.float32(2.0), jnp.array([1.0]), jnp.array([0.0]), jnp.array([[1.0, -2.0]]))
    tokens = Tokens.at(np.arange(6))
    out = Interpolated(*names)(tokens, tokens)
    share = np.log1p(0.3 * 4) / np.log1p(0.3 * 5)
    np.testing.assert_allclose(out[0, :, 5, 1], [share, -2 * share], rtol=1e-4)
    np.testing.assert_allclose(out[0, 0, 1, 0], np.log1p(0.3) / np.log1p(0.6), rtol=1e-4)


L, H = 6, 2
SEEN = Tokens.at(np.arange(L))


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
    return attention(q, k, v, queries=SEEN, keys=SEEN, **arguments).weights


def test_minus_infinity_is_the_same_before_and_after_scaling():
    """softmax((QKᵀ + M)/√d) = softmax(QKᵀ/√d + M) = the boolean mask, for M of 0 and −∞ and not of 0 and −3."""
    allowed = Causal()(SEEN, SEEN)
    masked = weights_of(mask=Causal())
    for never, same in ((-np.inf, True), (-3.0, False)):
        bias = Additive(allowed, jnp.float32(never))
        after, before = weights_of(bias=bias), weights_of(bias=Scaled(bias, 0.5))
        assert (np.abs(after - before).max() < 1e-6) == same
        assert (np.abs(after - masked).max() < 1e-6) == same


def test_the_factor_of_a_bias_is_differentiated():
    """A learned scale that multiplies the bias too is trained by both terms."""
    slopes = jnp.asarray(alibi_slopes(H), jnp.float32)

    def total(factor):
        bias = Scaled(LinearDistance(slopes), factor)
        return (weights_of(bias=bias, scale=0.0) ** 2).sum()

    step = 1e-2
    numeric = (total(jnp.float32(0.5 + step)) - total(jnp.float32(0.5 - step))) / (2 * step)
    np.testing.assert_allclose(jax.grad(total)(jnp.float32(0.5)), numeric, rtol=1e-2)


def test_the_hidden_layer_of_interpolated_distances():
    """relu(share · w + b) · out, and of c and T the sizes count."""
    into, bias, out = np.array([1.0, -2.0, 0.5]), np.array([0.3, 1.5, -0.1]), np.array([[1.0], [2.0], [-1.0]])
    numbers = (jnp.float32(-0.3), jnp.float32(-2.0), *(jnp.asarray(a, jnp.float32) for a in (into, bias, out)))
    tokens = Tokens.at(np.arange(6))
    found = Interpolated(*numbers)(tokens, tokens)
    for query, key in ((5, 1), (1, 0), (4, 4)):
        share = np.log1p(0.3 * (query - key)) / np.log1p(0.3 * max(query, 2))
        expected = np.maximum(share * into + bias, 0) @ out
        np.testing.assert_allclose(found[0, :, query, key], expected, rtol=1e-4)
