"""Activations of the feed-forward sublayer: products of one or more branches."""

import abc
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from transformer.core.checks import check_positive
from transformer.core.errors import ConfigError
from transformer.core.values import Variant


class Activation(Variant):
    """A function of `branches` projections of the input, each (…, F), to one (…, F) array: `__call__(self, x)`."""

    branches: ClassVar[int] = 1
    """Number of projections it takes."""

    @abc.abstractmethod
    def __call__(self, *branches: Any, **unused: Any) -> jax.Array: ...  # to type checkers: any arguments


@dataclass(frozen=True)
class ReLU(Activation):
    """max(0, x) (Vaswani et al. 2017)."""

    def __call__(self, x):
        return jax.nn.relu(x)


@dataclass(frozen=True)
class GELU(Activation):
    """x·Φ(x), exact, or its tanh approximation (Hendrycks and Gimpel 2016)."""

    tanh: bool = False
    """Whether to use the approximation, as GPT-2 does."""

    def __call__(self, x):
        return gelu_tanh(x) if self.tanh else gelu(x)


@dataclass(frozen=True)
class QuickGELU(Activation):
    """x·σ(1.702x), the sigmoid approximation of GELU (Hendrycks and Gimpel 2016, section 2; CLIP)."""

    name = "quick_gelu"

    def __call__(self, x):
        return swish(x, 1.702)


@dataclass(frozen=True)
class Swish(Activation):
    """x·σ(βx) with a fixed β (Ramachandran et al. 2017)."""

    beta: float = 1.0
    """β, which is not trained."""

    def __call__(self, x):
        return swish(x, self.beta)


@dataclass(frozen=True)
class SiLU(Activation):
    """x·σ(x), `swish` with β = 1 (Elfwing et al. 2017)."""

    def __call__(self, x):
        return swish(x)


@dataclass(frozen=True)
class SquaredReLU(Activation):
    """max(0, x)² (So et al. 2021, Primer)."""

    name = "squared_relu"

    def __call__(self, x):
        return squared_relu(x)


@dataclass(frozen=True)
class LeakyReLU(Activation):
    """x, or slope · x below 0 (Maas et al. 2013), or its square."""

    name = "leaky_relu"
    slope: float = 0.01
    """Slope below 0."""
    squared: bool = False
    """Whether it is squared, as in `squared_relu`."""

    def __call__(self, x):
        y = jax.nn.leaky_relu(x, self.slope)
        return y * y if self.squared else y


@dataclass(frozen=True)
class Mish(Activation):
    """x·tanh(softplus(x)) (Misra 2019)."""

    def __call__(self, x):
        return jax.nn.mish(x)


@dataclass(frozen=True)
class ELU(Activation):
    """x, or α(eˣ - 1) below 0 (Clevert et al. 2015)."""

    alpha: float = 1.0
    """α: minus the limit far below 0."""

    def __call__(self, x):
        return jax.nn.elu(x, self.alpha)


@dataclass(frozen=True)
class CELU(Activation):
    """x, or α(e^(x/α) - 1) below 0 (Barron 2017)."""

    alpha: float = 2.0
    """α: minus the limit far below 0; positive."""

    def __post_init__(self):
        check_positive(self, "alpha")

    def __call__(self, x):
        return jax.nn.celu(x, self.alpha)


@dataclass(frozen=True)
class SELU(Activation):
    """The scaled ELU that keeps features at mean 0 and variance 1 (Klambauer et al. 2017)."""

    def __call__(self, x):
        return jax.nn.selu(x)


@dataclass(frozen=True)
class Softplus(Activation):
    """log(1 + eˣ)."""

    def __call__(self, x):
        return jax.nn.softplus(x)


@dataclass(frozen=True)
class Squareplus(Activation):
    """(x + √(x² + b)) / 2 (Barron 2021)."""

    b: float = 4.0
    """Curvature at 0; positive."""

    def __post_init__(self):
        check_positive(self, "b")

    def __call__(self, x):
        return jax.nn.squareplus(x, self.b)


@dataclass(frozen=True)
class Sigmoid(Activation):
    """σ(x)."""

    def __call__(self, x):
        return jax.nn.sigmoid(x)


@dataclass(frozen=True)
class Tanh(Activation):
    """tanh(x)."""

    def __call__(self, x):
        return jax.nn.tanh(x)


@dataclass(frozen=True)
class SoLU(Activation):
    """x ⊙ softmax(x) over the features of the sublayer (Elhage et al. 2022)."""

    def __call__(self, x):
        return solu(x)


@dataclass(frozen=True)
class Linear(Activation):
    """x: as the activation it makes the feed-forward sublayer linear, as the gate of `glu` the bilinear unit."""

    def __call__(self, x):
        return x


@dataclass(frozen=True)
class GLU(Activation):
    """gate(xW) ⊙ xV (Dauphin et al. 2017; the family of Shazeer 2020).

    `glu` is the gated linear unit, `glu(gate=silu)` SwiGLU, `glu(gate=gelu)` GEGLU,
    `glu(gate=relu)` ReGLU, `glu(gate=linear)` the bilinear unit.
    """

    gate: Activation = Sigmoid()
    """Activation of the gate, of one branch."""
    branches = 2

    def __post_init__(self):
        if self.gate.branches != 1:
            raise ConfigError(f"glu.gate: {self.gate} takes {self.gate.branches} branches, a gate takes one")

    def __call__(self, gate, value):
        return self.gate(gate) * value


@dataclass(frozen=True)
class ClampedSwiGLU(Activation):
    """x·σ(αx) ⊙ (v + 1) with the gate x at most `limit`, and v at most that on both sides (gpt-oss, OpenAI 2025)."""

    name = "clamped_swiglu"
    alpha: float = 1.702
    """α, which is not trained."""
    limit: float = 7.0
    """The largest size of what is multiplied."""
    branches = 2

    def __post_init__(self):
        check_positive(self, "limit")

    def __call__(self, gate, value):
        return swish(jnp.minimum(gate, self.limit), self.alpha) * (jnp.clip(value, -self.limit, self.limit) + 1)


def swish(x: jax.Array, beta: float = 1.0) -> jax.Array:
    """x·σ(βx) (Ramachandran et al. 2017)."""
    return x * jax.nn.sigmoid(beta * x)


def squared_relu(x: jax.Array) -> jax.Array:
    """max(0, x)² (So et al. 2021)."""
    return jnp.square(jax.nn.relu(x))


def solu(x: jax.Array) -> jax.Array:
    """x ⊙ softmax(x) over the features (Elhage et al. 2022); the softmax is computed in float32."""
    return x * jax.nn.softmax(x.astype(jnp.float32)).astype(x.dtype)


def gelu(x: jax.Array) -> jax.Array:
    """x·Φ(x), exact (Hendrycks and Gimpel 2016).

    Written with erf in float32: `jax.nn.gelu` lowers to erfc, which XLA on CPU computes more slowly. With fewer digits
    1 + erf is 0 where erfc is not yet.
    """
    if x.dtype == jnp.float32:
        return 0.5 * x * (1 + jax.lax.erf(x * math.sqrt(0.5)))
    return 0.5 * x * jax.lax.erfc(-x * math.sqrt(0.5))


def gelu_tanh(x: jax.Array) -> jax.Array:
    """The tanh approximation of GELU, as in GPT-2; (1 + tanh u)/2 is σ(2u), which has its digits where it is small."""
    return x * jax.nn.sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x * x * x))
