"""Strategies: how the tokens of a sequence are chosen."""

import abc
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
from jax.sharding import Mesh

from transformer.core.checks import check_fields, is_count
from transformer.core.errors import ConfigError
from transformer.core.modules import no_key
from transformer.core.values import Variant
from transformer.inference.processors import MinimumLength, Processor
from transformer.inference.prompt import Generated, Prompt


@dataclass(frozen=True, kw_only=True)
class Strategy(Variant):
    """How sequences are decoded."""

    random: ClassVar[bool] = False
    """Whether the choice depends on the key, which it then needs."""
    processors: tuple[Processor, ...] = ()
    """Functions applied to the logits first, in this order."""

    @abc.abstractmethod
    def decode(self, prompt: Prompt, key: jax.Array | None) -> Generated:
        """The chosen continuations."""

    def process(self, logits_BV: jax.Array, prompt: Prompt, tokens_BT: jax.Array, chosen: jax.Array) -> jax.Array:
        """The logits after all processors; `chosen`, () or (B,), counts the tokens chosen so far."""
        for processor in self.processors:
            processed_BV = processor(logits_BV, prompt.history(tokens_BT, chosen))
            if (processed_BV.shape, processed_BV.dtype) != (logits_BV.shape, logits_BV.dtype):
                given, needed = (f"{logits.dtype} {logits.shape}" for logits in (processed_BV, logits_BV))
                raise ConfigError(f"{processor.name}: it returns {given} for logits {needed}")
            logits_BV = processed_BV
        return logits_BV


def check_length(caller: str, strategy: Strategy, num_tokens: int) -> None:
    """Raise `ConfigError` where more tokens have to come before the end than may come at all."""
    for processor in strategy.processors:
        if isinstance(processor, MinimumLength) and processor.length > num_tokens:
            raise ConfigError(f"{caller}: {processor} asks for more than num_tokens, {num_tokens}")


def check_decoding(caller: str, num_tokens: Any, stop: Any, strategy: Any, key: Any, mesh: Any) -> None:
    """Raise `ConfigError` where no token is asked for, the end is not one, strategy, key or mesh is none, or a random
    strategy has no key."""
    if not is_count(num_tokens) or num_tokens < 1:
        raise ConfigError(f"{caller}: num_tokens {num_tokens!r} is not a positive number")
    if stop is not None and not is_count(stop):
        raise ConfigError(f"{caller}: stop {stop!r} is not the number of one token")
    if not isinstance(mesh, Mesh | None):
        raise ConfigError(f"{caller}: mesh {mesh!r} is no jax.sharding.Mesh")
    if not isinstance(strategy, Strategy):
        raise ConfigError(f"{caller}: the strategy {strategy!r} is no value such as Greedy(); texts: Strategy.parse")
    check_fields(strategy, f"{caller}: {strategy.name}.")
    if not isinstance(key, jax.Array | None):
        raise no_key(key, f"{caller}: key")
    if key is None and strategy.random:
        raise ConfigError(f"{caller}: {strategy} is random and needs a key")
