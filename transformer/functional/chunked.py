"""Attention by online softmax over blocks of keys: memory O(L), forward and backward.

(Rabe and Staats 2021; the backward pass recomputes the weights of a block from the stored
normalizers, as in Dao et al. 2022.) A block in which the mask allows nothing is not computed.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from einops import rearrange
from jax import lax

from transformer.functional.attention import (
    SOFTMAX,
    Attended,
    add_bias,
    attention_scores,
    check_shapes,
    group_heads,
    grouped_product,
    split_groups,
)
from transformer.functional.biases import Bias
from transformer.functional.masks import Full, Mask, Tokens
from transformer.functional.weights import NEVER, Softmax


def chunked_attention(
    q_BLHK: jax.Array,
    k_BSGK: jax.Array,
    v_BSGK: jax.Array,
    *,
    queries: Tokens,
    keys: Tokens,
    mask: Mask | None = None,
    bias: Bias | None = None,
    scale: float | jax.Array | None = None,
    score: Callable[[jax.Array], jax.Array] | None = None,
    weigh: Softmax = SOFTMAX,
    block: int = 256,
) -> Attended:
    """The values and gradients of `attention` without the (L, S) arrays; the same arguments.

    Scores and weights are never formed, so they can be neither returned nor dropped.

    Args:
      block: queries and keys per block. A shorter sequence is one block.

    Raises:
      ValueError: the shapes do not fit.
    """
    check_shapes(q_BLHK, k_BSGK, v_BSGK, queries, keys)
    L, S, num_kv_heads = queries.length, keys.length, k_BSGK.shape[2]
    scale = 1 / math.sqrt(q_BLHK.shape[-1]) if scale is None else scale
    l, s = min(block, L), min(block, S)
    out = _attend(
        _pad(split_groups(q_BLHK, num_kv_heads), l, axis=3),
        _pad(rearrange(k_BSGK, "b s g k -> b g s k"), s, axis=2),
        _pad(rearrange(v_BSGK, "b s g k -> b g s k"), s, axis=2),
        (bias, jnp.asarray(scale, jnp.float32), weigh.sink_H),
        (Full() if mask is None else mask, _pad_tokens(queries, l), _pad_tokens(keys, s)),
        (l, s, L, S, score),
    )
    return Attended(rearrange(out, "b g r l k -> b l (g r) k")[:, :L])


def _pad(array, multiple: int, axis: int):
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, -array.shape[axis] % multiple)
    return jnp.pad(array, widths)


def _pad_tokens(tokens: Tokens, multiple: int) -> Tokens:
    indices = jnp.arange(tokens.length + -tokens.length % multiple, dtype=jnp.int32)
    rest = tokens._replace(indices=None)
    return jax.tree.map(lambda a: _pad(a, multiple, a.ndim - 1), rest)._replace(indices=indices)


def _slice(array, block_index, size: int, axis: int):
    return lax.dynamic_slice_in_dim(array, block_index * size, size, axis)


def _allowed(context, sizes, i, j, num_kv_heads: int):
    """The mask of query block i and key block j, without the tokens that only fill the last block."""
    mask, queries, keys = context
    l, s, num_queries, num_keys, _ = sizes
    q_tokens, k_tokens = queries.block(i * l, l), keys.block(j * s, s)
    real = (q_tokens.indices < num_queries)[:, None] & (k_tokens.indices < num_keys)
    return group_heads(mask(q_tokens, k_tokens), num_kv_heads) & real, q_tokens, k_tokens


def _scores(q, k, modifiers, q_tokens, k_tokens, score):
    bias, scale, _ = modifiers
    return add_bias(attention_scores(q, k, scale=scale, score=score), bias, q_tokens, k_tokens)


def _sink(modifiers, num_kv_heads: int):
    """The sinks as (G, R, 1), or None."""
    sink_H = modifiers[2]
    return None if sink_H is None else sink_H.astype(jnp.float32).reshape(num_kv_heads, -1, 1)


def _forward(q, k, v, modifiers, context, sizes):
    l, s, _, _, score = sizes
    num_kv_heads = k.shape[1]

    def query_block(i):
        q_block = _slice(q, i, l, 3)

        def key_block(j, carry):
            allowed, q_tokens, k_tokens = _allowed(context, sizes, i, j, num_kv_heads)

            def update(carry):
                highest, total, mixed = carry
                scores = _scores(q_block, _slice(k, j, s, 2), modifiers, q_tokens, k_tokens, score)
                scores = jnp.where(allowed, scores, NEVER)
                new_highest = jnp.maximum(highest, scores.max(-1))
                # As in masked_softmax: 0 stands in for the maximum of a row that allows nothing.
                reference = jnp.where(new_highest == NEVER, 0.0, new_highest)
                weights, decay = jnp.exp(scores - reference[..., None]), jnp.exp(highest - reference)
                values = _slice(v, j, s, 2)
                new = grouped_product(weights.astype(v.dtype), values)
                return new_highest, total * decay + weights.sum(-1), mixed * decay[..., None] + new

            return lax.cond(allowed.any(), update, lambda carry: carry, carry)

        rows = q_block.shape[:-1]
        start = (jnp.full(rows, NEVER), jnp.zeros(rows), jnp.zeros((*rows, v.shape[-1])))
        if (sink := _sink(modifiers, num_kv_heads)) is not None:
            start = (jnp.broadcast_to(sink, rows), jnp.ones(rows), start[2])
        highest, total, mixed = lax.fori_loop(0, k.shape[2] // s, key_block, start)
        total = jnp.where(total == 0, 1.0, total)
        return (mixed / total[..., None]).astype(v.dtype), highest + jnp.log(total)

    out, log_normalizer = lax.map(query_block, jnp.arange(q.shape[3] // l))
    out = rearrange(out, "n b g r l k -> b g r (n l) k")
    return out, (q, k, v, modifiers, context, out, rearrange(log_normalizer, "n b g r l -> b g r (n l)"))


def _add(total, new):
    """The sum of gradients; integers of a bias, such as a table of positions, have none."""
    return total if new.dtype == jax.dtypes.float0 else total + new


def _backward(sizes, residuals, dout):
    q, k, v, modifiers, context, out, log_normalizer = residuals
    l, s, _, _, score = sizes
    num_kv_heads = k.shape[1]
    dot_BGRL = (dout.astype(jnp.float32) * out.astype(jnp.float32)).sum(-1)

    def key_block(carry, j):
        k_block, v_block = _slice(k, j, s, 2), _slice(v, j, s, 2)

        def query_block(i, carry):
            allowed, q_tokens, k_tokens = _allowed(context, sizes, i, j, num_kv_heads)

            def update(carry):
                dq, dk, dv, dmodifiers = carry
                scores, pull_back = jax.vjp(
                    lambda q, k, modifiers: _scores(q, k, modifiers, q_tokens, k_tokens, score),
                    _slice(q, i, l, 3),
                    k_block,
                    modifiers,
                )
                normalizer, dot = (_slice(x, i, l, 3)[..., None] for x in (log_normalizer, dot_BGRL))
                weights = jnp.exp(jnp.where(allowed, scores - normalizer, NEVER))
                dout_block = _slice(dout, i, l, 3)
                dv_new = jnp.einsum(
                    "bgrls,bgrlk->bgsk", weights.astype(dout.dtype), dout_block, preferred_element_type=jnp.float32
                )
                dweights = grouped_product(dout_block, rearrange(v_block, "b g s k -> b g k s"))
                dq_new, dk_new, dmodifiers_new = pull_back(weights * (dweights - dot))
                dq_new = _slice(dq, i, l, 3) + dq_new.astype(jnp.float32)
                return (
                    lax.dynamic_update_slice_in_dim(dq, dq_new, i * l, 3),
                    dk + dk_new.astype(jnp.float32),
                    dv + dv_new,
                    jax.tree.map(_add, dmodifiers, dmodifiers_new),
                )

            return lax.cond(allowed.any(), update, lambda carry: carry, carry)

        dq, dmodifiers = carry
        start = (dq, jnp.zeros(k_block.shape), jnp.zeros(v_block.shape), dmodifiers)
        dq, dk, dv, dmodifiers = lax.fori_loop(0, q.shape[3] // l, query_block, start)
        return (dq, dmodifiers), (dk, dv)

    start = (jnp.zeros(q.shape), jax.tree.map(jnp.zeros_like, modifiers))
    (dq, dmodifiers), (dk, dv) = lax.scan(key_block, start, jnp.arange(k.shape[2] // s))
    dk, dv = (rearrange(x, "n b g s k -> b g (n s) k") for x in (dk, dv))
    if (sink := _sink(modifiers, num_kv_heads)) is not None:
        # The weight of the sink takes from all others, and its value is 0. Filling rows have no gradient.
        dsink_GR = -(jnp.exp(sink - log_normalizer) * dot_BGRL).sum((0, 3))
        dmodifiers = (*dmodifiers[:2], dsink_GR.reshape(-1).astype(modifiers[2].dtype))
    return dq.astype(q.dtype), dk.astype(k.dtype), dv.astype(v.dtype), dmodifiers, None


_attend = jax.custom_vjp(lambda *args: _forward(*args)[0], nondiff_argnums=(5,))
_attend.defvjp(_forward, _backward)
