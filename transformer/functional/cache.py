"""The cache of a decoder: what each layer remembers of the tokens read so far.

What that is, is the mixer's: keys and values in slots, a state of fixed size, or nothing.
A slot has a position and a flag that says whether it holds a token, so masks and biases work on
slots as on any keys: sequences of one batch may have prompts of different lengths, a cache
shorter than the sequence is a ring of the latest tokens, and the beams of a search are a tree in
which every token is kept once.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import jax
import jax.numpy as jnp
from jax import lax

from transformer.functional.masks import Tokens

Grow = Callable[[jax.Array, int], jax.Array]
"""Maps (array, axis of its slots) to the array with more slots, which are empty, or with fewer."""


class Memory(Protocol):
    """What one sublayer of a decoder remembers of the tokens read so far: a pytree that its mixer makes and reads."""

    can_rewind: ClassVar[bool]
    """Whether the latest tokens can be forgotten again, because each has a slot of its own."""

    def resized(self, grow: Grow) -> "Memory":
        """With another number of slots."""
        ...

    def branched(self, count: int) -> "Memory":
        """For `count` beams that all continue what was read."""
        ...

    def chosen(self, parents_BW: jax.Array) -> "Memory":
        """The memory of the beams that continue the given ones."""
        ...


class Slots:
    """A memory with a slot for every token: beams share the slots of the tokens before they part."""

    can_rewind: ClassVar[bool] = True

    def branched(self, count: int) -> Self:
        return self

    def chosen(self, parents_BW: jax.Array) -> Self:
        return self


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class KeyValue(Slots):
    """Keys and values of one layer, each in the shape in which it is multiplied, sequences and heads in one axis.

    XLA on CPU would copy any other shape at every step.
    """

    keys_XKS: jax.Array
    """(B · G, K, S)."""
    values_XSK: jax.Array
    """(B · G, S, K)."""
    convolved: dict[str, jax.Array] = field(default_factory=dict)
    """What is convolved, by the name of the part of attention that does it: (B, S, X) before its convolution."""

    def resized(self, grow: Grow) -> "KeyValue":
        convolved = {name: grow(array_BSX, 1) for name, array_BSX in self.convolved.items()}
        return KeyValue(grow(self.keys_XKS, 2), grow(self.values_XSK, 1), convolved)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Inputs(Slots):
    """What a layer has read of each token."""

    inputs_BSX: Any
    """An array (B, S, X), or several by name."""

    def resized(self, grow: Grow) -> "Inputs":
        return Inputs(jax.tree.map(lambda array_BSX: grow(array_BSX, 1), self.inputs_BSX))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """A state whose size does not depend on the number of tokens."""

    arrays: Any
    """Arrays (B, …), or in a search (B, W, …)."""
    can_rewind: ClassVar[bool] = False

    def resized(self, grow: Grow) -> "State":
        return self

    def branched(self, count: int) -> "State":
        return State(jax.tree.map(lambda array: jnp.repeat(array[:, None], count, 1), self.arrays))

    def chosen(self, parents_BW: jax.Array) -> "State":
        def own(array: jax.Array) -> jax.Array:
            return jax.vmap(lambda beams, parents: beams[parents])(array, parents_BW)

        return State(jax.tree.map(own, self.arrays))


class Cache(NamedTuple):
    """The cache of all layers of a decoder."""

    layers: tuple[dict[str, Memory], ...]
    """What the sublayers of each layer remember, by name. Under `hourglass` a single entry, the embedded tokens, which
    every step reads again."""
    tokens: Tokens
    """Positions of the slots (B, S), `valid` where a slot holds a token, and in a search its `beams`, each of which
    is continued by one token at a time."""
    written: jax.Array | None
    """Slots filled so far, the same for all sequences, int32; None where each sequence fills slots of its own
    (`slots_of`)."""
    next_position_B: jax.Array
    """(B,) position of each sequence's next token, int32."""
    source: tuple[KeyValue, ...] = ()
    """Keys and values of the source, for each layer that attends to one."""
    source_tokens: Tokens | None = None
    """Tokens of the source."""

    @property
    def capacity(self) -> int:
        """Number of slots."""
        return self.tokens.length

    @property
    def num_beams(self) -> int:
        """Beams of each sequence; 1 outside of a search."""
        return 1 if self.tokens.beams is None else self.tokens.beams.shape[1]


Reader = Callable[..., tuple[jax.Array, Cache]]
"""Maps (tokens (B, L), cache) to (logits (B, L, V), cache)."""


def empty_tokens(batch_size: int, capacity: int) -> Tokens:
    """Slots without tokens."""
    shape = (batch_size, capacity)
    return Tokens(jnp.zeros(shape, jnp.int32), jnp.arange(capacity, dtype=jnp.int32), valid=jnp.zeros(shape, jnp.bool))


def next_tokens(cache: Cache, valid_BL: jax.Array) -> Tokens:
    """Tokens that follow those in the cache: one after the other, or in a search one at the end of each beam.

    Raises:
      ValueError: there is not one token for each beam.
    """
    beams = cache.tokens.beams
    if beams is None:
        steps_BL = jnp.cumsum(valid_BL, axis=1, dtype=jnp.int32)
        return Tokens.at(cache.next_position_B[:, None] + jnp.maximum(steps_BL - 1, 0), valid=valid_BL)
    B, W, _ = beams.shape
    if valid_BL.shape[1] != W:
        raise ValueError(f"cache: {valid_BL.shape[1]} tokens for {W} beams; each beam is continued by one")
    tokens = Tokens.at(jnp.broadcast_to(cache.next_position_B[:, None], (B, W)), valid=valid_BL)
    return tokens._replace(beams=jnp.broadcast_to(jnp.eye(W, dtype=jnp.bool), (B, W, W)))


def slots_of(new: Tokens, capacity: int, written: jax.Array | None, sinks: int = 0) -> jax.Array:
    """The slots of new tokens: a scalar, the first free slot of every sequence, or (B, L), one for each token.

    A sequence with slots of its own keeps its first `sinks` tokens and its latest real tokens, each at its position
    modulo the other slots, so that the cache may be a ring; other tokens get the slot `capacity`, which does not exist.
    """
    if written is not None:
        return written
    assert new.valid is not None
    last_B1 = jnp.where(new.valid, new.positions, -1).max(1, keepdims=True)
    first_BL, others = new.positions < sinks, max(capacity - sinks, 1)
    kept_BL = new.valid & (first_BL | (new.positions > last_B1 - others))
    slots_BL = jnp.where(first_BL, new.positions, sinks + (new.positions - sinks) % others)
    return jnp.where(kept_BL, slots_BL, capacity)


def resized(cache: Cache, capacity: int) -> Cache:
    """The cache grown or cut to `capacity` slots, no fewer than were written; added slots are empty."""

    def grow(array: jax.Array, axis: int) -> jax.Array:
        more = [(0, (capacity - cache.capacity) * (i == axis), 0) for i in range(array.ndim)]
        return lax.pad(array, jnp.zeros((), array.dtype), more)

    positions, valid, beams = cache.tokens.positions, cache.tokens.valid, cache.tokens.beams
    assert valid is not None
    tokens = Tokens(grow(positions, 1), jnp.arange(capacity, dtype=jnp.int32), valid=grow(valid, 1))
    tokens = tokens if beams is None else tokens._replace(beams=grow(beams, 2))
    return _with(cache, lambda memory: memory.resized(grow))._replace(tokens=tokens)


def _with(cache: Cache, change: Callable[[Memory], Memory]) -> Cache:
    """The cache with every memory changed."""
    return cache._replace(layers=tuple({name: change(one) for name, one in layer.items()} for layer in cache.layers))


def with_beams(cache: Cache, count: int, length: int, more: int) -> Cache:
    """The cache of `count` beams that all continue the `length` tokens of this one, by up to `more` tokens each."""
    written = min(length, cache.capacity)  # a ring has fewer slots
    cache = _with(resized(cache, written + count * more), lambda memory: memory.branched(count))
    beams = jnp.ones((len(cache.next_position_B), count, cache.capacity), jnp.bool)
    return cache._replace(tokens=cache.tokens._replace(beams=beams), written=jnp.int32(written))


def select_beams(cache: Cache, parents_BW: jax.Array) -> Cache:
    """The cache whose beams continue the given ones; several may continue the same."""
    assert cache.tokens.beams is not None
    beams = jnp.take_along_axis(cache.tokens.beams, parents_BW[:, :, None], 1)
    cache = _with(cache, lambda memory: memory.chosen(parents_BW))
    return cache._replace(tokens=cache.tokens._replace(beams=beams))


def rewind(cache: Cache, next_position_B: jax.Array) -> Cache:
    """The cache without the tokens at `next_position_B` and later. Needs a cache started with `ahead` > 0."""
    assert cache.written is None
    assert cache.tokens.valid is not None
    valid = cache.tokens.valid & (cache.tokens.positions < next_position_B[:, None])
    return cache._replace(tokens=cache.tokens._replace(valid=valid), next_position_B=next_position_B)


def append(
    slots: jax.Array, new: jax.Array, places: jax.Array, *, axis: int, crowded: bool
) -> tuple[jax.Array, jax.Array]:
    """(what the new tokens may attend to, the slots with the new tokens written to `places` (`slots_of`)).

    `crowded`: the last new tokens overwrite ring slots that the first still attend to, so all attend
    to the old slots plus the new tokens.
    """
    new = new.astype(slots.dtype)
    if places.ndim == 0:
        after = lax.dynamic_update_slice_in_dim(slots, new, places, axis)
        return after, after
    own = jnp.repeat(places, slots.shape[0] // places.shape[0], axis=0)
    index = (jnp.arange(len(slots))[:, None], *[slice(None)] * (axis - 1), own)
    after = slots.at[index].set(jnp.moveaxis(new, axis, 1), mode="drop")
    return (jnp.concatenate([slots, new], axis) if crowded else after), after


def append_tokens(slots: Tokens, new: Tokens, places: jax.Array, *, crowded: bool) -> tuple[Tokens, Tokens]:
    """`append` for the positions of the slots and whether they hold a token."""
    assert slots.valid is not None
    assert new.valid is not None
    how = {"axis": 1, "crowded": crowded}
    seen_positions, positions = append(slots.positions, new.positions, places, **how)
    seen_valid, valid = append(slots.valid, new.valid, places, **how)
    indices = jnp.arange(seen_positions.shape[1], dtype=jnp.int32)
    seen, after = Tokens(seen_positions, indices, valid=seen_valid), slots._replace(positions=positions, valid=valid)
    if slots.beams is None:
        return seen, after
    assert new.beams is not None
    seen_beams, beams = append(slots.beams, new.beams, places, axis=2, crowded=crowded)
    return seen._replace(beams=seen_beams), after._replace(beams=beams)
