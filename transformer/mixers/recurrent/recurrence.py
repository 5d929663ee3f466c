"""Recurrent mixers: a state of constant size that every token changes."""

import abc
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from transformer.functional.cache import State
from transformer.functional.recurrences import recur
from transformer.mixers.mixer import Context, Mixer, MixerLayer, Outcome

if TYPE_CHECKING:
    from transformer.models.config import ModelConfig

Params = dict[str, jax.Array]


class Recurrence(Mixer):
    """A recurrence over tokens. A new one defines `parameters`, `state`, `inputs`, `step`, and it may define `output`.

    Packed documents, padding, decoding with a memory of constant size, and beams follow from these.
    """

    causal = True

    @abc.abstractmethod
    def state(self, model: "ModelConfig") -> dict[str, tuple[int, ...]]:
        """Shapes of the float32 arrays of one sequence's state, by name; they are initially 0."""

    @abc.abstractmethod
    def inputs(self, x_BLD: jax.Array, params: Params) -> Any:
        """What the step reads of each token, arrays (B, L, …)."""

    @abc.abstractmethod
    def step(self, state: dict[str, jax.Array], inputs: Any) -> tuple[dict[str, jax.Array], jax.Array]:
        """(the state after one token, the output of the recurrence (B, …)), from arrays (B, …)."""

    def output(self, y_BLX: jax.Array, x_BLD: jax.Array, params: Params) -> jax.Array:
        """The output of the mixer (B, L, D), from that of the recurrence and the input."""
        return y_BLX.astype(x_BLD.dtype)

    def memory(self, model, batch_size, slots, dtype):
        return State({name: jnp.zeros((batch_size, *shape)) for name, shape in self.state(model).items()})

    def build(self, model, *, key):
        return RecurrenceLayer(self, model, key=key)


class RecurrenceLayer(MixerLayer):
    """A recurrence with its parameters."""

    mixer: Recurrence

    def __init__(self, mixer: Recurrence, model: "ModelConfig", *, key: jax.Array):
        super().__init__(mixer, model, key=key)
        self.shapes = mixer.state(model)

    def __call__(
        self, x_BLD: jax.Array, *, context: Context, key: jax.Array | None = None
    ) -> tuple[jax.Array, Outcome]:
        """The output (B, L, D), and the state after the tokens."""
        params, tokens, writing = self.params(), context.tokens, context.writing
        inputs = self.mixer.inputs(x_BLD, params)
        if writing is None:
            start = {name: jnp.zeros((len(x_BLD), *shape)) for name, shape in self.shapes.items()}
            y_BLX, _ = recur(self.mixer.step, start, inputs, tokens)
            return self.mixer.output(y_BLX, x_BLD, params), Outcome()
        if tokens.beams is None:
            y_BLX, after = recur(self.mixer.step, writing.memory.arrays, inputs, tokens)
        else:  # in a search each of the W tokens continues the state of its own beam
            after, y_BLX = jax.vmap(self.mixer.step, 1, 1)(writing.memory.arrays, inputs)
        return self.mixer.output(y_BLX, x_BLD, params), Outcome(State(after))
