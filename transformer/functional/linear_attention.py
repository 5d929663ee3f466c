"""Linear attention as a recurrence over blocks of tokens: time and memory O(L).

Where a weight is a product φ(q)·φ(k), all a query needs of the tokens before it is the sum Σ φ(k) vᵀ over
them (Katharopoulos et al. 2020, equations 18 to 20; with decay Sun Y. et al. 2023, equation 7). Within
a block every pair is computed, as in the chunks of the latter.
"""

import math

import jax
import jax.numpy as jnp
from einops import rearrange
from jax import lax

from transformer.functional.attention import (
    Attended,
    attention_scores,
    check_shapes,
    group_heads,
    grouped_product,
    split_groups,
)
from transformer.functional.masks import Mask, Padding, Tokens, allows, conjuncts
from transformer.functional.normalizers import LinearWeigh


def recurrent_attention(
    q_BLHK: jax.Array,
    k_BLGK: jax.Array,
    v_BLGK: jax.Array,
    *,
    tokens: Tokens,
    mask: Mask,
    scale: float | jax.Array | None = None,
    weigh: LinearWeigh,
    block: int = 64,
) -> Attended:
    """The values and gradients of `attention` of tokens to each other, without the (L, L) arrays.

    Args:
      q_BLHK: queries.
      k_BLGK: keys.
      v_BLGK: values.
      tokens: those of queries and keys alike; a document's tokens follow each other, and their positions grow.
      mask: causal; it may also exclude padding and other documents.
      scale: factor on q·k, a number or traced scalar; None: 1/√K.
      weigh: how scores become weights.
      block: tokens per block. A shorter sequence is one block.

    Raises:
      ValueError: the shapes do not fit, or the mask is not `directed` and `transitive`.
    """
    check_shapes(q_BLHK, k_BLGK, v_BLGK, tokens, tokens)
    if not (mask.directed and mask.transitive):
        raise ValueError(f"recurrent attention: under {mask} a token sees less than those before it; use attention")
    L, G, block = tokens.length, k_BLGK.shape[2], min(block, tokens.length)
    scale = 1 / math.sqrt(q_BLHK.shape[-1]) if scale is None else scale
    q, k, v = (x.astype(jnp.float32) for x in (q_BLHK, k_BLGK, v_BLGK))
    # An additional value of 1 sums the weights. Tokens that fill up the last block have values of 0.
    v = jnp.concatenate([v, jnp.ones((*v.shape[:-1], 1), v.dtype)], -1)
    q_BGRLK, k_BGLK, v_BGLK = split_groups(q, G), *(rearrange(x, "b l g k -> b g l k") for x in (k, v))

    def weights(queries: Tokens, keys: Tokens) -> jax.Array:
        """The factor on each product φ(q)·φ(k), (B or 1, G or 1, R or 1, L, S)."""
        distance = jnp.abs(queries.distance_from(keys))[:, None, None]
        return jnp.where(group_heads(allows(mask, queries, keys), G), weigh.fading(distance, G), 0.0)

    def turn(carry, blocks):
        sums_BGRKV, before = carry
        (q, k, v), tokens, placed = blocks
        last = placed.block(block - 1, 1)._replace(valid=None)
        out = grouped_product(attention_scores(q, k, scale=scale) * weights(tokens, tokens), v)
        out = out + scale * (q @ sums_BGRKV) * weights(tokens, before)
        faded_BGRKL = jnp.swapaxes(k, -1, -2)[:, :, None] * weights(last, tokens)
        return (sums_BGRKV * weights(last, before) + faded_BGRKL @ v[:, :, None], last), out

    # What is carried on is of the last real token, wherever the padding behind it has its place.
    padded = any(isinstance(one, Padding) for one in conjuncts(mask))
    placed = tokens.as_before() if padded else tokens
    sums = jnp.zeros((*q_BGRLK.shape[:3], q.shape[-1], v.shape[-1]), jnp.float32)
    blocks = (
        tuple(_cut(x, block, axis=-2) for x in (q_BGRLK, k_BGLK, v_BGLK)),
        *(_cut_tokens(each, block) for each in (tokens, placed)),
    )
    start = (sums, placed.block(0, 1)._replace(valid=None))
    _, out_NBGRLV = lax.scan(jax.checkpoint(turn, prevent_cse=False), start, blocks)
    out = rearrange(out_NBGRLV, "n b g r l v -> b (n l) (g r) v")[:, :L]
    out, total = out[..., :-1], out[..., -1:]
    out = out / jnp.where(total == 0, 1.0, total) if weigh.normalizes else out
    return Attended(out.astype(v_BLGK.dtype))


def _cut(x: jax.Array, block: int, axis: int) -> jax.Array:
    """(blocks, …, block, …), filled up with zeros after the last token."""
    axis %= x.ndim
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, -x.shape[axis] % block)
    shape = (*x.shape[:axis], -1, block, *x.shape[axis + 1 :])
    return jnp.moveaxis(jnp.pad(x, widths).reshape(shape), axis, 0)


def _cut_tokens(tokens: Tokens, block: int) -> Tokens:
    return jax.tree.map(lambda a: _cut(a, block, axis=-1), tokens)
