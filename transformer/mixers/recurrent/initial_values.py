"""Initial values of convolutions, decays and gates, as the papers of recurrences prescribe them."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from transformer.core.parameters import Initializer


@dataclass(frozen=True)
class Taps(Initializer):
    """Uniform between ±1/√W, the initial weights of a depthwise convolution of W tokens."""

    random = True

    def __call__(self, key, shape):
        limit = 1 / math.sqrt(shape[0])
        return jax.random.uniform(key, shape, jnp.float32, -limit, limit)


@dataclass(frozen=True)
class LogUniform(Initializer):
    """The logarithm of numbers that are uniform between two bounds."""

    name = "log_uniform"
    least: float = 1.0
    most: float = 16.0

    def __call__(self, key, shape):
        return jnp.log(jax.random.uniform(key, shape, jnp.float32, self.least, self.most))


@dataclass(frozen=True)
class StepSize(Initializer):
    """What softplus maps to numbers whose logarithm is uniform between those of two bounds (Gu and Dao 2023)."""

    name = "step_size"
    least: float = 1e-3
    most: float = 1e-1

    def __call__(self, key, shape):
        low, high = math.log(self.least), math.log(self.most)
        size = jnp.exp(jax.random.uniform(key, shape, jnp.float32, low, high))
        return size + jnp.log(-jnp.expm1(-size))


@dataclass(frozen=True)
class SlowDecay(Initializer):
    """Λ for which σ(Λ)^c is uniform between two bounds (Griffin, De et al. 2024, section 2.4)."""

    name = "slow_decay"
    least: float = 0.9
    most: float = 0.999
    power: float = 8.0

    def __call__(self, key, shape):
        kept = jax.random.uniform(key, shape, jnp.float32, self.least, self.most) ** (1 / self.power)
        return jnp.log(kept) - jnp.log1p(-kept)


@dataclass(frozen=True)
class Even(Initializer):
    """Evenly spaced numbers, one a head."""

    least: float = 3.0
    most: float = 6.0

    def __call__(self, key, shape):
        return jnp.linspace(self.least, self.most, shape[0], dtype=jnp.float32)


@dataclass(frozen=True)
class Shares(Initializer):
    """1 - (i / D)^power for feature i of D, in every row by a power of its own: shares of the token before (RWKV)."""

    powers: tuple[float, ...] = (1.0,)

    def __call__(self, key, shape):
        feature = jnp.arange(shape[-1], dtype=jnp.float32) / shape[-1]
        return 1 - feature ** jnp.asarray(self.powers, jnp.float32)[:, None]


@dataclass(frozen=True)
class Ramp(Initializer):
    """low + (high - low) · (i / (D - 1))^power for feature i of D, in every row."""

    low: float = 0.0
    high: float = 1.0
    power: float = 1.0

    def __call__(self, key, shape):
        share = jnp.linspace(0, 1, shape[-1], dtype=jnp.float32) ** self.power
        return jnp.broadcast_to(self.low + (self.high - self.low) * share, shape)
