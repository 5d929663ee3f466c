"""Recurrences: a state that every token changes, over sequences that may be packed or padded."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from transformer.functional.masks import Tokens

Step = Callable[[Any, Any], tuple[Any, jax.Array]]
"""Maps (state, a token's inputs), arrays (B, …), to (state after the token, output (B, …))."""


def recur(step: Step, state: Any, inputs: Any, tokens: Tokens) -> tuple[jax.Array, Any]:
    """(outputs (B, L, …) of a recurrence over tokens, the state after the last one).

    Args:
      step: the recurrence; it is the definition, and is called for one token after the other.
      state: before the first token, arrays (B, …).
      inputs: of the tokens, arrays (B, L, …).
      tokens: a document of a packed row begins with `state`; padding leaves the state as it was.
    """
    begins_BL = None
    if tokens.segments is not None:
        before_BL = jnp.roll(tokens.segments, 1, 1).at[:, 0].set(tokens.segments[:, 0])
        begins_BL = before_BL != tokens.segments

    def one(before: Any, turn: tuple[Any, jax.Array | None, jax.Array | None]) -> tuple[Any, jax.Array]:
        inputs, begins_B, valid_B = turn
        before = before if begins_B is None else _where(begins_B, state, before)
        after, output = step(before, inputs)
        return after if valid_B is None else _where(valid_B, after, before), output

    turns = jax.tree.map(lambda array: jnp.moveaxis(array, 1, 0), (inputs, begins_BL, tokens.valid))
    last, outputs = lax.scan(one, state, turns)
    return jnp.moveaxis(outputs, 0, 1), last


def _where(chosen_B: jax.Array, left: Any, right: Any) -> Any:
    """The state `left` of the chosen sequences, `right` of the others."""

    def one(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(chosen_B.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(one, left, right)
