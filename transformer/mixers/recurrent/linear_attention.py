"""Linear attention without a decay, and with a decay that does not depend on the tokens."""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from transformer.core.errors import ConfigError
from transformer.functional.biases import alibi_slopes
from transformer.functional.linear_recurrences import Update
from transformer.mixers.recurrent.linear import STATE, ProjectedRecurrence


@dataclass(frozen=True)
class LinearAttention(ProjectedRecurrence):
    """Σ_s φ(q_t)·φ(k_s) v_s / Σ_s φ(q_t)·φ(k_s) with φ = 1 + elu (Katharopoulos et al. 2020, equations 18 to 20)."""

    name = "linear_attention"
    convolution: int | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.eps != ProjectedRecurrence.eps:
            raise ConfigError(f"{self.name}.eps: {self.eps}, but there is no norm of the output that it is for")

    def state(self, model):
        K, V = self.sizes(model)
        return super().state(model) | {STATE: (self.num_heads, K, V + 1)}

    def update(self, q_BLHK, k_BLHK, v_BLHV, x_BLD, params):
        # One more value, of 1, sums the weights.
        v_BLHV = jnp.concatenate([v_BLHV, jnp.ones_like(v_BLHV[..., :1])], -1)
        return Update(1 + jax.nn.elu(q_BLHK), 1 + jax.nn.elu(k_BLHK), v_BLHV)

    def norm_parameters(self, model):
        return {}

    def normalized(self, y_BLHV, params):
        total = y_BLHV[..., -1:]
        return y_BLHV[..., :-1] / jnp.where(total == 0, 1.0, total)


@dataclass(frozen=True)
class LightningAttention(ProjectedRecurrence):
    """S ← λ_h S + k vᵀ with SiLU on q, k and v and a fixed decay for each head (Qin et al. 2024; MiniMax-01, 2025).

    In MiniMax-01 the slopes also shrink with depth, to nearly 0 in the last layer, and heads are normalized together.
    With decays='retnet' it has those of RetNet (Sun Y. et al. 2023, equation 8), whose retention has rotations, no SiLU
    on q, k and v, and a gate of SiLU; here it is a sigmoid.
    """

    name = "lightning_attention"
    convolution: int | None = None
    decays: Literal["slopes", "retnet"] = "slopes"
    """λ of head h, from 1: exp of minus its slope in ALiBi, 2^(-8h/H) for H a power of two; or 1 - 2^(-4-h)."""
    output_gate = jax.nn.sigmoid

    def log_decays(self) -> np.ndarray:
        """log λ (H,)."""
        if self.decays == "slopes":
            return -np.array(alibi_slopes(self.num_heads), np.float32)
        return np.log1p(-(2.0 ** (-4.0 - np.arange(1, self.num_heads + 1)))).astype(np.float32)

    def update(self, q_BLHK, k_BLHK, v_BLHV, x_BLD, params):
        q, k, v = (jax.nn.silu(x) for x in (q_BLHK, k_BLHK, v_BLHV))
        decays = jnp.broadcast_to(jnp.asarray(self.log_decays())[:, None], (*k.shape[:3], 1))
        return Update(q * k.shape[-1] ** -0.5, k, v, decays)
