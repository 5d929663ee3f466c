"""Activation functions that `jax.nn` lacks or computes more slowly."""

import math

import jax
import jax.numpy as jnp


def swish(x: jax.Array, beta: float = 1.0) -> jax.Array:
    """x·σ(βx) (Ramachandran et al. 2017)."""
    return x * jax.nn.sigmoid(beta * x)


def squared_relu(x: jax.Array) -> jax.Array:
    """max(0, x)² (So et al. 2021)."""
    return jnp.square(jax.nn.relu(x))


def solu(x: jax.Array) -> jax.Array:
    """x ⊙ softmax(x) over the features (Elhage et al. 2022); the softmax is computed in float32."""
    return x * jax.nn.softmax(x.astype(jnp.float32)).astype(x.dtype)


def gelu(x: jax.Array) -> jax.Array:
    """x·Φ(x), exact (Hendrycks and Gimpel 2016).

    Written with erf: `jax.nn.gelu` lowers to erfc, which XLA on CPU computes more slowly.
    """
    return 0.5 * x * (1 + jax.lax.erf(x * math.sqrt(0.5)))


def gelu_tanh(x: jax.Array) -> jax.Array:
    """The tanh approximation of GELU, as in GPT-2."""
    return 0.5 * x * (1 + jnp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
