"""The hierarchically gated recurrent network."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from transformer.core.arrays import dense
from transformer.core.parameters import Parameter
from transformer.core.values import ConfigError
from transformer.mixers.recurrent.recurrence import Recurrence


@dataclass(frozen=True)
class HGRN(Recurrence):
    """h ← f ⊙ h + (1 - f) ⊙ c, and the output is (σ(xW_g) ⊙ h) W_o (Qin et al. 2023, equations 1 to 5, real values).

    f = γ + (1 - γ) σ(xW_f) and c = silu(xW_c). In the paper γ grows with depth and is trained.
    """

    lower_bound: float = 0.0
    """γ: the least that is kept of the state, in [0, 1)."""

    def __post_init__(self):
        if not 0 <= self.lower_bound < 1:
            raise ConfigError(f"hgrn.lower_bound: {self.lower_bound} is not in [0, 1)")

    def parameters(self, model):
        D, law = model.d_model, model.initializer
        gains = {"candidate": model.inner_gain(model.residual), "out": model.output_gain(model.residual)}
        return {name: Parameter((D, D), law, gain=gains.get(name, 1.0)) for name in ("forget", "gate", *gains)}

    def state(self, model):
        return {"hidden": (model.d_model,)}

    def inputs(self, x_BLD, params):
        forget = jax.nn.sigmoid(dense(x_BLD, params["forget"], jnp.float32))
        kept_BLD = self.lower_bound + (1 - self.lower_bound) * forget
        candidate_BLD = jax.nn.silu(dense(x_BLD, params["candidate"], jnp.float32))
        return kept_BLD, (1 - kept_BLD) * candidate_BLD

    def step(self, state, inputs):
        kept_BD, new_BD = inputs
        hidden_BD = kept_BD * state["hidden"] + new_BD
        return {"hidden": hidden_BD}, hidden_BD

    def output(self, y_BLX, x_BLD, params):
        gate_BLD = jax.nn.sigmoid(dense(x_BLD, params["gate"], jnp.float32))
        return dense((gate_BLD * y_BLX).astype(x_BLD.dtype), params["out"])
