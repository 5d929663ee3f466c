"""Functions of the states before the output projection."""

import abc
from dataclasses import dataclass

import jax

from transformer.activations.activation import GELU, Activation
from transformer.core.dense import dense
from transformer.core.parameters import ZEROS, Normal, Parameter
from transformer.core.values import ConfigError, Variant
from transformer.norms.norm import LayerNorm, Norm


class Readout(Variant, abc.ABC):
    """A function of the states before the output projection, (B, L, D) to (B, L, D)."""

    def check(self, d_model: int) -> None:
        """Raise `ConfigError` where it does not fit `d_model` features."""

    def parameters(self, d_model: int) -> dict[str, Parameter]:
        """The parameters it owns, by name."""
        return {}

    @abc.abstractmethod
    def __call__(self, x_BLD: jax.Array, params: dict[str, jax.Array]) -> jax.Array: ...


@dataclass(frozen=True)
class PlainReadout(Readout):
    """Leaves the states as they are."""

    name = "plain"

    def __call__(self, x_BLD, params):
        return x_BLD


@dataclass(frozen=True)
class DenseReadout(Readout):
    """norm(activation(xW + b)), the head of BERT for masked tokens (Devlin et al. 2018)."""

    name = "dense"
    activation: Activation = GELU()
    """Activation, of one branch."""
    norm: Norm = LayerNorm()
    """Norm after it."""

    def check(self, d_model):
        self.norm.check(d_model)
        if self.activation.branches != 1:
            raise ConfigError(
                f"model.readout: {self.activation} takes {self.activation.branches} branches, and dense 1"
            )
        if self.norm.mixes_tokens:
            raise ConfigError(f"model.readout: {self.norm} is a norm of whole sequences; use layernorm")

    def parameters(self, d_model):
        own = {"kernel": Parameter((d_model, d_model), Normal(0.02)), "bias": Parameter((d_model,), ZEROS)}
        return own | {f"norm_{name}": spec for name, spec in self.norm.parameters(d_model).items()}

    def __call__(self, x_BLD, params):
        x_BLD = dense(x_BLD, params["kernel"])
        x_BLD = self.activation(x_BLD + params["bias"].astype(x_BLD.dtype))
        return self.norm(x_BLD, {name.removeprefix("norm_"): value for name, value in params.items()})
