"""Normalization methods."""

import abc
from dataclasses import dataclass
from typing import ClassVar

import jax

from transformer.config.parameters import ONES, ZEROS, Parameter
from transformer.config.variant import Variant
from transformer.functional import norms


class Norm(Variant, abc.ABC):
    """Normalizes the features of each token. A new norm is one frozen dataclass."""

    mixes_tokens: ClassVar[bool] = False
    """Whether its statistics run over tokens: such a norm cannot stand in a causal model."""

    def parameters(self, d_model: int) -> dict[str, Parameter]:
        """The parameters it owns, by name."""
        return {}

    @abc.abstractmethod
    def __call__(self, x_BLD: jax.Array, params: dict[str, jax.Array]) -> jax.Array:
        """(B, L, D) to (B, L, D) in the same dtype."""

    def normalize(self, x_BLD: jax.Array, valid_BL: jax.Array | None, params: dict[str, jax.Array]) -> jax.Array:
        """The same where padding matters: `valid_BL` is False there."""
        return self(x_BLD, params)


@dataclass(frozen=True)
class LayerNorm(Norm):
    """Ba, Kiros and Hinton 2016; `bias=False` as in Xu et al. 2019."""

    eps: float = 1e-5
    bias: bool = True

    def parameters(self, d_model):
        scale = {"scale": Parameter((d_model,), ONES)}
        return scale | {"bias": Parameter((d_model,), ZEROS)} if self.bias else scale

    def __call__(self, x_BLD, params):
        return norms.layer_norm(x_BLD, scale_D=params["scale"], bias_D=params.get("bias"), eps=self.eps)


@dataclass(frozen=True)
class SequenceLayerNorm(Norm):
    """LayerNorm with the mean and variance of all features of all real tokens of a sequence.

    (The normalization of Ba, Kiros and Hinton 2016 with a sequence as the layer.) For encoders: in a
    causal model it would let later tokens be seen.
    """

    name = "sequence_layernorm"
    eps: float = 1e-5
    mixes_tokens = True

    def parameters(self, d_model):
        return {"scale": Parameter((d_model,), ONES), "bias": Parameter((d_model,), ZEROS)}

    def __call__(self, x_BLD, params):
        return self.normalize(x_BLD, None, params)

    def normalize(self, x_BLD, valid_BL, params):
        return norms.sequence_layer_norm(x_BLD, valid_BL, scale_D=params["scale"], bias_D=params["bias"], eps=self.eps)


@dataclass(frozen=True)
class RMSNorm(Norm):
    """Zhang and Sennrich 2019."""

    eps: float = 1e-6

    def parameters(self, d_model):
        return {"scale": Parameter((d_model,), ONES)}

    def __call__(self, x_BLD, params):
        return norms.rms_norm(x_BLD, scale_D=params["scale"], eps=self.eps)


@dataclass(frozen=True)
class NoNorm(Norm):
    """The features as they are."""

    name = "none"

    def __call__(self, x_BLD, params):
        return x_BLD
