"""Sparse patterns of attention by position: strides, blocks, columns, tokens that see all (`mixers.attention.sparsity`
combines them)."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from transformer.functional.masks import Mask, Tokens


@dataclass(frozen=True)
class Strides(Mask):
    """A query attends to keys a multiple of `stride` positions away (Child et al. 2019)."""

    stride: int

    def __call__(self, queries, keys):
        return queries.distance_from(keys)[:, None] % self.stride == 0


@dataclass(frozen=True)
class Blocks(Mask):
    """A query attends to its own block of `size` positions and to `neighbours` blocks on each side."""

    size: int
    neighbours: int

    def __call__(self, queries, keys):
        return jnp.abs(_blocks(queries, self.size, -1) - _blocks(keys, self.size, -2)) <= self.neighbours


@dataclass(frozen=True)
class Columns(Mask):
    """Every query attends to the last `width` of each `stride` positions (Child et al. 2019)."""

    stride: int
    width: int

    def __call__(self, queries, keys):
        return keys.positions[:, None, None, :] % self.stride >= self.stride - self.width


@dataclass(frozen=True)
class First(Mask):
    """Tokens at positions below `count` attend to all and are attended to by all (Beltagy et al. 2020)."""

    count: int

    def __call__(self, queries, keys):
        return (queries.positions[:, None, :, None] < self.count) | (keys.positions[:, None, None, :] < self.count)


@dataclass(frozen=True)
class RandomBlocks(Mask):
    """A query attends to a random `share` of blocks, fixed by `seed` and the numbers of the two blocks."""

    size: int
    share: float
    seed: int

    def __call__(self, queries, keys):
        query, key = (b.astype(jnp.uint32) for b in (_blocks(queries, self.size, -1), _blocks(keys, self.size, -2)))
        mixed = _mix(_mix(query + jnp.uint32(self.seed % 2**32)) ^ key)
        return mixed.astype(jnp.float32) < self.share * 2.0**32


def _blocks(tokens: Tokens, size: int, axis: int) -> jax.Array:
    """Numbers of blocks, (B or 1, 1, L, 1) with `axis` -1, (B or 1, 1, 1, L) with -2."""
    return jnp.expand_dims(tokens.positions[:, None] // size, axis)


def _mix(x: jax.Array) -> jax.Array:
    """A hash of uint32 in which every bit of the argument changes about half of the result's (MurmurHash3)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)
