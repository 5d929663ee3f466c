"""Activations of the feed-forward sublayer: products of one or more branches."""

import abc
from dataclasses import dataclass
from typing import ClassVar

import jax

from transformer.config.variant import ConfigError, Variant
from transformer.functional import activations


class Activation(Variant, abc.ABC):
    """A function of `branches` projections of the input to one (…, F) array."""

    branches: ClassVar[int] = 1

    @abc.abstractmethod
    def __call__(self, *branches: jax.Array) -> jax.Array: ...


@dataclass(frozen=True)
class ReLU(Activation):
    """max(0, x) (Vaswani et al. 2017)."""

    def __call__(self, x):
        return activations.relu(x)


@dataclass(frozen=True)
class GELU(Activation):
    """x·Φ(x), exact, or its tanh approximation (Hendrycks and Gimpel 2016)."""

    tanh: bool = False

    def __call__(self, x):
        return activations.gelu_tanh(x) if self.tanh else activations.gelu(x)


@dataclass(frozen=True)
class SiLU(Activation):
    """x·σ(x) (Elfwing et al. 2017)."""

    def __call__(self, x):
        return activations.silu(x)


@dataclass(frozen=True)
class Sigmoid(Activation):
    """σ(x)."""

    def __call__(self, x):
        return activations.sigmoid(x)


@dataclass(frozen=True)
class Linear(Activation):
    """x: alone it makes the feed-forward sublayer linear, in a product it is the other factor."""

    def __call__(self, x):
        return activations.identity(x)


@dataclass(frozen=True)
class GLU(Activation):
    """gate(xW) ⊙ xV (Dauphin et al. 2017; the family of Shazeer 2020).

    `glu` is the gated linear unit, `glu(gate=silu)` SwiGLU, `glu(gate=gelu)` GEGLU,
    `glu(gate=relu)` ReGLU, `glu(gate=linear)` the bilinear unit.
    """

    gate: Activation = Sigmoid()
    branches = 2

    def __post_init__(self):
        if self.gate.branches != 1:
            raise ConfigError(f"glu.gate: {self.gate} takes {self.gate.branches} branches, a gate takes one")

    def __call__(self, gate, value):
        return self.gate(gate) * value
