"""Attention by online softmax over blocks of keys: memory O(L), forward and backward.

(Rabe and Staats 2021; the backward pass recomputes the weights of a block from the stored
normalizers, as in Dao et al. 2022.) A block in which the mask allows nothing is not computed.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from einops import rearrange
from jax import lax
from jax.tree_util import Partial

from transformer.core.errors import ConfigError
from transformer.functional.attention import (
    NEVER,
    Attended,
    ScoreFunction,
    add_bias,
    attention_scores,
    change_scores,
    check_shapes,
    group_heads,
    grouped_product,
    split_groups,
)
from transformer.functional.biases import Bias
from transformer.functional.masks import Full, Mask, Tokens, allows
from transformer.functional.normalizers import Softmax


class Modifiers(NamedTuple):
    """What scores and weights depend on besides queries and keys, and has gradients."""

    bias: Bias | None
    scale: jax.Array
    sink_H: jax.Array | None
    score: Partial | None

    @classmethod
    def of(
        cls,
        size: int,
        bias: Bias | None = None,
        scale: float | jax.Array | None = None,
        score: ScoreFunction | None = None,
        weigh: Softmax | None = None,
    ) -> "Modifiers":
        """Those of attention with queries of a size, from its arguments."""
        if not isinstance(weigh, Softmax | None):
            raise ValueError(f"chunked attention: its weights are a softmax, not those of {weigh}; use attention")
        if any(map(callable, jax.tree.leaves(bias))):
            known = "jax.tree_util.register_dataclass"
            raise ConfigError(f"chunked attention: its bias is no pytree; make it a dataclass that {known} knows")
        scale = 1 / math.sqrt(size) if scale is None else scale
        score = score if score is None or isinstance(score, Partial) else Partial(score)
        return cls(bias, jnp.asarray(scale, jnp.float32), None if weigh is None else weigh.sink_H, score)

    def sink(self, num_kv_heads: int) -> jax.Array | None:
        """The sinks as (G, R, 1), float32."""
        return None if self.sink_H is None else self.sink_H.astype(jnp.float32).reshape(num_kv_heads, -1, 1)


class Sides(NamedTuple):
    """Who may attend to whom. The tokens are filled up to whole blocks."""

    mask: Mask
    queries: Tokens
    keys: Tokens


class Sizes(NamedTuple):
    """Tokens in a block, and in all without those that fill the last block."""

    query_block: int
    key_block: int
    num_queries: int
    num_keys: int


class _Block(NamedTuple):
    """A block of queries and a block of keys."""

    queries: Tokens
    keys: Tokens
    allowed: jax.Array
    """Where the mask allows, False for the tokens that only fill the last block."""


class _Softmax(NamedTuple):
    """The online softmax of a block of queries, over the keys read so far; all float32."""

    highest: jax.Array
    """The highest score, (B, G, R, L)."""
    total: jax.Array
    """Σ exp(score - highest), (B, G, R, L)."""
    mixed: jax.Array
    """Σ exp(score - highest) · value, (B, G, R, L, K)."""


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
    score: ScoreFunction | None = None,
    weigh: Softmax | None = None,
    block: int = 256,
) -> Attended:
    """The values and gradients of `attention` without the (L, S) arrays; the same arguments.

    Scores and weights are never formed, so they can be neither returned nor dropped.

    Args:
      score: what it depends on besides its arguments has gradients where it is a `jax.tree_util.Partial` of that.
      block: queries and keys per block. A shorter sequence is one block.

    Raises:
      ValueError: the shapes do not fit.
    """
    check_shapes(q_BLHK, k_BSGK, v_BSGK, queries, keys)
    modifiers = Modifiers.of(q_BLHK.shape[-1], bias, scale, score, weigh)
    sides = Sides(Full() if mask is None else mask, queries, keys)
    return in_blocks(_attend, q_BLHK, k_BSGK, v_BSGK, modifiers, sides, block)


def in_blocks(
    attend: Callable[..., jax.Array],
    q_BLHK: jax.Array,
    k_BSGK: jax.Array,
    v_BSGK: jax.Array,
    modifiers: Modifiers,
    sides: Sides,
    block: int,
) -> Attended:
    """What `attend` makes of queries, keys and values with their heads in front, filled up to whole blocks."""
    L, S, num_kv_heads = sides.queries.length, sides.keys.length, k_BSGK.shape[2]
    l, s = min(block, L), min(block, S)
    out = attend(
        _pad(split_groups(q_BLHK, num_kv_heads), l, axis=3),
        _pad(rearrange(k_BSGK, "b s g k -> b g s k"), s, axis=2),
        _pad(rearrange(v_BSGK, "b s g k -> b g s k"), s, axis=2),
        modifiers,
        sides._replace(queries=_pad_tokens(sides.queries, l), keys=_pad_tokens(sides.keys, s)),
        Sizes(l, s, L, S),
    )
    return Attended(rearrange(out, "b g r l k -> b l (g r) k")[:, :L])


def _pad(array, multiple: int, axis: int):
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, -array.shape[axis] % multiple)
    return jnp.pad(array, widths)


def _pad_tokens(tokens: Tokens, multiple: int) -> Tokens:
    return jax.tree.map(lambda a: _pad(a, multiple, a.ndim - 1), tokens)


def _slice(array, block_index, size: int, axis: int):
    return lax.dynamic_slice_in_dim(array, block_index * size, size, axis)


def _block(sides: Sides, sizes: Sizes, i, j, num_kv_heads: int) -> _Block:
    """Block i of the queries and block j of the keys."""
    first_query, first_key = i * sizes.query_block, j * sizes.key_block
    queries = sides.queries.block(first_query, sizes.query_block)
    keys = sides.keys.block(first_key, sizes.key_block)
    real_L = jnp.arange(sizes.query_block) < sizes.num_queries - first_query
    real_S = jnp.arange(sizes.key_block) < sizes.num_keys - first_key
    allowed = group_heads(allows(sides.mask, queries, keys), num_kv_heads)
    return _Block(queries, keys, allowed & real_L[:, None] & real_S)


def _scores(q, k, modifiers: Modifiers, block: _Block) -> jax.Array:
    scores = change_scores(attention_scores(q, k, scale=modifiers.scale), modifiers.score, block.queries, block.keys)
    return add_bias(scores, modifiers.bias, block.queries, block.keys)


def forward(q, k, v, modifiers: Modifiers, sides: Sides, sizes: Sizes):
    """The output, from one block of queries after the other, and what `backward` needs."""
    num_kv_heads = k.shape[1]
    # As if they depended on the queries: a scan over layers would compute the masks of all blocks before the first
    # layer otherwise, and keep them.
    sides, _ = lax.optimization_barrier((sides, q))

    def query_block(i):
        q_block = _slice(q, i, sizes.query_block, 3)

        def key_block(j, softmax):
            block = _block(sides, sizes, i, j, num_kv_heads)

            def update(softmax):
                k_block, v_block = (_slice(x, j, sizes.key_block, 2) for x in (k, v))
                scores = _scores(q_block, k_block, modifiers, block)
                return _updated(softmax, jnp.where(block.allowed, scores, NEVER), v_block)

            return lax.cond(block.allowed.any(), update, lambda softmax: softmax, softmax)

        start = _nothing_read(q_block.shape[:-1], v.shape[-1], modifiers.sink(num_kv_heads))
        highest, total, mixed = lax.fori_loop(0, k.shape[2] // sizes.key_block, key_block, start)
        total = jnp.where(total == 0, 1.0, total)
        return (mixed / total[..., None]).astype(v.dtype), highest + jnp.log(total)

    out, log_normalizer = lax.map(query_block, jnp.arange(q.shape[3] // sizes.query_block))
    out = rearrange(out, "n b g r l k -> b g r (n l) k")
    return out, (q, k, v, modifiers, sides, out, rearrange(log_normalizer, "n b g r l -> b g r (n l)"))


def _nothing_read(rows: tuple[int, ...], value_size: int, sink: jax.Array | None) -> _Softmax:
    """Before the first key. A sink counts as a score whose value is 0."""
    mixed = jnp.zeros((*rows, value_size), jnp.float32)
    if sink is None:
        return _Softmax(jnp.full_like(mixed[..., 0], NEVER), jnp.zeros_like(mixed[..., 0]), mixed)
    return _Softmax(jnp.broadcast_to(sink, rows), jnp.ones_like(mixed[..., 0]), mixed)


def _updated(softmax: _Softmax, scores: jax.Array, v_block: jax.Array) -> _Softmax:
    """With the scores and values of one more block of keys."""
    highest = jnp.maximum(softmax.highest, scores.max(-1))
    # As in masked_softmax: 0 stands in for the maximum of a row that allows nothing.
    reference = jnp.where(highest == NEVER, 0.0, highest)
    weights, decay = jnp.exp(scores - reference[..., None]), jnp.exp(softmax.highest - reference)
    mixed = grouped_product(weights.astype(v_block.dtype), v_block)
    return _Softmax(highest, softmax.total * decay + weights.sum(-1), softmax.mixed * decay[..., None] + mixed)


def backward(sizes: Sizes, residuals, dout):
    """The gradients of all arguments but the sides, from one block of keys after the other."""
    q, k, v, modifiers, sides, out, log_normalizer = residuals
    num_kv_heads = k.shape[1]
    dot_BGRL = output_dot(out, dout)

    def key_block(summed, j):
        k_block, v_block = (_slice(x, j, sizes.key_block, 2) for x in (k, v))

        def query_block(i, gradients):
            rows = functools.partial(_slice, block_index=i, size=sizes.query_block, axis=3)
            block = _block(sides, sizes, i, j, num_kv_heads)

            def update(gradients):
                dq, dk, dv, dmodifiers = gradients
                scores_of = functools.partial(_scores, block=block)
                of_queries = rows(log_normalizer), rows(dot_BGRL), rows(dout)
                dq_new, dk_new, dv_new, dmodifiers_new = _block_gradients(
                    scores_of, rows(q), k_block, v_block, modifiers, block.allowed, *of_queries
                )
                dq = lax.dynamic_update_slice_in_dim(dq, rows(dq) + dq_new, i * sizes.query_block, 3)
                return dq, dk + dk_new, dv + dv_new, jax.tree.map(_add, dmodifiers, dmodifiers_new)

            return lax.cond(block.allowed.any(), update, lambda gradients: gradients, gradients)

        dq, dmodifiers = summed
        start = (dq, jnp.zeros_like(k_block, jnp.float32), jnp.zeros_like(v_block, jnp.float32), dmodifiers)
        dq, dk, dv, dmodifiers = lax.fori_loop(0, q.shape[3] // sizes.query_block, query_block, start)
        return (dq, dmodifiers), (dk, dv)

    start = (jnp.zeros_like(q, jnp.float32), jax.tree.map(jnp.zeros_like, modifiers))
    (dq, dmodifiers), (dk, dv) = lax.scan(key_block, start, jnp.arange(k.shape[2] // sizes.key_block))
    dk, dv = (rearrange(x, "n b g s k -> b g (n s) k") for x in (dk, dv))
    if modifiers.sink_H is not None:
        dmodifiers = dmodifiers._replace(sink_H=sink_gradient(modifiers, log_normalizer, dot_BGRL))
    return dq.astype(q.dtype), dk.astype(k.dtype), dv.astype(v.dtype), dmodifiers, None


def output_dot(out: jax.Array, dout: jax.Array) -> jax.Array:
    """out · dout of each query, (B, G, R, L): its weights times their gradients, summed over all keys."""
    return (dout.astype(jnp.float32) * out.astype(jnp.float32)).sum(-1)


def sink_gradient(modifiers: Modifiers, log_normalizer: jax.Array, dot_BGRL: jax.Array) -> jax.Array:
    """The gradient of the sinks, (H,): their weight takes from all others, and their value is 0.

    Rows that fill a block have no gradient.
    """
    sink = modifiers.sink(dot_BGRL.shape[1])
    assert sink is not None
    assert modifiers.sink_H is not None
    dsink_GR = -(jnp.exp(sink - log_normalizer) * dot_BGRL).sum((0, 3))
    return dsink_GR.reshape(-1).astype(modifiers.sink_H.dtype)


def _block_gradients(scores_of, q, k, v, modifiers, allowed, log_normalizer, dot, dout):
    """The gradients of queries, keys, values and modifiers that come from one block of queries and one of keys.

    `dot`, out · dout of each query, is its weights times their gradients, summed over all keys (Dao et al. 2022,
    appendix B.2).
    """
    scores, pull_back = jax.vjp(scores_of, q, k, modifiers)
    weights = jnp.exp(jnp.where(allowed, scores - log_normalizer[..., None], NEVER))
    dv = jnp.einsum("bgrls,bgrlk->bgsk", weights.astype(dout.dtype), dout, preferred_element_type=jnp.float32)
    dweights = grouped_product(dout, rearrange(v, "b g s k -> b g k s"))
    dq, dk, dmodifiers = pull_back(weights * (dweights - dot[..., None]))
    return dq.astype(jnp.float32), dk.astype(jnp.float32), dv, dmodifiers


def _add(total, new):
    """The sum of gradients; integers of a bias, such as a table of positions, have none."""
    return total if new.dtype == jax.dtypes.float0 else total + new


_attend = jax.custom_vjp(lambda *args: forward(*args)[0], nondiff_argnums=(5,))
_attend.defvjp(forward, backward)
