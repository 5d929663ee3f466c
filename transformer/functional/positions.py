"""Positional encodings: sinusoids and rotations. Angles are float32 whatever the compute dtype."""

import jax
import jax.numpy as jnp
from einops import rearrange


def sinusoidal(positions_BL: jax.Array, d_model: int, base: float = 10_000.0) -> jax.Array:
    """sin and cos interleaved: PE[2i] = sin(p/base^(2i/D)), PE[2i+1] = cos of the same.

    (Vaswani et al. 2017, section 3.5.)

    Returns:
      (B, L, D) float32.
    """
    frequencies = base ** (-jnp.arange(0, d_model, 2, dtype=jnp.float32) / d_model)
    angles = positions_BL.astype(jnp.float32)[..., None] * frequencies
    return rearrange(jnp.stack([jnp.sin(angles), jnp.cos(angles)], -1), "... f two -> ... (f two)")[..., :d_model]


def rotary(
    x_BLHK: jax.Array,
    positions_BL: jax.Array,
    *,
    base: float = 10_000.0,
    fraction: float = 1.0,
    interleaved: bool = False,
) -> jax.Array:
    """Rotate pairs of features by position · base^(-2i/K) (RoPE, Su et al. 2021, equation 34).

    Args:
      x_BLHK: queries or keys.
      positions_BL: (B or 1, L).
      base: the slowest wavelength is about 2π · base.
      fraction: the share of the head's features that is rotated, from the first (GPT-NeoX).
      interleaved: pair features (0, 1), (2, 3), … as in the paper; otherwise feature i with
        i + K/2, as in GPT-NeoX and Llama.

    Returns:
      The shape and dtype of `x_BLHK`.

    Raises:
      ValueError: the rotated size is odd, zero, or larger than the head.
    """
    size = int(x_BLHK.shape[-1] * fraction)
    if size < 2 or size % 2 or size > x_BLHK.shape[-1]:
        raise ValueError(
            f"rotary: {fraction} of head_dim {x_BLHK.shape[-1]} is {size} features, not an even number up to it"
        )
    frequencies = base ** (-jnp.arange(0, size, 2, dtype=jnp.float32) / size)
    angles_BL1F = positions_BL.astype(jnp.float32)[:, :, None, None] * frequencies
    cos, sin = jnp.cos(angles_BL1F), jnp.sin(angles_BL1F)
    pairs = "... (f two) -> two ... f" if interleaved else "... (two f) -> two ... f"
    first, second = rearrange(x_BLHK[..., :size].astype(jnp.float32), pairs, two=2)
    rotated = jnp.stack([first * cos - second * sin, first * sin + second * cos])
    merge = "two ... f -> ... (f two)" if interleaved else "two ... f -> ... (two f)"
    return jnp.concatenate([rearrange(rotated, merge).astype(x_BLHK.dtype), x_BLHK[..., size:]], -1)
