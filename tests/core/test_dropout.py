"""Dropout: off without a key, unbiased with one, a pure function of it."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from transformer.core.arrays import drop_sequences, dropout

X = jnp.asarray(np.random.default_rng(0).normal(size=(50, 40)) + 3, jnp.float32)


def test_off():
    """No key or rate 0 returns the input itself."""
    assert dropout(X, 0.5, None) is X
    assert dropout(X, 0.0, jax.random.key(0)) is X


def test_drops_and_rescales():
    """Each element is zero or x / (1 - rate), zero about as often as the rate says."""
    out = np.asarray(dropout(X, 0.3, jax.random.key(0)))
    kept = out != 0
    assert 0.26 < 1 - kept.mean() < 0.34
    np.testing.assert_allclose(out[kept], np.asarray(X)[kept] / 0.7, rtol=1e-6)


def test_key_decides():
    """The same key drops the same elements, another key others; the gradient drops with them."""
    one, again, other = (dropout(X, 0.5, jax.random.key(seed)) for seed in (0, 0, 1))
    chex.assert_trees_all_equal(one, again)
    assert ((one == 0) != (other == 0)).mean() > 0.3
    gradient = jax.grad(lambda x: dropout(x, 0.5, jax.random.key(0)).sum())(X)
    np.testing.assert_array_equal(gradient, np.where(np.asarray(one) == 0, 0.0, 2.0))


def test_dtype():
    """bfloat16 stays bfloat16."""
    assert dropout(X.astype(jnp.bfloat16), 0.1, jax.random.key(0)).dtype == jnp.bfloat16


def test_bfloat16_keeps_its_mean():
    """1 - rate has no more than eight digits there, and would be off by up to a quarter of a per cent."""
    x = jnp.asarray(np.random.default_rng(0).uniform(1, 2, size=(400, 1000)), jnp.bfloat16)
    for rate in (0.1, 0.4):
        for out in (
            dropout(x, rate, jax.random.key(0)),
            drop_sequences(x[:, :, None], rate, jax.random.key(0))[..., 0],
        ):
            kept = np.asarray(out, np.float32) != 0
            ratio = np.asarray(out, np.float32)[kept].mean() / np.asarray(x, np.float32)[kept].mean()
            assert abs(ratio * (1 - rate) - 1) < 4e-4


def test_dropped_sequences_keep_their_mean():
    """Whole sequences are zero or divided by 1 - rate; over many keys the mean is the input. No key: the input."""
    key, x = jax.random.key(0), jnp.asarray(np.random.default_rng(0).normal(size=(500, 2, 3)) + 2, jnp.float32)
    assert drop_sequences(x, 0.3, None) is x
    out = np.asarray(drop_sequences(x, 0.3, key))
    kept = (out != 0).all((1, 2))
    assert (kept | (out == 0).all((1, 2))).all()
    np.testing.assert_allclose(out[kept], np.asarray(x)[kept] / 0.7, rtol=1e-5)
    keys = jax.random.split(key, 2000)
    mean = jax.vmap(lambda key: drop_sequences(x[:4], jnp.float32(0.3), key))(keys).mean(0)
    np.testing.assert_allclose(mean, x[:4], rtol=0.08)
