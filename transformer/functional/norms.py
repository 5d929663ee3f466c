"""Normalization over features, or over tokens and features. Statistics are float32 whatever the compute dtype."""

import jax
import jax.numpy as jnp


def layer_norm(x: jax.Array, *, scale_D=None, bias_D=None, eps: float = 1e-5) -> jax.Array:
    """scale · (x - mean) / √(variance + eps) + bias (Ba, Kiros and Hinton 2016, equation 4)."""
    x32 = x.astype(jnp.float32)
    centred = x32 - x32.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    return _affine(centred * jax.lax.rsqrt(variance + eps), scale_D, bias_D).astype(x.dtype)


def sequence_layer_norm(x_BLD: jax.Array, valid_BL=None, *, scale_D=None, bias_D=None, eps: float = 1e-5) -> jax.Array:
    """`layer_norm` with one mean and variance for all features of the valid tokens of a sequence."""
    x32 = x_BLD.astype(jnp.float32)
    weights = jnp.ones((1, x32.shape[1], 1)) if valid_BL is None else valid_BL[..., None].astype(jnp.float32)
    count = jnp.maximum(weights.sum((1, 2), keepdims=True), 1.0) * x32.shape[2]
    centred = x32 - (x32 * weights).sum((1, 2), keepdims=True) / count
    variance = (centred * centred * weights).sum((1, 2), keepdims=True) / count
    return _affine(centred * jax.lax.rsqrt(variance + eps), scale_D, bias_D).astype(x_BLD.dtype)


def rms_norm(x: jax.Array, *, scale_D=None, eps: float = 1e-6) -> jax.Array:
    """scale · x / √(mean x² + eps) (Zhang and Sennrich 2019, equation 4)."""
    x32 = x.astype(jnp.float32)
    return _affine(x32 * jax.lax.rsqrt((x32 * x32).mean(-1, keepdims=True) + eps), scale_D, None).astype(x.dtype)


def _affine(x, scale_D, bias_D):
    x = x if scale_D is None else x * scale_D.astype(jnp.float32)
    return x if bias_D is None else x + bias_D.astype(jnp.float32)
