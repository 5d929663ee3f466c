"""How the next token is chosen: strategies as values."""

import abc
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from transformer.config.variant import ConfigError, Variant

NEVER = float(jnp.finfo(jnp.float32).min)


class Strategy(Variant, abc.ABC):
    """How tokens are decoded."""


class TokenStrategy(Strategy):
    """Chooses one token from the logits, for every sequence by itself."""

    @abc.abstractmethod
    def __call__(self, logits_BV: jax.Array, key: jax.Array) -> jax.Array:
        """(B,) int32."""


@dataclass(frozen=True)
class Greedy(TokenStrategy):
    """The most likely token; of equal ones the first."""

    def __call__(self, logits_BV, key):
        return logits_BV.argmax(-1).astype(jnp.int32)


@dataclass(frozen=True)
class Sample(TokenStrategy):
    """A random token from softmax(logits / temperature), cut to the likely ones; the cuts combine."""

    temperature: float = 1.0
    top_k: int | None = None
    """The k most likely tokens (Fan et al. 2018); tokens as likely as the k-th count too."""
    top_p: float | None = None
    """The fewest most likely tokens that have this probability together (Holtzman et al. 2019)."""
    min_p: float | None = None
    """Tokens with at least this share of the highest probability (Nguyen et al. 2024)."""

    def __post_init__(self):
        if self.temperature <= 0:
            raise ConfigError(f"sample.temperature: {self.temperature} is not positive; greedy is its limit at 0")
        if self.top_k is not None and self.top_k < 1:
            raise ConfigError(f"sample.top_k: {self.top_k} is not a positive number")
        for name in ("top_p", "min_p"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                raise ConfigError(f"sample.{name}: {value} is not in (0, 1]")

    def cut(self, logits_BV: jax.Array) -> jax.Array:
        """The logits of softmax, NEVER for tokens that are cut off."""
        logits_BV = logits_BV / self.temperature
        if self.top_k is not None and self.top_k < logits_BV.shape[-1]:
            lowest = jax.lax.top_k(logits_BV, self.top_k)[0][:, -1:]
            logits_BV = jnp.where(logits_BV >= lowest, logits_BV, NEVER)
        if self.top_p is not None:
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


@dataclass(frozen=True)
class Beam(Strategy):
    """The likeliest whole sequence, searched among the `size` best beginnings (Sutskever et al. 2014).

    Sequences are ranked by log-probability / penalty, the penalty being length^alpha, or
    ((5 + length) / 6)^alpha (Wu et al. 2016, equation 14).
    """

    size: int = 4
    alpha: float = 1.0
    gnmt: bool = False
    """The penalty of Wu et al. 2016."""
    early_stopping: bool = True
    """Stop at `size` finished sequences; otherwise when no unfinished one can still be ranked among them."""

    def __post_init__(self):
        if self.size < 1:
            raise ConfigError(f"beam.size: {self.size} is not a positive number")
        if self.alpha < 0:
            raise ConfigError(f"beam.alpha: {self.alpha} is negative")

    def penalty(self, length: jax.Array) -> jax.Array:
        """What a log-probability is divided by; `length` counts the end token."""
        length = length.astype(jnp.float32)
        return ((5 + length) / 6 if self.gnmt else length) ** self.alpha
