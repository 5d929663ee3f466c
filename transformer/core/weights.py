"""The matrix of a linear layer, made of its kernel and of parameters beside it."""

import abc
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from transformer.core.checks import check_positive
from transformer.core.parameters import ZEROS, FanIn, OwnParams, Parameter
from transformer.core.values import Variant


class Weights(Variant):
    """How the linear layers of attention and of feed-forward networks make their matrices.

    The kernel stays a parameter, with the path and the initial values that it has without, so that what was trained
    without it can be gone on from. Recurrences, convolutions, routed experts, routers, tables and heads are as they
    were.
    """

    def parameters(self, d_in: int, d_out: int) -> Mapping[str, Parameter]:
        """What a layer has beside its kernel."""
        return {}

    @abc.abstractmethod
    def __call__(self, kernel_DF: jax.Array, params: OwnParams) -> jax.Array:
        """The matrix (D, F) that the input of the layer is multiplied by."""


@dataclass(frozen=True)
class LowRank(Weights):
    """W + α/r · A B with A (D, r) and B (r, F), which is zero at first (Hu et al. 2021, LoRA, equation 3).

    The paper trains A and B alone: `optimizer.groups` of `(ParameterGroup("*.weights.*"), ParameterGroup("*", rate=0))`
    from a trained model.

    Raises:
      ConfigError: the rank is not positive.
    """

    rank: int = 8
    """r, columns of A and rows of B."""
    alpha: float = 16.0
    """α, so that another rank needs no other learning rate."""
    name = "low_rank"
    begins_as = "none"

    def __post_init__(self):
        check_positive(self, "rank")

    def parameters(self, d_in, d_out):
        return {"down": Parameter((d_in, self.rank), FanIn()), "up": Parameter((self.rank, d_out), ZEROS)}

    def __call__(self, kernel_DF, params):
        return kernel_DF + self.alpha / self.rank * params["down"] @ params["up"]


@dataclass(frozen=True)
class Ternary(Weights):
    """γ · round(W/γ) within ±γ, where γ is the mean of |W| (Ma et al. 2024, BitNet b1.58, equations 1 to 3).

    Its gradient is that of W (straight through; Bengio et al. 2013). Activations keep their digits, where the paper
    rounds them to 8 bits.
    """

    def __call__(self, kernel_DF, params):
        size = jnp.abs(kernel_DF).mean() + 1e-6
        rounded = jnp.clip(jnp.round(kernel_DF / size), -1, 1) * size
        return kernel_DF + lax.stop_gradient(rounded - kernel_DF)
