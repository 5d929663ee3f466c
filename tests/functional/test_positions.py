"""Positional encodings: their formulas in numpy, and invariance under a common shift."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.functional.positions import frequencies, rotary, sinusoidal, xpos_decay, yarn_ramp


@functools.partial(jax.jit, static_argnames=("base", "fraction", "interleaved"))
def turn(x, positions, base=10_000.0, fraction=1.0, interleaved=False):
    return rotary(x, positions, frequencies(int(x.shape[-1] * fraction), base), interleaved=interleaved)


def normal(seed, *shape, dtype=jnp.float32):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


@pytest.mark.parametrize("d_model", [6, 7])
@pytest.mark.parametrize("base", [10_000.0, 100.0])
def test_sinusoidal_equals_numpy(d_model, base):
    """Feature 2i is sin(p / base^(2i/D)) and 2i + 1 its cosine; an odd width drops the last cosine."""
    positions = np.array([[0, 1, 2, 300], [5, 0, 7, 1000]])
    expected = np.zeros((2, 4, d_model))
    for feature in range(d_model):
        angles = positions / base ** ((feature - feature % 2) / d_model)
        expected[..., feature] = np.cos(angles) if feature % 2 else np.sin(angles)
    out = sinusoidal(jnp.asarray(positions, jnp.int32), d_model, base)
    chex.assert_trees_all_close(out, expected.astype(np.float32), atol=2e-4)


def rotated(x, positions, base, size, interleaved):
    """Pairs of features as complex numbers, times e^(i angle)."""
    x, out = np.asarray(x, np.float64), np.array(x, np.float64)
    first = np.arange(0, size, 2) if interleaved else np.arange(size // 2)
    second = first + (1 if interleaved else size // 2)
    angles = positions[..., None, None] * base ** (-np.arange(0, size, 2) / size)
    turned = (x[..., first] + 1j * x[..., second]) * np.exp(1j * angles)
    out[..., first], out[..., second] = turned.real, turned.imag
    return out


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("fraction", [1.0, 0.5])
@pytest.mark.parametrize("base", [10_000.0, 50.0])
def test_rotary_equals_complex_product(interleaved, fraction, base):
    """Both pairings rotate by position · base^(-2i/K); features past the fraction stay as they are."""
    x, positions = normal(0, 2, 3, 2, 8), np.array([[0, 1, 2], [7, 40, 999]])
    out = turn(x, jnp.asarray(positions, jnp.int32), base=base, fraction=fraction, interleaved=interleaved)
    expected = rotated(x, positions, base, int(8 * fraction), interleaved)
    chex.assert_trees_all_close(out, expected.astype(np.float32), atol=5e-4)
    if fraction < 1:
        chex.assert_trees_all_equal(out[..., 4:], x[..., 4:])
    chex.assert_trees_all_close(out[0, 0], x[0, 0], atol=1e-7)


def products(shift, **options):
    """q·k of every pair of tokens, all positions moved by `shift`."""
    positions = jnp.asarray(np.array([[0, 1, 3, 10]]) + shift, jnp.int32)
    q, k = (np.asarray(turn(normal(i, 1, 4, 2, 8), positions, **options)) for i in range(2))
    return np.einsum("blhk,bshk->bhls", q, k)


@given(
    st.integers(-500, 2000),
    st.sampled_from([100.0, 10_000.0, 500_000.0]),
    st.sampled_from([0.5, 1.0]),
    st.booleans(),
)
def test_rotary_scores_depend_on_distance_only(shift, base, fraction, interleaved):
    """A common shift of all positions changes no product of a query with a key, and no norm."""
    options = {"base": base, "fraction": fraction, "interleaved": interleaved}
    chex.assert_trees_all_close(products(shift, **options), products(0, **options), atol=2e-3)
    x = normal(0, 1, 4, 2, 8)
    turned = turn(x, jnp.full((1, 4), shift, jnp.int32), **options)
    np.testing.assert_allclose(np.linalg.norm(turned, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-5)


def test_rotary_distance_matters():
    """The products are not constant: another distance gives another product."""
    x = normal(0, 1, 1, 1, 8)
    one, two = (np.asarray(turn(x, jnp.full((1, 1), p, jnp.int32))) for p in (1, 2))
    assert np.abs(one - two).max() > 0.1


def test_angles_are_float32():
    """In bfloat16 position 1001 is not 1000: only the result is rounded, never the angle."""
    x, positions = normal(0, 1, 2, 1, 8, dtype=jnp.bfloat16), jnp.array([[1000, 1001]])
    out = rotary(x, positions, frequencies(8))
    assert out.dtype == jnp.bfloat16
    chex.assert_trees_all_equal(out, rotary(x.astype(jnp.float32), positions, frequencies(8)).astype(jnp.bfloat16))
    assert sinusoidal(positions, 4).dtype == jnp.float32


def test_rotary_turns_no_more_than_the_head():
    """More pairs than there are features are an error with both numbers."""
    with pytest.raises(ValueError, match="5 pairs of features are more than head_dim 8 has"):
        rotary(jnp.zeros((1, 1, 1, 8)), jnp.zeros((1, 1), jnp.int32), frequencies(10))


def test_xpos_products_depend_on_distance_and_fade():
    """Queries grow and keys shrink with their position: only the distance is left, and far keys weigh less."""
    q, k = (normal(i, 1, 4, 2, 8) for i in range(2))

    def products(shift):
        at = jnp.asarray([[0, 1, 3, 10]]) + shift
        return jnp.einsum(
            "blhk,bshk->bhls",
            xpos_decay(q, at, base=20.0, sign=1),
            xpos_decay(k, at, base=20.0, sign=-1),
        )

    chex.assert_trees_all_close(products(37), products(0), rtol=1e-4, atol=1e-5)
    ones = jnp.ones((1, 4, 1, 8))
    at = jnp.asarray([[0, 1, 3, 10]])
    weights = jnp.einsum(
        "lk,sk->ls", xpos_decay(ones, at, base=20.0, sign=1)[0, :, 0], xpos_decay(ones, at, base=20.0, sign=-1)[0, :, 0]
    )
    assert (np.diff(weights[3]) > 0).all()


def test_the_ramp_of_yarn():
    """Pairs that turn less than once over the length are 0, those that turn 32 times 1, and it is monotone."""
    rates = frequencies(64)
    ramp = np.asarray(yarn_ramp(rates, 2048))
    turns = 2048 * np.asarray(rates) / (2 * np.pi)
    assert (ramp[turns < 1] == 0).all()
    assert (ramp[turns > 32] == 1).all()
    assert (np.diff(ramp) <= 0).all()
