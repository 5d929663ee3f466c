"""Normalization over the feature axis. Statistics are float32 whatever the compute dtype."""

import jax
import jax.numpy as jnp


def layer_norm(x: jax.Array, *, scale_D=None, bias_D=None, eps: float = 1e-5) -> jax.Array:
    """scale · (x - mean) / √(variance + eps) + bias (Ba, Kiros and Hinton 2016, equation 4)."""
    x32 = x.astype(jnp.float32)
    centred = x32 - x32.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    return _affine(centred * jax.lax.rsqrt(variance + eps), scale_D, bias_D).astype(x.dtype)


def rms_norm(x: jax.Array, *, scale_D=None, eps: float = 1e-6) -> jax.Array:
    """scale · x / √(mean x² + eps) (Zhang and Sennrich 2019, equation 4)."""
    x32 = x.astype(jnp.float32)
    return _affine(x32 * jax.lax.rsqrt((x32 * x32).mean(-1, keepdims=True) + eps), scale_D, None).astype(x.dtype)


def _affine(x, scale_D, bias_D):
    x = x if scale_D is None else x * scale_D.astype(jnp.float32)
    return x if bias_D is None else x + bias_D.astype(jnp.float32)
