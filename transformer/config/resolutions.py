"""Resolutions: whether the layers of a stack see every token or a shortened sequence."""

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
"""(stream after some layers, penalty they add to the loss, segment memory)."""
Run = Callable[[Stream, Tokens, slice], Answer]
"""Runs a slice of the layers of a stack on a stream of tokens."""


class Resolution(Variant, abc.ABC):
    """Whether the layers of a stack see every token or a shortened sequence."""

    whole: ClassVar[bool] = True
    """Whether every layer sees each token separately."""
    mixes_tokens: ClassVar[bool] = False
    """Whether packed documents of one row see each other."""

    def check(self, num_layers: int, period: int) -> None:
        """Raise `ConfigError` where it does not fit a stack whose kinds of layers repeat after `period` layers."""

    @abc.abstractmethod
    def __call__(self, run: Run, stream: Stream, tokens: Tokens, *, causal: bool) -> Answer:
        """Runs all layers in order."""


@dataclass(frozen=True)
class FullResolution(Resolution):
    """Every layer sees every token."""

    name = "full"

    def __call__(self, run, stream, tokens, *, causal):
        return run(stream, tokens, slice(None))


@dataclass(frozen=True)
class Hourglass(Resolution):
    """The middle layers see means of `factor` tokens; their outputs are added back to each token.

    (Nawrot et al. 2021, algorithm 1, with means and repetition; in an encoder without the shift, as Funnel, Dai Z.
    et al. 2020.) Positions and reaches of the middle layers count means. Decoding caches the tokens only and reads
    all of them again for each new one.
    """

    factor: int = 2
    """Tokens per mean, at least 2."""
    first: int = 1
    """Number of first layers, which see every token."""
    last: int = 1
    """Number of last layers, which see every token."""
    whole = False
    mixes_tokens = True

    def __post_init__(self):
        if self.factor < 2:
            raise ConfigError(f"hourglass.factor: {self.factor} shortens nothing; use 2, or full")
        if self.first < 0 or self.last < 0:
            raise ConfigError(f"hourglass: {self.first} first and {self.last} last are not numbers of layers")

    def check(self, num_layers, period):
        if self.first + self.last >= num_layers:
            raise ConfigError(
                f"model.resolution: {self} leaves none of {num_layers} layers between the {self.first} first and "
                f"the {self.last} last"
            )
        if self.first % period or self.last % period:
            raise ConfigError(
                f"model.resolution: {self.first} first and {self.last} last layers are not whole turns of {period}"
            )

    def __call__(self, run, stream, tokens, *, causal):
        x_BLD, penalty, _ = run(stream, tokens, slice(0, self.first))
        short_BXD, places = shortened(x_BLD, tokens, self.factor, causal=causal)
        short_BXD, between, _ = run(short_BXD, places, slice(self.first, -self.last or None))
        x_BLD = x_BLD + lengthened(short_BXD, self.factor, tokens.length)
        x_BLD, behind, _ = run(x_BLD, tokens, slice(-self.last, None) if self.last else slice(0, 0))
        return x_BLD, penalty + between + behind, None
