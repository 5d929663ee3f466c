"""Biases added to attention scores. They are called as masks are and may differ between heads."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import jax
import jax.numpy as jnp

from transformer.functional.masks import NOWHERE, Causal, OwnBeams, Padding, Segment, Tokens


class Bias(Protocol):
    """Called with queries and keys, returns float32 that broadcasts to (B, H, L, S).

    A bias is a pytree: its arrays may be parameters, and every attention function differentiates it.
    """

    def __call__(self, queries: Tokens, keys: Tokens) -> jax.Array: ...


def alibi_slopes(num_heads: int) -> list[float]:
    """One slope per head: 2^(-8h/H) for a power of two H (Press et al. 2021, section 3).

    Other head counts take the slopes of the power of two below, then every second slope of the
    power of two above, as the authors' code does.
    """
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2.0 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2.0 ** (-8 * h / (2 * power)) for h in range(1, 2 * power + 1, 2)]
    return slopes + between[: num_heads - power]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LinearDistance:
    """-slope · |query position - key position| (ALiBi, Press et al. 2021)."""

    slopes_H: jax.Array
    """(H,) float32, positive."""

    def __call__(self, queries, keys):
        return -self.slopes_H[:, None, None] * jnp.abs(_distance(queries, keys))[:, None]


def _distance(queries: Tokens, keys: Tokens) -> jax.Array:
    """Query position minus key position, (B or 1, L, S) float32."""
    return queries.distance_from(keys).astype(jnp.float32)


def buckets(distance: jax.Array, num_buckets: int, max_distance: int, causal: bool) -> jax.Array:
    """The bucket, int32, of distances (query position minus key position) (T5, Raffel et al. 2019, section 2.1).

    Half of the buckets hold one distance each, the others ranges that grow logarithmically up to
    `max_distance`. Unless `causal`, half of all buckets are for keys after the query.
    """
    distance = distance.astype(jnp.int32)
    first = jnp.int32(0)
    if not causal:
        num_buckets //= 2
        first = jnp.where(distance < 0, num_buckets, 0)
        distance = jnp.abs(distance)
    distance = jnp.maximum(distance, 0)
    exact = num_buckets // 2
    share = jnp.log(jnp.maximum(distance, 1) / exact) / math.log(max_distance / exact)
    far = exact + (share * (num_buckets - exact)).astype(jnp.int32)
    return first + jnp.where(distance < exact, distance, jnp.minimum(far, num_buckets - 1))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Bucketed:
    """One number for each bucket of distances and each head (T5)."""

    table_XH: jax.Array
    """(buckets, H) float32."""
    max_distance: int = field(metadata={"static": True})
    causal: bool = field(metadata={"static": True})

    def __call__(self, queries, keys):
        index_BLS = buckets(_distance(queries, keys), len(self.table_XH), self.max_distance, self.causal)
        return jnp.moveaxis(self.table_XH[index_BLS], -1, 1)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LogDistance:
    """-r₁ log(1 + r₂ |i - j|) with positive r₁ and r₂ (KERPLE, Chi et al. 2022, section 4)."""

    first_H: jax.Array
    second_H: jax.Array

    def __call__(self, queries, keys):
        distance = jnp.abs(_distance(queries, keys))[:, None]
        first, second = (r[:, None, None] for r in (self.first_H, self.second_H))
        return -first * jnp.log1p(second * distance)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Interpolated:
    """A small network of log(1 + c·|i - j|) / log(1 + c·max(i, T)) (FIRE, Li S. et al. 2023, equation 7).

    i is the position of the query and T a trained threshold; one hidden layer with ReLU.
    """

    slope: jax.Array
    threshold: jax.Array
    into_X: jax.Array
    bias_X: jax.Array
    out_XH: jax.Array

    def __call__(self, queries, keys):
        c = jnp.abs(self.slope)
        reach = jnp.maximum(queries.positions.astype(jnp.float32), jnp.abs(self.threshold))
        share_BLS = jnp.log1p(c * jnp.abs(_distance(queries, keys))) / jnp.log1p(c * reach + 1e-6)[:, :, None]
        hidden = jax.nn.relu(share_BLS[..., None] * self.into_X + self.bias_X)
        return jnp.moveaxis(hidden @ self.out_XH, -1, 1)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ByDistance:
    """A number for each query and each distance from -limit to limit; distances beyond count as the limit.

    (Shaw et al. 2018, equation 5, where the numbers are products of queries and trained vectors.)
    """

    scores_BLHX: jax.Array
    """(B, L, H, 2 limit + 1), the first for keys `limit` positions before the query."""

    def __call__(self, queries, keys):
        limit = self.scores_BLHX.shape[-1] // 2
        own = self.scores_BLHX[:, queries.indices]
        index_BLS = _clipped(queries, keys, limit)
        index_BLHS = jnp.broadcast_to(index_BLS[:, :, None], (own.shape[0], *own.shape[1:3], index_BLS.shape[-1]))
        return jnp.swapaxes(jnp.take_along_axis(own, index_BLHS, -1), 1, 2)


def _clipped(queries: Tokens, keys: Tokens, limit: int) -> jax.Array:
    """Key position minus query position from -limit to limit, counted from 0, (B or 1, L, S) int32."""
    return jnp.clip(-_distance(queries, keys), -limit, limit).astype(jnp.int32) + limit


def mixed_by_distance(weights_BHLS: jax.Array, table_XV: jax.Array, queries: Tokens, keys: Tokens) -> jax.Array:
    """Σ weight · vector of the distance, (B, L, H, V) float32 (Shaw et al. 2018, the second term of equation 3).

    Args:
      weights_BHLS: weights of the keys.
      table_XV: a vector for each distance from -limit to limit, as in `ByDistance`.
      queries: the queries of the weights.
      keys: their keys.
    """
    rows = jnp.meshgrid(*map(jnp.arange, weights_BHLS.shape[:3]), indexing="ij", sparse=True)
    places_BHLS = _clipped(queries, keys, len(table_XV) // 2)[:, None]
    shares_BHLX = jnp.zeros((*weights_BHLS.shape[:3], len(table_XV)), weights_BHLS.dtype)
    shares_BHLX = shares_BHLX.at[(*(row[..., None] for row in rows), places_BHLS)].add(weights_BHLS)
    return jnp.einsum("bhlx,xv->blhv", shares_BHLX, table_XV)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Cumulated:
    """-|c of the query - c of the key| for a cumulative sum c of negative numbers over the tokens."""

    queries_BLH: jax.Array
    keys_BSH: jax.Array

    def __call__(self, queries, keys):
        c_BLH, c_BSH = self.queries_BLH[:, queries.indices], self.keys_BSH[:, keys.indices]
        return -jnp.abs(jnp.moveaxis(c_BLH, -1, 1)[..., None] - jnp.moveaxis(c_BSH, -1, 1)[:, :, None])


def add_contextual(
    own_BLHX: jax.Array, in_slots: bool, scores_BHLS: jax.Array, queries: Tokens, keys: Tokens
) -> jax.Array:
    """Scores plus the query's number for the distance of each key (CoPE, Golovneva et al. 2024, equations 3 to 5).

    The distance is the sum of σ(score) over the keys from this one up to the query, at most X - 1; between
    whole distances the numbers are interpolated linearly.

    Args:
      own_BLHX: the numbers of every query, one for each whole distance 0 … X - 1.
      in_slots: whether the keys lie in the slots of a cache, in any order.
      scores_BHLS: scaled scores.
      queries: their queries.
      keys: their keys.
    """
    behind = (Causal() & Padding() & Segment() & OwnBeams())(queries, keys)
    gates = jax.nn.sigmoid(scores_BHLS) * behind.astype(jnp.float32)
    if in_slots:
        later_BSS = (keys.positions[:, :, None] >= keys.positions[:, None, :]).astype(jnp.float32)
        distance = gates @ later_BSS[:, None]
    else:
        distance = jnp.flip(jnp.cumsum(jnp.flip(gates, -1), -1), -1)
    distance = jnp.minimum(distance, own_BLHX.shape[-1] - 1)
    own_BHLX = jnp.moveaxis(own_BLHX, 2, 1)
    below = jnp.floor(distance)
    low, high = (
        jnp.take_along_axis(own_BHLX, jnp.minimum(place, own_BHLX.shape[-1] - 1).astype(jnp.int32), -1)
        for place in (below, below + 1)
    )
    return scores_BHLS + low + (distance - below) * (high - low)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Remapped:
    """A bias called with other positions."""

    bias: Bias
    remap: Callable[[jax.Array], jax.Array]
    """The function of positions (B or 1, L) that gives them, a pytree."""

    def __call__(self, queries, keys):
        return self.bias(*(t._replace(positions=self.remap(t.positions)) for t in (queries, keys)))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class OfTokens:
    """Another bias, and 0 for keys that are no tokens, at position `NOWHERE`."""

    bias: Bias

    def __call__(self, queries, keys):
        nowhere = keys.positions == NOWHERE
        # Distances from there are no numbers that a bias has a value and a gradient for.
        there = keys._replace(positions=jnp.where(nowhere, 0, keys.positions))
        return jnp.where(nowhere[:, None, None, :], 0.0, self.bias(queries, there))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Scaled:
    """A bias times a factor: `scale · (q·k + bias)` is `scale · q·k + Scaled(bias, scale)`."""

    bias: Bias
    factor: float | jax.Array

    def __call__(self, queries, keys):
        return self.factor * self.bias(queries, keys)
