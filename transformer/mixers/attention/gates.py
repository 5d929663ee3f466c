"""Parts of attention that multiply values, or the outputs of heads."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from transformer.core.arrays import dense, times
from transformer.core.checks import check_positive
from transformer.core.errors import ConfigError
from transformer.core.parameters import ONES, Parameter
from transformer.mixers.attention.part import Part

if TYPE_CHECKING:
    from transformer.models.config import ModelConfig


@dataclass(frozen=True)
class OutputGate(Part):
    """σ(xW) ⊙ the heads' outputs (Qiu et al. 2025, position G1)."""

    name = "output_gate"
    headwise: bool = False
    """Whether a head has one gate for all its features (Qiu et al. 2025, section 2.2)."""
    features: int | None = None
    """Features of x, from the first, that W reads (12 in github.com/KellerJordan/modded-nanogpt, 2025); None: all."""

    def __post_init__(self):
        if self.features is not None:
            check_positive(self, "features")

    def check(self, attention, model):
        if self.features is not None and self.features > model.d_model:
            raise ConfigError(f"output_gate.features: {self.features} are more than d_model {model.d_model}")

    def parameters(self, attention, model):
        sizes = attention.sizes(model)
        return _gate(model, sizes.num_heads * (1 if self.headwise else sizes.value_dim), self.features)

    def mix(self, out_BLHV, own_BLHV, x_BLD, params):
        gate = dense(x_BLD[..., : self.features], params["kernel"])
        return _gated(out_BLHV, gate.reshape(*out_BLHV.shape[:3], -1))


@dataclass(frozen=True)
class ValueGate(Part):
    """σ(xW) ⊙ the projected values (Qiu et al. 2025, position G2)."""

    name = "value_gate"

    def check(self, attention, model):
        if not attention.shape(model).widths["value"]:
            raise ConfigError(f"mixer.parts: {attention.heads} has no projection of values for {self}; use output_gate")

    def parameters(self, attention, model):
        return _gate(model, attention.shape(model).widths["value"]) if "value" in attention.roles else {}

    def project(self, role, projected_BLX, x_BLD, params):
        return _gated(projected_BLX, dense(x_BLD, params["kernel"])) if role == "value" else projected_BLX


@dataclass(frozen=True)
class HeadScale(Part):
    """The output of each head times a trained number (NormFormer, Shleifer et al. 2021, equation 2)."""

    name = "head_scale"

    def parameters(self, attention, model):
        return {"factors": Parameter((attention.num_heads,), ONES)}

    def mix(self, out_BLHV, own_BLHV, x_BLD, params):
        return times(params["factors"][:, None], out_BLHV)


def _gate(model: "ModelConfig", width: int, features: int | None = None) -> dict[str, Parameter]:
    """The matrix that makes gates of the input's first features; None: of all."""
    return {"kernel": Parameter((model.d_model if features is None else features, width), model.initializer)}


def _gated(x: jax.Array, gate: jax.Array) -> jax.Array:
    """σ(gate) · x, with the gate in float32."""
    return x * jax.nn.sigmoid(gate.astype(jnp.float32)).astype(x.dtype)
