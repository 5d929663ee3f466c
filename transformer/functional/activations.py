"""Activation functions."""

import math

import jax
import jax.numpy as jnp

relu = jax.nn.relu
silu = jax.nn.silu
sigmoid = jax.nn.sigmoid


def gelu(x: jax.Array) -> jax.Array:
    """x·Φ(x), exact (Hendrycks and Gimpel 2016).

    Written with erf: `jax.nn.gelu` lowers to erfc, which XLA on CPU computes more slowly.
    """
    return 0.5 * x * (1 + jax.lax.erf(x * math.sqrt(0.5)))


def gelu_tanh(x: jax.Array) -> jax.Array:
    """The tanh approximation of GELU, as in GPT-2."""
    return 0.5 * x * (1 + jnp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def identity(x: jax.Array) -> jax.Array:
    return x
