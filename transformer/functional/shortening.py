"""A sequence shortened to means of neighbouring tokens, and lengthened again."""

import jax
import jax.numpy as jnp

from transformer.functional.masks import Tokens


def shortened(x_BLD: jax.Array, tokens: Tokens, factor: int, *, causal: bool) -> tuple[jax.Array, Tokens]:
    """(B, ⌈L / factor⌉, D) means over `factor` tokens, padding left out, and their own `Tokens`, at positions 0, 1, …

    If `causal`, each group ends with the token at a multiple of `factor` (Nawrot et al. 2021, "shift right by
    k - 1"), so that this token and those after it may read the mean; otherwise it begins with that token.
    """
    valid_BL = jnp.ones((1, tokens.length), jnp.bool) if tokens.valid is None else tokens.valid
    sums_BXD = _blocks(x_BLD * valid_BL[..., None].astype(x_BLD.dtype), factor, causal=causal).sum(2)
    counts_BX = _blocks(valid_BL, factor, causal=causal).sum(2)
    means_BXD = sums_BXD / jnp.maximum(counts_BX, 1)[..., None].astype(x_BLD.dtype)
    places = Tokens.at(tokens.positions[:, ::factor] // factor, valid=None if tokens.valid is None else counts_BX > 0)
    return means_BXD, places


def lengthened(x_BXD: jax.Array, factor: int, length: int) -> jax.Array:
    """Repeats each vector `factor` times, (B, length, D)."""
    return jnp.repeat(x_BXD, factor, axis=1)[:, :length]


def _blocks(x_BLX: jax.Array, factor: int, *, causal: bool) -> jax.Array:
    """(B, ⌈L / factor⌉, factor, …), with zeros before the first token or after the last."""
    count, before = -(-x_BLX.shape[1] // factor), factor - 1 if causal else 0
    behind = max(0, count * factor - before - x_BLX.shape[1])
    padded = jnp.pad(x_BLX, ((0, 0), (before, behind), *((0, 0),) * (x_BLX.ndim - 2)))[:, : count * factor]
    return padded.reshape(len(padded), count, factor, *padded.shape[2:])
