"""Causal depthwise convolutions over tokens, which may be packed, padded, or lie in the slots of a cache."""

import jax
import jax.numpy as jnp

from transformer.functional.masks import OwnBeams, Padding, Tokens


def convolve(x_BLX: jax.Array, kernel_WX: jax.Array, tokens: Tokens) -> jax.Array:
    """Σᵢ kernelᵢ ⊙ (x of the token i positions before, 0 where the document has none) (Primer, So et al. 2021).

    Args:
      x_BLX: features of tokens in the order of their positions.
      kernel_WX: W weights for each feature, that of the token itself first.
      tokens: padding counts as no token.
    """
    total = kernel_WX[0].astype(x_BLX.dtype) * x_BLX
    for i in range(1, min(len(kernel_WX), x_BLX.shape[1])):
        there_BL = _moved(tokens.positions, i) == tokens.positions - i
        there_BL &= jnp.arange(tokens.length) >= i
        if tokens.segments is not None:
            there_BL &= _moved(tokens.segments, i) == tokens.segments
        if tokens.valid is not None:
            there_BL &= _moved(tokens.valid, i)
        before = jnp.where(there_BL[..., None], _moved(x_BLX, i), jnp.zeros_like(x_BLX))
        total = total + kernel_WX[i].astype(x_BLX.dtype) * before
    return total


def convolve_slots(seen_BSX: jax.Array, kernel_WX: jax.Array, tokens: Tokens, slots: Tokens) -> jax.Array:
    """`convolve` of tokens that lie, with those before them, in the slots of a cache in any order; (B, L, X)."""
    offsets = tokens.positions[:, :, None] - slots.positions[:, None, :]
    inside = (offsets >= 0) & (offsets < len(kernel_WX)) & (Padding() & OwnBeams())(tokens, slots)[:, 0]
    picked = [(inside & (offsets == i)).astype(seen_BSX.dtype) @ seen_BSX for i in range(len(kernel_WX))]
    return (jnp.stack(picked) * kernel_WX[:, None, None].astype(seen_BSX.dtype)).sum(0)


def _moved(array_BL: jax.Array, by: int) -> jax.Array:
    return jnp.roll(array_BL, by, 1)
