"""Numbers added to attention scores: the same arguments as a mask, one number per head."""

import math
from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp

from transformer.functional.masks import Tokens


class Bias(Protocol):
    """Called with queries and keys, answers with float32 that broadcasts to (B, H, L, S).

    A bias is a pytree: its arrays may be parameters, and every attention function differentiates it.
    """

    def __call__(self, queries: Tokens, keys: Tokens) -> jax.Array: ...


def alibi_slopes(num_heads: int) -> list[float]:
    """One slope per head: 2^(-8h/H) for a power of two H (Press et al. 2021, section 3).

    Other head counts take the slopes of the power of two below, then every second slope of the
    power of two above, as the authors' code does.
    """
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2.0 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2.0 ** (-8 * h / (2 * power)) for h in range(1, 2 * power + 1, 2)]
    return slopes + between[: num_heads - power]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LinearDistance:
    """-slope · |query position - key position| (ALiBi, Press et al. 2021)."""

    slopes_H: jax.Array

    def __call__(self, queries, keys):
        distance = jnp.abs(queries.positions[:, None, :, None] - keys.positions[:, None, None, :])
        return -self.slopes_H[:, None, None] * distance.astype(jnp.float32)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Scaled:
    """A bias times a factor: `scale · (q·k + bias)` is `scale · q·k + Scaled(bias, scale)`."""

    bias: Bias
    factor: float | jax.Array

    def __call__(self, queries, keys):
        return self.factor * self.bias(queries, keys)
