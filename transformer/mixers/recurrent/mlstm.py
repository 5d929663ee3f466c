"""The matrix memory of xLSTM."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from transformer.core.arrays import dense
from transformer.core.checks import check_positive
from transformer.core.parameters import ONES, Constant, Parameter
from transformer.functional.linear_recurrences import Update
from transformer.mixers.recurrent.initial_values import Even
from transformer.mixers.recurrent.linear import STATE, ProjectedRecurrence
from transformer.norms.norm import layer_norm


@dataclass(frozen=True)
class MLSTM(ProjectedRecurrence):
    """S ← σ(f) S + exp(i) k vᵀ and n ← σ(f) n + exp(i) k; y = Sᵀq / max(|n·q|, 1) (xLSTM, Beck et al. 2024, eq. 19-27).

    As in xLSTM-7B (2025), gates are capped at `cap` · tanh(· / cap), so that the sums stay in the range of floats and
    need no running maximum, outputs are normalized in each head and gated by a sigmoid, and there is no convolution;
    K = V / 2 there, and `eps` 1e-6, which matters at first, as outputs begin about as small as its root. Biases of f
    are initially 3 to 6, those of i -10.
    """

    convolution: int | None = None
    cap: float = 15.0
    """Largest size of what the gates i and f are computed from."""
    output_gate = jax.nn.sigmoid

    def __post_init__(self):
        super().__post_init__()
        check_positive(self, "cap")

    def gates(self, model):
        H = self.num_heads
        return {
            "input": Parameter((model.d_model, H), model.initializer),
            "input_bias": Parameter((H,), Constant(-10.0)),
            "forget": Parameter((model.d_model, H), model.initializer),
            "forget_bias": Parameter((H,), Even()),
        }

    def state(self, model):
        K, V = self.sizes(model)
        return super().state(model) | {STATE: (self.num_heads, K, V + 1)}

    def update(self, q_BLHK, k_BLHK, v_BLHV, x_BLD, params):
        raw = (dense(x_BLD, params[name], jnp.float32) + params[f"{name}_bias"] for name in ("input", "forget"))
        input_BLH, forget_BLH = (self.cap * jnp.tanh(gate / self.cap) for gate in raw)
        # One more value, of 1, sums the keys.
        v_BLHV = jnp.concatenate([v_BLHV, jnp.ones_like(v_BLHV[..., :1])], -1)
        q = q_BLHK * q_BLHK.shape[-1] ** -0.5
        return Update(q, k_BLHK, jnp.exp(input_BLH)[..., None] * v_BLHV, jax.nn.log_sigmoid(forget_BLH)[..., None])

    def norm_parameters(self, model):
        return {"norm": Parameter((self.num_heads, self.sizes(model)[1]), ONES, decay=False)}

    def normalized(self, y_BLHV, params):
        return layer_norm(y_BLHV[..., :-1] / jnp.maximum(jnp.abs(y_BLHV[..., -1:]), 1.0), eps=self.eps) * params["norm"]
