"""What attention remembers of tokens that it has read: keys and values in slots.

A slot has a position and a flag that says whether a token is in it, so masks and biases work on
slots as on any keys: sequences of one batch may have prompts of different lengths, and a cache
shorter than the sequence is a ring of the latest tokens.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from transformer.functional.masks import Tokens


class KeyValue(NamedTuple):
    """Keys and values of one layer, each in the shape in which it is multiplied, heads of all sequences in one axis.

    XLA on CPU would copy any other shape at every step.
    """

    keys_XKS: jax.Array
    """(B · G, K, S)."""
    values_XSK: jax.Array
    """(B · G, S, K)."""


class Cache(NamedTuple):
    """All layers of a decoder."""

    layers: tuple[KeyValue | None, ...]
    """None for a layer that reads those of the one before."""
    tokens: Tokens
    """(B, S) positions of the slots, valid where there is a token."""
    written: jax.Array
    """Tokens written so far, padding included, int32."""
    next_position_B: jax.Array
    """(B,) position of each sequence's next token, int32."""
    memory: tuple[KeyValue, ...] = ()
    """Keys and values of the source, for each layer that attends to one."""
    memory_tokens: Tokens | None = None

    @property
    def capacity(self) -> int:
        return self.tokens.length


Reader = Callable[..., tuple[jax.Array, Cache]]
"""(tokens (B, L), cache) to (logits (B, L, V), cache)."""


def empty_tokens(batch_size: int, capacity: int) -> Tokens:
    """Slots without tokens."""
    shape = (batch_size, capacity)
    return Tokens(jnp.zeros(shape, jnp.int32), jnp.arange(capacity, dtype=jnp.int32), valid=jnp.zeros(shape, jnp.bool))


def places_of(new: Tokens, capacity: int, written: jax.Array, ring: bool) -> jax.Array:
    """Where new tokens go: the first slot () of all sequences side by side, or in a ring (B, L) slots of their own.

    In a ring a sequence keeps its latest real tokens, each at its position modulo the capacity;
    padding has the slot `capacity`, which does not exist.
    """
    if not ring:
        return written
    assert new.valid is not None
    last_B1 = jnp.where(new.valid, new.positions, -1).max(1, keepdims=True)
    kept_BL = new.valid & (new.positions > last_B1 - capacity)
    return jnp.where(kept_BL, new.positions % capacity, capacity)


def append(slots: jax.Array, new: jax.Array, places: jax.Array, *, axis: int) -> tuple[jax.Array, jax.Array]:
    """What the new tokens may attend to, and the slots with them (`places_of`).

    Several tokens at once may push out of a ring what the first of them still needs: they see the
    old slots and themselves.
    """
    new = new.astype(slots.dtype)
    if places.ndim == 0:
        after = lax.dynamic_update_slice_in_dim(slots, new, places, axis)
        return after, after
    own = jnp.repeat(places, slots.shape[0] // places.shape[0], axis=0)
    rows = jnp.arange(len(slots))[:, None]
    after = jnp.moveaxis(slots, axis, 1).at[rows, own].set(jnp.moveaxis(new, axis, 1), mode="drop")
    after = jnp.moveaxis(after, 1, axis)
    return (after if new.shape[axis] == 1 else jnp.concatenate([slots, new], axis)), after


def append_tokens(slots: Tokens, new: Tokens, places: jax.Array) -> tuple[Tokens, Tokens]:
    """`append` for the positions of the slots and whether they hold a token."""
    assert slots.valid is not None
    assert new.valid is not None
    seen_positions, positions = append(slots.positions, new.positions, places, axis=1)
    seen_valid, valid = append(slots.valid, new.valid, places, axis=1)
    indices = jnp.arange(seen_positions.shape[1], dtype=jnp.int32)
    return Tokens(seen_positions, indices, valid=seen_valid), slots._replace(positions=positions, valid=valid)
