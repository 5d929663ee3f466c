"""Decoding token by token: a state, a condition, and a step."""

import abc
import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from transformer.core.checks import check_positive
from transformer.core.errors import ConfigError
from transformer.functional.attention import NEVER
from transformer.functional.cache import Cache, Reader
from transformer.inference.prompt import Generated, Prompt
from transformer.inference.scoring import label_log_probabilities
from transformer.inference.strategies import Strategy


class DecodingState(NamedTuple):
    """The state of decoding."""

    step: jax.Array
    """Tokens chosen so far, int32."""
    logits_BV: jax.Array
    """Logits of the next token."""
    cache: Cache
    tokens_BT: jax.Array
    """The chosen tokens; 0 where none is chosen yet."""
    log_probability_B: jax.Array
    """log P of the chosen tokens under the model itself, whatever the strategy, in nats."""
    lengths_B: jax.Array
    """Number of tokens of each sequence, the end token included."""
    finished_B: jax.Array


class TokenStrategy(Strategy):
    """Chooses one token from the logits, separately for every sequence."""

    random = True

    @abc.abstractmethod
    def __call__(self, logits_BV: jax.Array, key: jax.Array) -> jax.Array:
        """The chosen tokens, (B,) int32."""

    @abc.abstractmethod
    def distribution(self, logits_BV: jax.Array) -> jax.Array:
        """The probability with which each token is chosen, (B, V)."""

    def decode(self, prompt, key):
        logits_BV, cache = prompt.read()
        B, T = len(logits_BV), prompt.num_tokens
        start = DecodingState(
            jnp.int32(0),
            logits_BV,
            cache,
            jnp.zeros((B, T), jnp.int32),
            jnp.zeros(B, jnp.float32),
            jnp.zeros(B, jnp.int32),
            jnp.zeros(B, jnp.bool),
        )

        def go_on(state: DecodingState) -> jax.Array:
            return (state.step < T) & ~state.finished_B.all()

        key = jax.random.key(0) if key is None else key
        step = functools.partial(self.step, prompt=prompt, read=prompt.reader(), key=key)
        end = prompt.loop(go_on, step, start)
        return Generated(end.tokens_BT, end.lengths_B, end.log_probability_B)

    def step(self, state: DecodingState, *, prompt: Prompt, read: Reader, key: jax.Array) -> DecodingState:
        """Choose a token for every sequence that is not finished, and read it."""
        logits_BV = self.process(state.logits_BV, prompt, state.tokens_BT, state.step)
        token_B = self(logits_BV, jax.random.fold_in(key, state.step))
        token_B = jnp.where(state.finished_B, 0, token_B)
        chosen_B = label_log_probabilities(state.logits_BV, token_B)
        running_B = ~state.finished_B
        logits_BLV, cache = read(token_B[:, None], state.cache)
        return DecodingState(
            state.step + 1,
            logits_BLV[:, 0],
            cache,
            lax.dynamic_update_slice_in_dim(state.tokens_BT, token_B[:, None], state.step, 1),
            state.log_probability_B + jnp.where(running_B, chosen_B, 0.0),
            state.lengths_B + running_B.astype(jnp.int32),
            state.finished_B if prompt.stop is None else state.finished_B | (token_B == prompt.stop),
        )


@dataclass(frozen=True)
class Greedy(TokenStrategy):
    """The most likely token; among equally likely ones the first."""

    random = False

    def __call__(self, logits_BV, key):
        return logits_BV.argmax(-1).astype(jnp.int32)

    def distribution(self, logits_BV):
        return jax.nn.one_hot(logits_BV.argmax(-1), logits_BV.shape[-1], dtype=jnp.float32)


GREEDY = Greedy()


COLDEST = 1e-6
"""Lowest temperature."""


@dataclass(frozen=True)
class Sample(TokenStrategy):
    """A random token from softmax(logits / temperature), restricted to likely tokens; restrictions combine."""

    temperature: float = 1.0
    """Divides the logits; at least 1e-6, below which they may not be finite."""
    top_k: int | None = None
    """Keep the k most likely tokens (Fan et al. 2018) and those as likely as the k-th."""
    top_p: float | None = None
    """Keep the fewest tokens that together have this probability (Holtzman et al. 2019) and those as likely as the last
    of them; in (0, 1]."""
    min_p: float | None = None
    """Keep tokens with at least this share of the highest probability (Nguyen et al. 2024); in (0, 1]."""

    def __post_init__(self):
        if self.temperature == math.inf:
            raise ConfigError("sample.temperature: inf is not a number; 1 leaves the probabilities as they are")
        if not self.temperature >= COLDEST:
            raise ConfigError(
                f"sample.temperature: {self.temperature} is less than {COLDEST:g}; greedy is its limit at 0"
            )
        if self.top_k is not None:
            check_positive(self, "top_k")
        for name in ("top_p", "min_p"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                raise ConfigError(f"sample.{name}: {value} is not in (0, 1]")

    def cut(self, logits_BV: jax.Array) -> jax.Array:
        """The logits over temperature, NEVER for tokens that are cut off."""
        # Where every token is forbidden none is: NEVER is too large for noise to be added to it.
        some = logits_BV.max(-1, keepdims=True) > NEVER
        logits_BV = jnp.where(some, logits_BV, jnp.zeros_like(logits_BV)) / self.temperature
        if self.top_k is not None and self.top_k > logits_BV.shape[-1]:
            raise ConfigError(
                f"sample.top_k: {self.top_k} is more than the {logits_BV.shape[-1]} tokens that there are"
            )
        if self.top_k is not None:
            lowest = jax.lax.top_k(logits_BV, self.top_k)[0][:, -1:]
            logits_BV = jnp.where(logits_BV >= lowest, logits_BV, NEVER)
        if self.top_p is not None and self.top_p < 1:
            descending = -jnp.sort(-logits_BV)
            probabilities = jax.nn.softmax(descending)
            before = jnp.cumsum(probabilities, -1) - probabilities
            lowest = jnp.where(before < self.top_p, descending, jnp.inf).min(-1, keepdims=True)
            logits_BV = jnp.where(logits_BV >= lowest, logits_BV, NEVER)
        if self.min_p is not None:
            highest = logits_BV.max(-1, keepdims=True)
            logits_BV = jnp.where(logits_BV >= highest + jnp.log(self.min_p), logits_BV, NEVER)
        return logits_BV

    def __call__(self, logits_BV, key):
        return jax.random.categorical(key, self.cut(logits_BV)).astype(jnp.int32)

    def distribution(self, logits_BV):
        return jax.nn.softmax(self.cut(logits_BV))
