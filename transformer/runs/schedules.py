"""Learning-rate schedules: the factor on the peak learning rate after warm-up."""

import abc
import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from transformer.core.errors import ConfigError
from transformer.core.values import Variant


class Schedule(Variant):
    """The factor rises linearly in warm-up, (step + 1)/(warm-up + 1); then it is `decay`.

    `warmup_steps` may be a traced number, and 0 means no warm-up.
    """

    def __call__(self, step: jax.Array, warmup_steps: jax.Array, total_steps: int) -> jax.Array:
        """The factor at `step` (0 is the first), a float32 scalar."""
        step, warmup = jnp.asarray(step, jnp.float32), jnp.asarray(warmup_steps, jnp.float32)
        return jnp.where(step < warmup, (step + 1) / (warmup + 1), self.decay(step, warmup, float(total_steps)))

    @abc.abstractmethod
    def decay(self, step: jax.Array, warmup: jax.Array, total: float) -> jax.Array:
        """The factor for step >= warmup; 1 at step = warmup."""


def _check_final(schedule: Schedule, final: float) -> None:
    if not 0 <= final < math.inf:
        raise ConfigError(f"{schedule.name}.final: {final} is {'negative' if final < 0 else 'not a finite number'}")


def _progress(step, warmup, total):
    return jnp.clip((step - warmup) / jnp.maximum(total - warmup, 1.0), 0.0, 1.0)


@dataclass(frozen=True)
class ConstantRate(Schedule):
    """1 at every step after warm-up."""

    name = "constant"

    def decay(self, step, warmup, total):
        return jnp.ones_like(step)


@dataclass(frozen=True)
class LinearDecay(Schedule):
    """Falls from 1 to `final` in a straight line."""

    name = "linear"
    final: float = 0.0
    """Factor at the end, not negative."""

    def __post_init__(self):
        _check_final(self, self.final)

    def decay(self, step, warmup, total):
        return 1 - (1 - self.final) * _progress(step, warmup, total)


@dataclass(frozen=True)
class Cosine(Schedule):
    """Falls from 1 to `final` along half a cosine (Loshchilov and Hutter 2017, equation 5)."""

    final: float = 0.1
    """Factor at the end, not negative."""

    def __post_init__(self):
        _check_final(self, self.final)

    def decay(self, step, warmup, total):
        return self.final + (1 - self.final) * 0.5 * (1 + jnp.cos(jnp.pi * _progress(step, warmup, total)))


@dataclass(frozen=True)
class InverseSquareRoot(Schedule):
    """√(warm-up / step) (Vaswani et al. 2017, equation 3, scaled to a peak of 1)."""

    name = "inverse_square_root"

    def decay(self, step, warmup, total):
        return jnp.sqrt((warmup + 1) / (step + 1))


@dataclass(frozen=True)
class WarmupStableDecay(Schedule):
    """1, then a straight line to `final` over the last `decay_fraction` of all steps.

    (Hu et al. 2024, who let it fall exponentially.)
    """

    name = "wsd"
    decay_fraction: float = 0.2
    """Share of all steps in which the factor falls, in (0, 1]."""
    final: float = 0.0
    """Factor at the end, not negative."""

    def __post_init__(self):
        if not 0 < self.decay_fraction <= 1:
            raise ConfigError(f"wsd.decay_fraction: {self.decay_fraction} is not in (0, 1]")
        _check_final(self, self.final)

    def decay(self, step, warmup, total):
        start = (1 - self.decay_fraction) * total
        return 1 - (1 - self.final) * _progress(step, jnp.maximum(start, warmup), total)
