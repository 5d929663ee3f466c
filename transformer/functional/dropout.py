"""Dropout as a pure function of a key."""

import jax
import jax.numpy as jnp


def dropout(x: jax.Array, rate: float, key: jax.Array | None) -> jax.Array:
    """Zero each element with probability `rate` and divide the others by 1 - rate (Srivastava et al. 2014).

    No key, or rate 0, returns `x`.
    """
    if key is None or rate == 0:
        return x
    return jnp.where(
        jax.random.bernoulli(key, 1 - rate, x.shape), x / jnp.asarray(1 - rate, x.dtype), jnp.zeros_like(x)
    )
