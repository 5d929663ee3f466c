"""Normalization over features, or over tokens and features. Statistics are float32 whatever the compute dtype."""

import jax
import jax.numpy as jnp

from transformer.functional.names import named


def layer_norm(
    x: jax.Array, *, scale_D=None, bias_D=None, eps: float = 1e-5, eps_outside: bool = False, cast_first: bool = False
) -> jax.Array:
    """scale · (x - mean) / √(variance + eps) + bias (Ba, Kiros and Hinton 2016, equation 4).

    Args:
      x: (…, D), any float dtype; the result has the same.
      scale_D: (D,); None: 1.
      bias_D: (D,); None: 0.
      eps: keeps the quotient finite where the variance is 0.
      eps_outside: divide by √variance + eps instead.
      cast_first: round to the dtype of `x` before scale and bias, not after.
    """
    x32 = x.astype(jnp.float32)
    centred = x32 - x32.mean(-1, keepdims=True)
    out = centred * _inverse_root((centred * centred).mean(-1, keepdims=True), eps, eps_outside)
    return _affine(_cast(out, x, cast_first), scale_D, bias_D).astype(x.dtype)


def sequence_layer_norm(x_BLD: jax.Array, valid_BL=None, *, scale_D=None, bias_D=None, eps: float = 1e-5) -> jax.Array:
    """`layer_norm` with one mean and variance over all valid tokens and features of a sequence; `valid_BL` is bool."""
    x32 = x_BLD.astype(jnp.float32)
    weights = jnp.ones((1, x32.shape[1], 1)) if valid_BL is None else valid_BL[..., None].astype(jnp.float32)
    count = jnp.maximum(weights.sum((1, 2), keepdims=True), 1.0) * x32.shape[2]
    centred = x32 - (x32 * weights).sum((1, 2), keepdims=True) / count
    variance = (centred * centred * weights).sum((1, 2), keepdims=True) / count
    return _affine(centred * _inverse_root(variance, eps, False), scale_D, bias_D).astype(x_BLD.dtype)


def rms_norm(
    x: jax.Array,
    *,
    scale_D=None,
    eps: float = 1e-6,
    fraction: float = 1.0,
    eps_outside: bool = False,
    cast_first: bool = False,
) -> jax.Array:
    """scale · x / √(mean x² + eps) (Zhang and Sennrich 2019, equation 4); arguments as in `layer_norm`.

    `fraction`: the mean is taken over this share of the features, from the first (pRMSNorm, section 4.2).
    """
    x32 = x.astype(jnp.float32)
    seen = x32[..., : max(1, round(x.shape[-1] * fraction))]
    out = x32 * _inverse_root((seen * seen).mean(-1, keepdims=True), eps, eps_outside)
    return _affine(_cast(out, x, cast_first), scale_D, None).astype(x.dtype)


def group_norm(x: jax.Array, num_groups: int, *, scale_D=None, bias_D=None, eps: float = 1e-5) -> jax.Array:
    """`layer_norm` of each of `num_groups` equal parts of the features of a token (Wu and He 2018)."""
    parts = layer_norm(x.astype(jnp.float32).reshape(*x.shape[:-1], num_groups, -1), eps=eps)
    return _affine(parts.reshape(x.shape), scale_D, bias_D).astype(x.dtype)


def unit_norm(x: jax.Array, *, scale=None, eps: float = 1e-6) -> jax.Array:
    """scale · x / ‖x‖ with one scale for all features (ScaleNorm, Nguyen and Salazar 2019, equation 5)."""
    x32 = x.astype(jnp.float32)
    size = named(jnp.sqrt((x32 * x32).sum(-1, keepdims=True) + eps * eps), "scale")
    return _affine(x32 / size, scale, None).astype(x.dtype)


def _inverse_root(square, eps: float, eps_outside: bool):
    # 1e-30 keeps the gradient of the root finite where all features are equal.
    inverse = 1 / (jnp.sqrt(square + 1e-30) + eps) if eps_outside else jax.lax.rsqrt(square + eps)
    return named(inverse, "scale")


def _cast(out, x, cast_first: bool):
    return out.astype(x.dtype).astype(jnp.float32) if cast_first else out


def _affine(x, scale_D, bias_D):
    x = x if scale_D is None else x * scale_D.astype(jnp.float32)
    return x if bias_D is None else x + bias_D.astype(jnp.float32)
