"""Positional encodings: sinusoids and rotations. Angles are float32 whatever the compute dtype."""

import math

import jax
import jax.numpy as jnp
from einops import rearrange


def sinusoidal(positions_BL: jax.Array, d_model: int, base: float = 10_000.0, *, interleaved: bool = True) -> jax.Array:
    """sin and cos interleaved: PE[2i] = sin(p/base^(2i/D)), PE[2i+1] = cos of the same.

    (Vaswani et al. 2017, section 3.5.) Not `interleaved`, all sines come before all cosines.

    Returns:
      (B, L, D) float32.
    """
    angles = positions_BL.astype(jnp.float32)[..., None] * frequencies(d_model, base)
    sin, cos = jnp.sin(angles), jnp.cos(angles)
    if not interleaved:
        return jnp.concatenate([sin, cos], -1)[..., :d_model]
    return rearrange(jnp.stack([sin, cos], -1), "... f two -> ... (f two)")[..., :d_model]


def frequencies(size: int, base: float = 10_000.0) -> jax.Array:
    """base^(-2i/size), the angle per position of each pair of features, (size / 2,) float32."""
    return base ** (-jnp.arange(0, size, 2, dtype=jnp.float32) / size)


def rotary(
    x_BLHK: jax.Array, positions_BL: jax.Array, frequencies_F: jax.Array, *, interleaved: bool = False
) -> jax.Array:
    """Rotate pairs of features by position · frequency (RoPE, Su et al. 2021, equation 34).

    Args:
      x_BLHK: queries or keys.
      positions_BL: (B or 1, L).
      frequencies_F: radians per position of F pairs, from the first feature on; other features are not rotated.
      interleaved: pair features (0, 1), (2, 3), … as in the paper; otherwise feature i with
        i + F, as in GPT-NeoX and Llama.

    Returns:
      The shape and dtype of `x_BLHK`.

    Raises:
      ValueError: there are more frequencies than pairs of features.
    """
    size = 2 * len(frequencies_F)
    if size > x_BLHK.shape[-1]:
        raise ValueError(f"rotary: {size // 2} pairs of features are more than head_dim {x_BLHK.shape[-1]} has")
    angles_BL1F = positions_BL.astype(jnp.float32)[:, :, None, None] * frequencies_F
    cos, sin = jnp.cos(angles_BL1F), jnp.sin(angles_BL1F)
    pairs = "... (f two) -> two ... f" if interleaved else "... (two f) -> two ... f"
    first, second = rearrange(x_BLHK[..., :size].astype(jnp.float32), pairs, two=2)
    rotated = jnp.stack([first * cos - second * sin, first * sin + second * cos])
    merge = "two ... f -> ... (f two)" if interleaved else "two ... f -> ... (two f)"
    return jnp.concatenate([rearrange(rotated, merge).astype(x_BLHK.dtype), x_BLHK[..., size:]], -1)


def yarn_ramp(frequencies_F: jax.Array, length: int, slow: float = 1.0, fast: float = 32.0) -> jax.Array:
    """0 for pairs that turn fewer than `slow` times over `length` tokens, 1 from `fast` turns on.

    (YaRN, Peng et al. 2023, equation 18.)
    """
    turns = length * frequencies_F / (2 * math.pi)
    return jnp.clip((turns - slow) / (fast - slow), 0.0, 1.0)


def xpos_decay(x_BLHK: jax.Array, positions_BL: jax.Array, *, base: float, sign: int) -> jax.Array:
    """x · ζ^(± position / base), one ζ for each pair of features i and i + K/2 (xPos, Sun Y. et al. 2022, equation 11).

    ζᵢ = (2i/K + γ) / (1 + γ) with γ = 0.4; with `sign` 1 for queries and -1 for keys the product
    depends on the distance alone.
    """
    head_dim = x_BLHK.shape[-1]
    zeta = (jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim + 0.4) / 1.4
    exponent_BL11 = sign * positions_BL.astype(jnp.float32)[:, :, None, None] / base
    factor = jnp.tile(zeta, 2) ** exponent_BL11
    return (x_BLHK.astype(jnp.float32) * factor).astype(x_BLHK.dtype)
