"""Dropout as a pure function of a key."""

import jax
import jax.numpy as jnp


def dropout(x: jax.Array, rate: float, key: jax.Array | None) -> jax.Array:
    """Zero each element with probability `rate` and divide the others by 1 - rate (Srivastava et al. 2014).

    Without a key, or with rate 0, returns `x`.
    """
    if key is None or rate == 0:
        return x
    return jnp.where(
        jax.random.bernoulli(key, 1 - rate, x.shape), x / jnp.asarray(1 - rate, x.dtype), jnp.zeros_like(x)
    )


def drop_sequences(x_BLD: jax.Array, rate: float | jax.Array, key: jax.Array | None) -> jax.Array:
    """Zero whole sequences with probability `rate` and divide the others by 1 - rate.

    On the branch of a residual connection this is stochastic depth (Huang et al. 2016). Without a key, returns `x`.
    """
    if key is None:
        return x_BLD
    keep = jax.random.bernoulli(key, 1 - rate, (x_BLD.shape[0], 1, 1))
    return jnp.where(keep, x_BLD / jnp.asarray(1 - rate, x_BLD.dtype), jnp.zeros_like(x_BLD))
