"""Scaled dot-product attention, exact."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import chex
import jax
import jax.numpy as jnp
from einops import rearrange
from jax.ad_checkpoint import checkpoint_name

from transformer.core.arrays import MODEL
from transformer.functional.biases import Bias
from transformer.functional.masks import MaskFunction, Tokens, allows

NEVER = float(jnp.finfo(jnp.float32).min)
OF_KERNEL = "attention.kernel"
"""Name of what a kernel of a device returns, which rematerialization keeps where it keeps products."""
ScoreFunction = Callable[[jax.Array, Tokens, Tokens], jax.Array]
"""Maps scaled scores (B, H, L, S), float32, with their queries and keys to the scores used (Dong J. et al. 2024)."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SoftCapped:
    """c · tanh(s / c), a function of scores that kernels know."""

    cap: float = field(metadata={"static": True})

    def __call__(self, scores: jax.Array, queries: Tokens | None, keys: Tokens | None) -> jax.Array:
        return self.cap * jnp.tanh(scores / self.cap)


class Weigh(Protocol):
    """Returns float32 weights of the shape of the scores, 0 where the mask is False."""

    def __call__(self, scores: jax.Array, allowed: jax.Array | None, queries: Tokens, keys: Tokens) -> jax.Array: ...


class Attended(NamedTuple):
    """What attention returns. Scores and weights are None where they are never formed."""

    out: jax.Array
    """(B, L, H, K) in the dtype of the values."""
    scores: jax.Array | None = None
    """score(scale · q·kᵀ), before bias and mask, (B, H, L, S) float32."""
    weights: jax.Array | None = None
    """What the values were multiplied by, dropout included, (B, H, L, S) float32."""


def check_shapes(q_BLHK, k_BSGK, v_BSGK, queries: Tokens, keys: Tokens) -> None:
    """Raise one line where the arrays of an attention do not fit together."""
    chex.assert_rank([q_BLHK, k_BSGK, v_BSGK], 4)
    (B, L, H, K), (_, S, G, _) = q_BLHK.shape, k_BSGK.shape
    if k_BSGK.shape[0] != B or k_BSGK.shape[3] != K or v_BSGK.shape[:3] != (B, S, G):
        raise ValueError(f"attention: query {q_BLHK.shape}, key {k_BSGK.shape} and value {v_BSGK.shape} do not fit")
    if H % G:
        raise ValueError(f"attention: {H} query heads are not a multiple of {G} key-value heads")
    if queries.length != L or keys.length != S:
        raise ValueError(f"attention: {L} queries and {S} keys, but positions for {queries.length} and {keys.length}")


def split_groups(q_BLHK: jax.Array, num_kv_heads: int) -> jax.Array:
    """(B, L, H, K) to (B, G, H/G, L, K): the query heads that share a key-value head side by side."""
    return rearrange(q_BLHK, "b l (g r) k -> b g r l k", g=num_kv_heads)


def attention_scores(q_BGRLK, k_BGSK, *, scale) -> jax.Array:
    """scale · q·k, in float32, (B, G, H/G, L, S)."""
    return grouped_product(q_BGRLK, rearrange(k_BGSK, "b g s k -> b g k s")) * scale


def change_scores(scores, score: ScoreFunction | None, queries: Tokens, keys: Tokens) -> jax.Array:
    """The function of scaled scores (B, G, H/G, L, S), called with (B, H, L, S)."""
    return scores if score is None else group_heads(score(_heads_of(scores), queries, keys), scores.shape[1])


def add_bias(scores: jax.Array, bias: Bias | None, queries: Tokens, keys: Tokens) -> jax.Array:
    """Scores and a bias, which is added to the *scaled* product, as in ALiBi and T5."""
    return scores if bias is None else scores + group_heads(bias(queries, keys), scores.shape[1])


def _heads_of(x_BGRLS: jax.Array) -> jax.Array:
    """(B, H, L, S)."""
    return rearrange(x_BGRLS, "b g r l s -> b (g r) l s")


def grouped_product(rows_BGRLX: jax.Array, matrix_BGXY: jax.Array) -> jax.Array:
    """rows · matrix with one matrix for the R heads of a group, (B, G, R, L, Y) float32.

    The heads of a group are rows of one product: XLA on CPU runs the five-axis form 1.3 times slower. Sequences
    and groups share an axis, but not where devices divide them.
    """
    # Written out: a call of core's helper would lengthen the walk of a token (tests/testing/test_walk.py).
    if MODEL in jax.sharding.get_abstract_mesh().auto_axes:
        rows = rearrange(rows_BGRLX, "b g r l x -> b g (r l) x")
        out = jnp.einsum("bgmx,bgxy->bgmy", rows, matrix_BGXY, preferred_element_type=jnp.float32)
        return rearrange(out, "b g (r l) y -> b g r l y", r=rows_BGRLX.shape[2])
    _, G, R, _, _ = rows_BGRLX.shape
    rows = rearrange(rows_BGRLX, "b g r l x -> (b g) (r l) x")
    matrices = rearrange(matrix_BGXY, "b g x y -> (b g) x y")
    out = jnp.einsum("nmx,nxy->nmy", rows, matrices, preferred_element_type=jnp.float32)
    return rearrange(out, "(b g) (r l) y -> b g r l y", g=G, r=R)


def group_heads(array_BHLS: jax.Array, num_kv_heads: int) -> jax.Array:
    """A mask or bias that broadcasts to (B, H, L, S), made to broadcast to (B, G, H/G, L, S)."""
    array_BHLS = array_BHLS.reshape((1,) * (4 - array_BHLS.ndim) + array_BHLS.shape)
    if array_BHLS.shape[1] == 1:
        return array_BHLS[:, None]
    return rearrange(array_BHLS, "b (g r) l s -> b g r l s", g=num_kv_heads)


def attention(
    q_BLHK: jax.Array,
    k_BSGK: jax.Array,
    v_BSGK: jax.Array,
    *,
    queries: Tokens,
    keys: Tokens,
    mask: MaskFunction | None = None,
    bias: Bias | None = None,
    scale: float | jax.Array | None = None,
    score: ScoreFunction | None = None,
    weigh: Weigh | None = None,
    drop_weights: Callable[[jax.Array], jax.Array] | None = None,
) -> Attended:
    """weigh(score(scale · q·kᵀ) + bias, where the mask allows) · v (Vaswani et al. 2017, equation 1).

    Args:
      q_BLHK: queries; H is a multiple of G (grouped heads, Ainslie et al. 2023).
      k_BSGK: keys.
      v_BSGK: values; their head size may differ from that of the keys.
      queries: positions and segments of the queries; a cached step passes its own position here.
      keys: the same of the keys.
      mask: True attends; None attends everywhere. A row with nothing to attend to gives zeros.
      bias: added to the scaled scores.
      scale: a number or traced scalar; None is 1/√K.
      score: what scaled scores become before the bias is added, by their values, heads and tokens.
      weigh: how scores become weights (`transformer.functional.normalizers`); None: softmax.
      drop_weights: dropout, a function of the weights.

    Returns:
      The output, and the scores and weights behind it. What nobody reads costs nothing under `jax.jit`.

    Raises:
      ValueError: the shapes do not fit.
    """
    check_shapes(q_BLHK, k_BSGK, v_BSGK, queries, keys)
    num_kv_heads = k_BSGK.shape[2]
    scale = 1 / math.sqrt(q_BLHK.shape[-1]) if scale is None else scale
    k_BGSK, v_BGSK = (rearrange(x, "b s g k -> b g s k") for x in (k_BSGK, v_BSGK))
    products = attention_scores(split_groups(q_BLHK, num_kv_heads), k_BGSK, scale=scale)
    scored = change_scores(products, score, queries, keys)
    scores = _named(add_bias(scored, bias, queries, keys), "scores")
    allowed = None if mask is None else group_heads(allows(mask, queries, keys), num_kv_heads)
    weights = masked_softmax(scores, allowed) if weigh is None else weigh(scores, allowed, queries, keys)
    weights_BGRLS = _named(weights, "pattern")
    if drop_weights is not None:
        weights_BGRLS = drop_weights(weights_BGRLS)
    out = grouped_product(weights_BGRLS.astype(v_BGSK.dtype), v_BGSK).astype(v_BGSK.dtype)
    out_BLHK = rearrange(out, "b g r l k -> b l (g r) k")
    return Attended(out_BLHK, _heads_of(scored), _heads_of(weights_BGRLS))


def masked_softmax(scores: jax.Array, allowed: jax.Array | None, sink: jax.Array | None = None) -> jax.Array:
    """Softmax over the last axis where `allowed`; a row with nothing allowed is all zeros.

    Values and gradients are finite for every mask. `sink` is one more score, whose weight goes to no value.
    """
    if allowed is None and sink is None:
        return jax.nn.softmax(scores)
    scores = scores if allowed is None else jnp.where(allowed, scores, NEVER)
    highest = scores.max(-1, keepdims=True)
    highest = jax.lax.stop_gradient(highest if sink is None else jnp.maximum(highest, sink))
    # A row that attends to nothing has the maximum NEVER; with 0 in its place every exponential is 0.
    reference = jnp.where(highest == NEVER, 0.0, highest)
    exponentials = jnp.exp(scores - reference)
    total = exponentials.sum(-1, keepdims=True)
    total = total if sink is None else total + jnp.exp(sink - reference)
    return exponentials / jnp.where(total == 0, 1.0, total)


def _named(x_BGRLS: jax.Array, name: str) -> jax.Array:
    """Marked as (B, H, L, S)."""
    return group_heads(checkpoint_name(_heads_of(x_BGRLS), name), x_BGRLS.shape[1])
