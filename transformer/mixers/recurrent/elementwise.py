"""Elementwise gated recurrences: HGRN and minGRU."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from transformer.core.arrays import dense
from transformer.core.errors import ConfigError
from transformer.core.parameters import Parameter
from transformer.functional.recurrences import recur_elementwise
from transformer.mixers.recurrent.recurrence import Recurrence

if TYPE_CHECKING:
    from transformer.models.config import ModelConfig

HIDDEN = "hidden"


class ElementwiseRecurrence(Recurrence):
    """h ← kept ⊙ h + new, computed in log L parallel steps.

    A new one defines `parameters` and `inputs`, the pair (kept, new) of arrays (B, L, X), and it may define `width` and
    `output`.
    """

    def width(self, model: "ModelConfig") -> int:
        """X: size of the state."""
        return model.d_model

    def state(self, model) -> dict[str, tuple[int, ...]]:
        return {HIDDEN: (self.width(model),)}

    def step(self, state, inputs):
        kept_BX, new_BX = inputs
        hidden_BX = kept_BX * state[HIDDEN] + new_BX
        return {HIDDEN: hidden_BX}, hidden_BX

    def parallel(self, state, inputs, tokens):
        kept_BLX, new_BLX = inputs
        hidden_BLX, last_BX = recur_elementwise(kept_BLX, new_BLX, state[HIDDEN], tokens)
        return hidden_BLX, {HIDDEN: last_BX}


@dataclass(frozen=True)
class HGRN(ElementwiseRecurrence):
    """h ← f ⊙ h + (1 - f) ⊙ c, and the output is (σ(xW_g) ⊙ h) W_o (Qin et al. 2023, equations 1 to 5, real values).

    f = γ + (1 - γ) σ(xW_f) and c = silu(xW_c). In the paper γ grows with depth and is trained. The authors' code
    normalizes h before it is gated, and gates it by SiLU.
    """

    lower_bound: float = 0.0
    """γ: the least that is kept of the state, in [0, 1)."""

    def __post_init__(self):
        if not 0 <= self.lower_bound < 1:
            raise ConfigError(f"hgrn.lower_bound: {self.lower_bound} is not in [0, 1)")

    def parameters(self, model):
        D, initializer = model.d_model, model.initializer
        gains = {"candidate": model.inner_gain(model.residual), "out": model.output_gain(model.residual)}
        return {name: Parameter((D, D), initializer, gain=gains.get(name, 1.0)) for name in ("forget", "gate", *gains)}

    def inputs(self, x_BLD, mixed_BLX, params):
        forget_BLD = dense(x_BLD, params["forget"], jnp.float32)
        candidate_BLD = jax.nn.silu(dense(x_BLD, params["candidate"], jnp.float32))
        kept_BLD = self.lower_bound + (1 - self.lower_bound) * jax.nn.sigmoid(forget_BLD)
        written_BLD = (1 - self.lower_bound) * jax.nn.sigmoid(-forget_BLD)  # 1 - kept, which would cancel
        return kept_BLD, written_BLD * candidate_BLD

    def output(self, y_BLX, inputs, x_BLD, params):
        gate_BLD = jax.nn.sigmoid(dense(x_BLD, params["gate"], jnp.float32))
        return dense((gate_BLD * y_BLX).astype(x_BLD.dtype), params["out"])


@dataclass(frozen=True)
class MinGRU(ElementwiseRecurrence):
    """h ← (1 - z) ⊙ h + z ⊙ g(xW_h), z = σ(xW_z), and the output is h W_o (Feng et al. 2024, section 3.1, appendix B).

    g(x) = x + 1/2 where x >= 0, else σ(x), so that the state is positive.
    """

    name = "min_gru"

    def parameters(self, model):
        D, initializer = model.d_model, model.initializer
        gains = {"candidate": model.inner_gain(model.residual), "out": model.output_gain(model.residual)}
        return {name: Parameter((D, D), initializer, gain=gains.get(name, 1.0)) for name in ("update", *gains)}

    def inputs(self, x_BLD, mixed_BLX, params):
        raw_BLD, candidate_BLD = (dense(x_BLD, params[name], jnp.float32) for name in ("update", "candidate"))
        positive_BLD = jnp.where(candidate_BLD >= 0, candidate_BLD + 0.5, jax.nn.sigmoid(candidate_BLD))
        return jax.nn.sigmoid(-raw_BLD), jax.nn.sigmoid(raw_BLD) * positive_BLD

    def output(self, y_BLX, inputs, x_BLD, params):
        return dense(y_BLX.astype(x_BLD.dtype), params["out"])
