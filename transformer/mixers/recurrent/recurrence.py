"""Recurrent mixers: a state of constant size that every token changes."""

import abc
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from transformer.core.parameters import OwnParams
from transformer.functional.cache import State
from transformer.functional.convolution import convolve_next
from transformer.functional.masks import Tokens
from transformer.functional.recurrences import recur
from transformer.mixers.mixer import Aux, Context, Mixer, MixerLayer

if TYPE_CHECKING:
    from transformer.models.config import ModelConfig

WINDOW = "window"
"""The array of the state in which a short convolution keeps what it has read."""


class Recurrence(Mixer):
    """A recurrence over tokens. A new one defines `parameters`, `state`, `inputs` and `step`.

    It may define `parallel`, all steps at once, and `output`; and `project` and `kernel`, a short convolution before
    the recurrence. Packed documents, padding, decoding with a memory of constant size, and beams follow from these.
    """

    causal = True

    @abc.abstractmethod
    def state(self, model: "ModelConfig") -> dict[str, tuple[int, ...]]:
        """Shapes of the float32 arrays of one sequence's state, by name; they are initially 0.

        With a short convolution of W features X, `WINDOW` is (W - 1, X).
        """

    def span(self, model):
        return 1

    def kernel(self, params: OwnParams) -> jax.Array | None:
        """Weights (W, X) of the short convolution, that of the token itself first; None: there is none."""
        return None

    def project(self, x_BLD: jax.Array, params: OwnParams) -> jax.Array:
        """The features (B, L, X) that are convolved."""
        return x_BLD

    @abc.abstractmethod
    def inputs(self, x_BLD: jax.Array, mixed_BLX: jax.Array | None, params: OwnParams) -> Any:
        """What the step reads of each token, arrays (B, L, …), from the input and what was convolved.

        A parameter that it reads, such as a decay, is among them, broadcast to that shape.
        """

    @abc.abstractmethod
    def step(self, state: dict[str, jax.Array], inputs: Any, /) -> tuple[dict[str, jax.Array], jax.Array]:
        """(the state after one token, the output of the recurrence (B, …)), from arrays (B, …): the definition."""

    def parallel(
        self, state: dict[str, jax.Array], inputs: Any, tokens: Tokens
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """(outputs (B, L, …), the state after the last token): what the steps compute, at another cost."""
        return recur(self.step, state, inputs, tokens)

    def output(self, y_BLX: jax.Array, inputs: Any, x_BLD: jax.Array, params: OwnParams, /) -> jax.Array:
        """The output of the mixer (B, L, D), in the dtype of its input x, from that of the recurrence."""
        return y_BLX.astype(x_BLD.dtype)

    def read(
        self, x_BLD: jax.Array, state: dict[str, jax.Array], tokens: Tokens, params: OwnParams
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """(the output of the mixer (B, L, D), the state after these tokens)."""
        kernel_WX, mixed_BLX, window = self.kernel(params), None, {}
        if kernel_WX is not None:
            projected_BLX = self.project(x_BLD, params)
            mixed_BLX, latest = convolve_next(projected_BLX, kernel_WX, state[WINDOW], tokens)
            window = {WINDOW: latest.astype(jnp.float32)}
            state = {name: array for name, array in state.items() if name != WINDOW}
        inputs = self.inputs(x_BLD, mixed_BLX, params)
        one_token = x_BLD.shape[1] == 1
        y_BLX, after = recur(self.step, state, inputs, tokens) if one_token else self.parallel(state, inputs, tokens)
        return self.output(y_BLX, inputs, x_BLD, params), after | window

    def memory(self, model, batch_size, slots, dtype):
        return State({name: jnp.zeros((batch_size, *shape), jnp.float32) for name, shape in self.state(model).items()})

    def build(self, model, *, key):
        return RecurrenceLayer(self, model, key=key)


class RecurrenceLayer(MixerLayer):
    """A recurrence with its parameters."""

    mixer: Recurrence

    def __init__(self, mixer: Recurrence, model: "ModelConfig", *, key: jax.Array):
        super().__init__(mixer, model, key=key)
        self.shapes = mixer.state(model)

    def __call__(self, x_BLD: jax.Array, *, context: Context, key: jax.Array | None = None) -> tuple[jax.Array, Aux]:
        """The output (B, L, D), and the state after the tokens."""
        params, tokens, writing = self.params(), context.tokens, context.writing
        if writing is None:
            start = {name: jnp.zeros((len(x_BLD), *shape), jnp.float32) for name, shape in self.shapes.items()}
            y_BLD, _ = self.mixer.read(x_BLD, start, tokens, params)
            return y_BLD, Aux()
        if tokens.beams is None:
            y_BLD, after = self.mixer.read(x_BLD, writing.memory.arrays, tokens, params)
            return y_BLD, Aux(State(after))

        def one_beam(x_BD: jax.Array, state: dict[str, jax.Array]) -> tuple[jax.Array, dict[str, jax.Array]]:
            y_BLD, after = self.mixer.read(x_BD[:, None], state, Tokens.at([0]), params)
            return y_BLD[:, 0], after

        # In a search each of the W tokens continues the state of its own beam.
        y_BWD, after = jax.vmap(one_beam, 1, 1)(x_BLD, writing.memory.arrays)
        return y_BWD, Aux(State(after))
