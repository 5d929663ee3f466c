"""Recurrences: a state that every token changes, over sequences that may be packed or padded."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from transformer.functional.masks import Tokens

Step = Callable[[Any, Any], tuple[Any, jax.Array]]
"""Maps (state, a token's inputs), arrays (B, …), to (state after the token, output (B, …))."""


def begins(tokens: Tokens) -> jax.Array | None:
    """(B or 1, L), whether another document than that of the token before begins here; None: a row is one document.

    Padding, whatever its segment, is of the document before it, or at the beginning of a row of the first one.
    """
    segments_BL = tokens.as_before().segments
    if segments_BL is None:
        return None
    return segments_BL != jnp.concatenate([segments_BL[:, :1], segments_BL[:, :-1]], 1)


def recur(step: Step, state: Any, inputs: Any, tokens: Tokens) -> tuple[jax.Array, Any]:
    """(outputs (B, L, …) of a recurrence over tokens, the state after the last one).

    Args:
      step: the recurrence; it is the definition, and is called for one token after the other.
      state: before the first token, arrays (B, …).
      inputs: of the tokens, arrays (B, L, …).
      tokens: a later document of a packed row begins with a state of zeros; padding leaves the state as it was.

    Raises:
      ValueError: an input is not of every token.
    """
    for array in jax.tree.leaves(inputs):
        if array.ndim < 2 or array.shape[1] != tokens.length:
            here = f"one has the shape {array.shape}, and L is {tokens.length}"
            raise ValueError(f"inputs of a recurrence are arrays (B, L, …), parameters broadcast to them: {here}")

    def one(before: Any, turn: tuple[Any, jax.Array | None, jax.Array | None]) -> tuple[Any, jax.Array]:
        inputs, begins_B, valid_B = turn
        before = before if begins_B is None else _where(begins_B, jax.tree.map(jnp.zeros_like, before), before)
        after, output = step(before, inputs)
        return after if valid_B is None else _where(valid_B, after, before), output

    turns = jax.tree.map(lambda array: jnp.moveaxis(array, 1, 0), (inputs, begins(tokens), tokens.valid))
    last, outputs = lax.scan(one, state, turns)
    return jnp.moveaxis(outputs, 0, 1), last


def recur_elementwise(
    kept_BLX: jax.Array, new_BLX: jax.Array, state_BX: jax.Array, tokens: Tokens
) -> tuple[jax.Array, jax.Array]:
    """(states (B, L, X) of h ← kept ⊙ h + new, the last one): `recur`, in log L parallel steps (Blelloch 1990).

    Args:
      kept_BLX: factors on the state.
      new_BLX: what is added.
      state_BX: before the first token.
      tokens: as in `recur`.
    """
    if tokens.valid is not None:
        there = tokens.valid[..., None]
        kept_BLX, new_BLX = jnp.where(there, kept_BLX, 1.0), jnp.where(there, new_BLX, 0.0)
    if (begin := begins(tokens)) is not None:
        kept_BLX = jnp.where(begin[..., None], 0.0, kept_BLX)

    def then(first: tuple[jax.Array, jax.Array], second: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        return first[0] * second[0], second[0] * first[1] + second[1]

    kept, new = lax.associative_scan(then, (kept_BLX, new_BLX), axis=1)
    states_BLX = kept * state_BX[:, None] + new
    return states_BLX, states_BLX[:, -1]


def _where(chosen_B: jax.Array, left: Any, right: Any) -> Any:
    """The state `left` of the chosen sequences, `right` of the others."""

    def one(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(chosen_B.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(one, left, right)
