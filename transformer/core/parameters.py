"""What a parameter is before it has a value: a shape and a distribution of initial values."""

import abc
import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from transformer.core.errors import ConfigError
from transformer.core.values import Variant


class Initializer(Variant):
    """The distribution of a parameter's initial values."""

    random = False
    """Whether values are random, so that a replica's `initial_scale` multiplies them."""

    @abc.abstractmethod
    def __call__(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Initial values, float32."""


@dataclass(frozen=True)
class Normal(Initializer):
    """Normal with mean 0."""

    std: float = 0.02
    """Standard deviation."""
    random = True

    def __call__(self, key, shape):
        return self.std * jax.random.normal(key, shape, jnp.float32)


@dataclass(frozen=True)
class FanIn(Initializer):
    """Normal with variance 1/fan-in, where fan-in is the size of the first axis (LeCun et al. 1998)."""

    random = True

    def __call__(self, key, shape):
        return jax.random.normal(key, shape, jnp.float32) / math.sqrt(shape[0])


@dataclass(frozen=True)
class Xavier(Initializer):
    """Uniform with variance 2 / (fan-in + fan-out), the first and last axes (Glorot and Bengio 2010, equation 16)."""

    random = True

    def __call__(self, key, shape):
        limit = math.sqrt(6 / (shape[0] + shape[-1]))
        return jax.random.uniform(key, shape, jnp.float32, -limit, limit)


@dataclass(frozen=True)
class Constant(Initializer):
    """The same value everywhere."""

    value: float = 0.0
    """The value."""

    def __call__(self, key, shape):
        return jnp.full(shape, self.value, jnp.float32)


@dataclass(frozen=True)
class Identity(Initializer):
    """The identity matrix."""

    def __call__(self, key, shape):
        return jnp.eye(*shape, dtype=jnp.float32)


@dataclass(frozen=True)
class FirstRow(Initializer):
    """1 in the first row, 0 in all others."""

    name = "first_row"

    def __call__(self, key, shape):
        return jnp.zeros(shape, jnp.float32).at[0].set(1.0)


@dataclass(frozen=True)
class Parameter:
    """A parameter that a variant or a module asks for.

    `decay` says whether weight decay applies; None follows common practice: to matrices only.
    """

    shape: tuple[int, ...]
    initializer: Initializer = Normal()
    decay: bool | None = None
    gain: float = 1.0
    """Factor on the initial values."""
    stacked: bool = False
    """Whether the first axis indexes separate arrays (experts, heads), each initialized on its own."""

    def __post_init__(self):
        if not isinstance(self.shape, tuple):
            meant = tuple(self.shape) if isinstance(self.shape, list) else (self.shape,)
            raise ConfigError(f"Parameter: shape {self.shape!r} is no tuple, such as {meant}")
        if isinstance(self.initializer, type):
            raise ConfigError(f"Parameter: the initializer is a class; {self.initializer.__name__}() is a value of it")
        if not callable(self.initializer):
            raise ConfigError(
                f"Parameter: {self.initializer!r} is no initializer, such as Constant({self.initializer!r})"
            )

    @property
    def decayed(self) -> bool:
        """Whether weight decay applies."""
        return len(self.shape) >= 2 if self.decay is None else self.decay

    @property
    def single(self) -> tuple[int, ...]:
        """The shape of one array."""
        return self.shape[1:] if self.stacked else self.shape

    def initial_value(self, key: jax.Array) -> jax.Array:
        """Initial values of the shape `shape`, float32."""
        if not self.stacked:
            return self.gain * self.initializer(key, self.shape)
        keys = jax.random.split(key, self.shape[0])
        return self.gain * jax.vmap(lambda key: self.initializer(key, self.shape[1:]))(keys)


ZEROS, ONES = Constant(0.0), Constant(1.0)

OwnParams = dict[str, jax.Array]
"""The parameters that one variant owns, by their names in its `parameters()`."""
