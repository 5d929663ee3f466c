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

    layers: tuple[KeyValue, ...]
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


def write(slots: jax.Array, new: jax.Array, written: jax.Array, axis: int) -> jax.Array:
    """The slots of an axis with new entries after the first `written`, over the oldest where the end is reached."""
    capacity, length = slots.shape[axis], new.shape[axis]
    new = new.astype(slots.dtype)
    if length == 1:
        return lax.dynamic_update_slice_in_dim(slots, new, written % capacity, axis)
    kept = min(length, capacity)
    places = (written + length - kept + jnp.arange(kept)) % capacity
    latest = lax.slice_in_dim(new, length - kept, length, axis=axis)
    return slots.at[(slice(None),) * axis + (places,)].set(latest)


def append(slots: jax.Array, new: jax.Array, written: jax.Array, *, axis: int, ring: bool):
    """What the new tokens may attend to, and the slots with them.

    Several tokens at once may push out of a ring what the first of them still needs: they see the
    old slots and themselves.
    """
    after = write(slots, new, written, axis)
    if ring and new.shape[axis] > 1:
        return jnp.concatenate([slots, new.astype(slots.dtype)], axis), after
    return after, after


def append_tokens(slots: Tokens, new: Tokens, written: jax.Array, ring: bool) -> tuple[Tokens, Tokens]:
    """`append` for the positions of the slots and whether they hold a token."""
    seen_positions, positions = append(slots.positions, new.positions, written, axis=1, ring=ring)
    assert slots.valid is not None
    assert new.valid is not None
    seen_valid, valid = append(slots.valid, new.valid, written, axis=1, ring=ring)
    indices = jnp.arange(seen_positions.shape[1], dtype=jnp.int32)
    return Tokens(seen_positions, indices, valid=seen_valid), slots._replace(positions=positions, valid=valid)
