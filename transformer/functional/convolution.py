"""Causal depthwise convolutions over tokens, which may be packed, padded, or lie in the slots of a cache."""

import jax
import jax.numpy as jnp

from transformer.functional.masks import OwnBeams, Padding, Tokens


def convolve(x_BLX: jax.Array, kernel_WX: jax.Array, tokens: Tokens) -> jax.Array:
    """Σᵢ kernelᵢ ⊙ (x of the token i positions before, 0 where the document has none) (Primer, So et al. 2021).

    Args:
      x_BLX: features of tokens in the order of their positions.
      kernel_WX: W weights for each feature, that of the token itself first.
      tokens: padding counts as no token, and keeps its place where it lies between tokens.
    """
    x32_BLX = x_BLX.astype(jnp.float32)
    total = kernel_WX[0] * x32_BLX
    for i in range(1, min(len(kernel_WX), x_BLX.shape[1])):
        there_BL = _moved(tokens.positions, i) == tokens.positions - i
        there_BL &= jnp.arange(tokens.length) >= i
        if tokens.segments is not None:
            there_BL &= _moved(tokens.segments, i) == tokens.segments
        if tokens.valid is not None:
            there_BL &= _moved(tokens.valid, i)
        before = jnp.where(there_BL[..., None], _moved(x32_BLX, i), jnp.zeros_like(x32_BLX))
        total = total + kernel_WX[i] * before
    return total.astype(x_BLX.dtype)


def convolve_slots(seen_BSX: jax.Array, kernel_WX: jax.Array, tokens: Tokens, slots: Tokens) -> jax.Array:
    """`convolve` of tokens that lie, with those before them, in the slots of a cache in any order; (B, L, X)."""
    offsets = tokens.distance_from(slots)
    inside = (offsets >= 0) & (offsets < len(kernel_WX)) & (Padding() & OwnBeams())(tokens, slots)[:, 0]
    picked = [(inside & (offsets == i)).astype(seen_BSX.dtype) @ seen_BSX for i in range(len(kernel_WX))]
    return (jnp.stack(picked).astype(jnp.float32) * kernel_WX[:, None, None]).sum(0).astype(seen_BSX.dtype)


def convolve_next(
    x_BLX: jax.Array, kernel_WX: jax.Array, before_BWX: jax.Array, tokens: Tokens
) -> tuple[jax.Array, jax.Array]:
    """(`convolve` of tokens that follow others, the latest W - 1 features with these).

    Args:
      x_BLX: features of the tokens in their order; padding may lie anywhere between them.
      kernel_WX: as in `convolve`.
      before_BWX: features of the W - 1 tokens before these, zeros where there are none.
      tokens: of a packed row, whose first document goes on from before.
    """
    width, L = len(kernel_WX), x_BLX.shape[1]
    order_BL = None  # real tokens first; a token alone is in order
    if tokens.valid is not None and L > 1:
        order_BL = jnp.argsort(~tokens.valid, axis=1, stable=True)

    def ordered(array: jax.Array, order: jax.Array | None) -> jax.Array:
        if order is None:
            return array
        order = jnp.broadcast_to(order, (len(array), L))
        return jnp.take_along_axis(array, order.reshape(*order.shape, *(1,) * (array.ndim - 2)), 1)

    segments = tokens.segments
    if segments is not None:
        segments = ordered(jnp.broadcast_to(segments, x_BLX.shape[:2]), order_BL)
    seen = jnp.concatenate([before_BWX.astype(x_BLX.dtype), ordered(x_BLX, order_BL)], 1)
    total = _weighted(seen, kernel_WX, None if segments is None else _alike(segments, width))
    if tokens.valid is None:
        return total, seen[:, L:]
    count_B1 = jnp.broadcast_to(tokens.valid.sum(1, keepdims=True), (len(x_BLX), 1))
    latest = jnp.take_along_axis(seen, (count_B1 + jnp.arange(width - 1))[..., None], 1)
    return total if order_BL is None else ordered(total, jnp.argsort(order_BL, axis=1)), latest


def _alike(segments_BL: jax.Array, width: int) -> jax.Array:
    """(W, B, L, 1), whether the token i before is of the same segment; what came before is of the first one's."""
    L = segments_BL.shape[1]
    known = jnp.concatenate([jnp.repeat(segments_BL[:, :1], width - 1, 1), segments_BL], 1)
    return jnp.stack([known[:, width - 1 - i : width - 1 - i + L] == segments_BL for i in range(width)])[..., None]


def _sum_of_rows(seen_BSX: jax.Array, kernel_WX: jax.Array, there: jax.Array | None) -> jax.Array:
    """Σᵢ kernelᵢ ⊙ (the row i before), for the rows from W - 1 on, (B, L, X); added in float32, rounded once."""
    first, *earlier = _rows(seen_BSX.astype(jnp.float32), len(kernel_WX), there)
    total = sum((kernel_WX[i] * row for i, row in enumerate(earlier, 1)), kernel_WX[0] * first)
    return total.astype(seen_BSX.dtype)


def _rows(seen_BSX: jax.Array, width: int, there: jax.Array | None) -> list[jax.Array]:
    L = seen_BSX.shape[1] - width + 1
    rows = [seen_BSX[:, width - 1 - i : width - 1 - i + L] for i in range(width)]
    return rows if there is None else [jnp.where(there[i], row, jnp.zeros_like(row)) for i, row in enumerate(rows)]


def _weighted_forward(seen_BSX, kernel_WX, there):
    return _sum_of_rows(seen_BSX, kernel_WX, there), (seen_BSX, kernel_WX, there)


def _weighted_backward(residuals, dy_BLX):
    # XLA on CPU takes three times as long for what it derives itself: a padded sum and a reduction for every weight.
    seen_BSX, kernel_WX, there = residuals
    width = len(kernel_WX)
    dy_BLX = dy_BLX.astype(jnp.float32)
    rows = _rows(seen_BSX.astype(jnp.float32), width, there)
    d_kernel = jnp.stack([(dy_BLX * row).sum((0, 1)) for row in rows])
    d_seen = jnp.zeros(seen_BSX.shape, jnp.float32)
    for i in range(width):
        dy = kernel_WX[i] * (dy_BLX if there is None else jnp.where(there[i], dy_BLX, jnp.zeros_like(dy_BLX)))
        d_seen = d_seen + jnp.pad(dy, ((0, 0), (width - 1 - i, i), (0, 0)))
    return d_seen.astype(seen_BSX.dtype), d_kernel.astype(kernel_WX.dtype), None


_weighted = jax.custom_vjp(_sum_of_rows)
_weighted.defvjp(_weighted_forward, _weighted_backward)


def _moved(array_BL: jax.Array, by: int) -> jax.Array:
    return jnp.roll(array_BL, by, 1)
