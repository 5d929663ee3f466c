"""Where the norms sit around a sublayer: one residual algebra.

    y = norm_out(a · x + b · norm_branch(f(norm_in(x))))

Every placement says which of the three norms exist and what a and b are.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import jax

from transformer.config.parameters import Parameter
from transformer.config.variant import Variant

Function = Callable[[jax.Array], jax.Array]


class Residual(Variant, abc.ABC):
    """A residual connection around a sublayer f."""

    norms: ClassVar[tuple[str, ...]] = ()
    """Which of "input", "branch" and "output" are normalized."""
    final_norm: ClassVar[bool] = False
    """Whether the stream is normalized once more after the last layer."""

    def parameters(self, d_model: int) -> dict[str, Parameter]:
        """The parameters it owns besides those of its norms, by name."""
        return {}

    @abc.abstractmethod
    def __call__(
        self, x_BLD: jax.Array, f: Function, norms: dict[str, Function], params: dict[str, jax.Array]
    ) -> jax.Array:
        """The stream after the sublayer, (B, L, D)."""


class PlainResidual(Residual):
    """The algebra with a = b = 1; its subclasses only say which norms exist."""

    def __call__(self, x_BLD, f, norms, params):
        branch = f(norms["input"](x_BLD) if "input" in norms else x_BLD)
        stream = x_BLD + (norms["branch"](branch) if "branch" in norms else branch)
        return norms["output"](stream) if "output" in norms else stream


@dataclass(frozen=True)
class PostNorm(PlainResidual):
    """norm(x + f(x)) (Vaswani et al. 2017)."""

    name = "post"
    norms = ("output",)


@dataclass(frozen=True)
class PreNorm(PlainResidual):
    """x + f(norm(x)), and a norm after the last layer (Baevski and Auli 2019; Xiong et al. 2020)."""

    name = "pre"
    norms = ("input",)
    final_norm = True


@dataclass(frozen=True)
class SandwichNorm(PlainResidual):
    """x + norm(f(norm(x))), and a norm after the last layer (Ding et al. 2021, CogView)."""

    name = "sandwich"
    norms = ("input", "branch")
    final_norm = True


@dataclass(frozen=True)
class NoNormResidual(PlainResidual):
    """x + f(x), no norm anywhere."""

    name = "none"
