"""Score biases: ALiBi's slopes and distances, and attention that only sees distances."""

import chex
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.functional.attention import attention
from transformer.functional.biases import LinearDistance, alibi_slopes
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
    outs = [attention(q, k, v, queries=t, keys=t, mask=Causal(), bias=bias) for t in (here, there)]
    chex.assert_trees_all_equal(*outs)
    assert np.abs(outs[0] - attention(q, k, v, queries=here, keys=here, mask=Causal())).max() > 1e-3
