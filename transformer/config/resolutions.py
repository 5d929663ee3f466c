"""How many vectors of a sequence the layers of a stack see."""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax

from transformer.config.residuals import Stream
from transformer.config.variant import ConfigError, Variant
from transformer.functional.masks import Tokens
from transformer.functional.shortening import lengthened, shortened

Answer = tuple[Stream, jax.Array, Any]
"""The stream behind some layers, what they add to the loss, and what is kept for a later segment."""
Run = Callable[[Stream, Tokens, slice], Answer]
"""Some layers of a stack on a stream of such tokens."""


class Resolution(Variant, abc.ABC):
    """How many vectors of a sequence the layers of a stack see."""

    whole: ClassVar[bool] = True
    """Whether every layer sees all tokens, by themselves."""
    mixes_tokens: ClassVar[bool] = False
    """Whether documents in one row see each other."""

    def check(self, num_layers: int, period: int) -> None:
        """Raise `ConfigError` where it does not fit a stack whose kinds of layers take turns of `period`."""

    @abc.abstractmethod
    def __call__(self, run: Run, stream: Stream, tokens: Tokens, *, causal: bool) -> Answer:
        """All layers, run in their order."""


@dataclass(frozen=True)
class FullResolution(Resolution):
    """Every token in every layer."""

    name = "full"

    def __call__(self, run, stream, tokens, *, causal):
        return run(stream, tokens, slice(None))


@dataclass(frozen=True)
class Hourglass(Resolution):
    """All layers but some first and last ones see means of `factor` tokens, whose states are then added to each.

    (Nawrot et al. 2021, algorithm 1, with means and repetition; in an encoder without the shift, as Funnel, Dai Z.
    et al. 2020.) Positions and reaches of the layers between count means. Nothing is kept for decoding but the
    tokens, all of which are read again for each new one.
    """

    factor: int = 2
    first: int = 1
    """Layers before that see every token."""
    last: int = 1
    """Layers behind that see every token."""
    whole = False
    mixes_tokens = True

    def __post_init__(self):
        if self.factor < 2:
            raise ConfigError(f"hourglass.factor: {self.factor} shortens nothing; use 2, or full")
        if self.first < 0 or self.last < 0:
            raise ConfigError(f"hourglass: {self.first} layers before and {self.last} behind are not numbers of layers")

    def check(self, num_layers, period):
        if self.first + self.last >= num_layers:
            raise ConfigError(
                f"model.resolution: {self} leaves none of {num_layers} layers between {self.first} before and "
                f"{self.last} behind"
            )
        if self.first % period or self.last % period:
            raise ConfigError(
                f"model.resolution: {self.first} layers before and {self.last} behind are not whole turns of {period}"
            )

    def __call__(self, run, stream, tokens, *, causal):
        x_BLD, penalty, _ = run(stream, tokens, slice(0, self.first))
        short_BXD, places = shortened(x_BLD, tokens, self.factor, causal=causal)
        short_BXD, between, _ = run(short_BXD, places, slice(self.first, -self.last or None))
        x_BLD = x_BLD + lengthened(short_BXD, self.factor, tokens.length)
        x_BLD, behind, _ = run(x_BLD, tokens, slice(-self.last, None) if self.last else slice(0, 0))
        return x_BLD, penalty + between + behind, None
