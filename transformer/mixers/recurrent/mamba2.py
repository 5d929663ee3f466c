"""The state-space mixer of Mamba-2."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from einops import rearrange

from transformer.core.arrays import dense
from transformer.core.parameters import ONES, ZEROS, Parameter
from transformer.functional.linear_recurrences import Update
from transformer.mixers.recurrent.initial_values import LogUniform, StepSize
from transformer.mixers.recurrent.linear import ROLES, ProjectedRecurrence, split_heads
from transformer.norms.norm import rms_norm


@dataclass(frozen=True)
class Mamba2(ProjectedRecurrence):
    """S ← exp(-Δ e^a) S + Δ B xᵀ, y = Sᵀ C + d x, and the output is norm(y ⊙ silu(z)) W (Dao and Gu 2024, SSD).

    C, B and x are the queries, keys and values, Δ = softplus(xW + b). The e^a are initially uniform in [1, 16],
    softplus(b) log-uniform in [.001, .1]. The paper has H · V = 2 d_model, V = 64, K = 128 and few key heads.
    """

    convolution_bias: bool = True
    """Whether the convolution has a bias."""
    output_gate = jax.nn.silu

    def gates(self, model):
        H = self.num_heads
        own = {
            "step": Parameter((model.d_model, H), model.initializer),
            "step_bias": Parameter((H,), StepSize()),
            "fading": Parameter((H,), LogUniform()),
            "skip": Parameter((H,), ONES),
        }
        if self.convolution is not None and self.convolution_bias:
            own |= {f"{name}_bias": Parameter((width,), ZEROS) for name, width in self.widths(model).items()}
        return own

    def norm_parameters(self, model):
        return {"norm": Parameter((self.num_heads * self.sizes(model)[1],), ONES)}

    def features(self, x_BLD, mixed_BLX, params):
        if mixed_BLX is not None and self.convolution_bias:
            mixed_BLX = mixed_BLX + jnp.concatenate([params[f"{name}_bias"] for name in ROLES])
        return super().features(x_BLD, mixed_BLX, params)

    def update(self, q_BLHK, k_BLHK, v_BLHV, x_BLD, params):
        step_BLH1 = jax.nn.softplus(dense(x_BLD, params["step"], jnp.float32) + params["step_bias"])[..., None]
        log_decay = -jnp.exp(params["fading"])[:, None] * step_BLH1
        return Update(q_BLHK, k_BLHK, step_BLH1 * v_BLHV, log_decay)

    def output(self, y_BLX, inputs, x_BLD, params):
        y_BLX = rearrange(y_BLX + params["skip"][:, None] * inputs[1], "b l h v -> b l (h v)")
        groups_BLGX = split_heads(y_BLX * jax.nn.silu(self.gate(x_BLD, params)), self.key_heads)
        y_BLX = rearrange(rms_norm(groups_BLGX, eps=self.eps), "b l g x -> b l (g x)") * params["norm"]
        return dense(y_BLX.astype(x_BLD.dtype), params["out"])
