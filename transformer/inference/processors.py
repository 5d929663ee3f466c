"""Processors: functions of the logits and the tokens so far, applied before a token is chosen."""

import abc
import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from transformer.core.checks import check_positive
from transformer.core.errors import ConfigError
from transformer.core.values import Variant
from transformer.functional.attention import NEVER


class History(NamedTuple):
    """The tokens of each sequence so far: its prompt and, right after it, the chosen ones."""

    tokens_BS: jax.Array
    """(B, S) int32; entries from `lengths_B` on are not part of it."""
    lengths_B: jax.Array
    """(B,) number of tokens of each sequence."""
    chosen_B: jax.Array
    """(B,) number of these that were chosen."""
    stop: int | None
    """The token that ends a sequence."""


class Earlier(NamedTuple):
    """Text before a prompt, which processors see and the model does not read."""

    tokens_BS: jax.Array
    """(B, S) int32; entries from `lengths_B` on are not part of it."""
    lengths_B: jax.Array
    """(B,) number of tokens of each."""
    chosen_B: jax.Array
    """(B,) number of tokens of it and of the prompt that were chosen."""


class Processor(Variant):
    """A function of logits; NEVER forbids a token. Where all are forbidden, any token may be chosen."""

    @abc.abstractmethod
    def __call__(self, logits_BV: jax.Array, history: History) -> jax.Array:
        """The new logits, (B, V)."""


def _marked(tokens_BS: jax.Array, where_BS: jax.Array, vocab_size: int) -> jax.Array:
    """(B, V) bool: True for the tokens at those places."""
    rows = jnp.arange(len(tokens_BS))[:, None]
    none_BV = jnp.zeros((len(tokens_BS), vocab_size), jnp.bool)
    return none_BV.at[rows, jnp.where(where_BS, tokens_BS, vocab_size)].set(True, mode="drop")


@dataclass(frozen=True)
class RepetitionPenalty(Processor):
    """Divides positive logits of tokens that occurred already by a number and multiplies negative ones by it.

    (Keskar et al. 2019, section 4.1, who divide both; here, with 1 or more, a token never becomes likelier.)
    """

    name = "repetition_penalty"
    penalty: float = 1.2
    """The number; 1 changes nothing."""

    def __post_init__(self):
        if not 0 < self.penalty < math.inf:
            raise ConfigError(f"repetition_penalty.penalty: {self.penalty} is not a positive number; 1 changes nothing")

    def __call__(self, logits_BV, history):
        there_BS = jnp.arange(history.tokens_BS.shape[1]) < history.lengths_B[:, None]
        seen_BV = _marked(history.tokens_BS, there_BS, logits_BV.shape[1])
        lower_BV = jnp.where(logits_BV > 0, logits_BV / self.penalty, logits_BV * self.penalty)
        return jnp.where(seen_BV & (logits_BV > NEVER), lower_BV, logits_BV)


@dataclass(frozen=True)
class NoRepeat(Processor):
    """No `size` consecutive tokens occur twice (Paulus et al. 2017, section 2.5)."""

    name = "no_repeat"
    size: int = 3
    """Tokens in a row."""

    def __post_init__(self):
        check_positive(self, "size")

    def __call__(self, logits_BV, history):
        tokens_BS, lengths_B1 = history.tokens_BS, history.lengths_B[:, None]
        last_BS = jnp.arange(tokens_BS.shape[1])  # each index as the last of `size` tokens
        again_BS = (last_BS >= self.size - 1) & (last_BS < lengths_B1)
        for back in range(1, self.size):
            latest_B1 = jnp.take_along_axis(tokens_BS, jnp.maximum(lengths_B1 - back, 0), 1)
            again_BS &= jnp.roll(tokens_BS, back, 1) == latest_B1
        return jnp.where(_marked(tokens_BS, again_BS, logits_BV.shape[1]), NEVER, logits_BV)


@dataclass(frozen=True)
class MinimumLength(Processor):
    """The stop token is not chosen before `length` other tokens were."""

    name = "minimum_length"
    length: int = 1
    """Tokens before the stop token, at least."""

    def __post_init__(self):
        check_positive(self, "length")

    def __call__(self, logits_BV, history):
        if history.stop is None:
            raise ConfigError(f"{self} needs a stop token, and there is none; give `stop`")
        early_B1 = (history.chosen_B < self.length)[:, None]
        return jnp.where(early_B1 & (jnp.arange(logits_BV.shape[1]) == history.stop), NEVER, logits_BV)


@dataclass(frozen=True)
class Forbidden(Processor):
    """Tokens that are never chosen."""

    tokens: tuple[int, ...] = ()
    """Their ids."""

    def __call__(self, logits_BV, history):
        vocab_size = logits_BV.shape[1]
        if wrong := [token for token in self.tokens if not 0 <= token < vocab_size]:
            raise ConfigError(f"forbidden.tokens: {wrong[0]} is not in [0, {vocab_size})")
        if len(set(self.tokens)) == vocab_size:
            raise ConfigError("forbidden.tokens: all tokens are forbidden")
        return logits_BV.at[:, jnp.asarray(self.tokens, jnp.int32)].set(NEVER)
