"""Gated linear attention and HGRN2: every feature of the key has a decay that depends on the token."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from transformer.core.checks import check_positive
from transformer.core.errors import ConfigError
from transformer.core.parameters import ZEROS, Parameter
from transformer.functional.linear_recurrences import Update
from transformer.mixers.recurrent.linear import ProjectedRecurrence, low_rank, low_rank_parameters, split_heads


@dataclass(frozen=True)
class GatedLinearAttention(ProjectedRecurrence):
    """S ← α ⊙ S + k vᵀ with log α = log σ(x W₁ W₂ + b) / 16 (GLA, Yang et al. 2024, section 4.4).

    The output gate is SiLU. The paper has K = V / 2.
    """

    name = "gla"
    convolution: int | None = None
    rank: int = 16
    """Width between W₁ and W₂."""
    temperature: float = 16.0
    """What log σ is divided by, so that little is forgotten at first."""
    output_gate = jax.nn.silu

    def __post_init__(self):
        super().__post_init__()
        check_positive(self, "rank", "temperature")

    def gates(self, model):
        wide = self.key_heads * self.sizes(model)[0]
        forget = low_rank_parameters("forget", (model.d_model, self.rank, wide), model.initializer)
        return forget | {"forget_bias": Parameter((wide,), ZEROS)}

    def update(self, q_BLHK, k_BLHK, v_BLHV, x_BLD, params):
        forget_BLX = low_rank(x_BLD, params, "forget") + params["forget_bias"]
        log_decay = jax.nn.log_sigmoid(self.shared(split_heads(forget_BLX, self.key_heads))) / self.temperature
        return Update(q_BLHK * q_BLHK.shape[-1] ** -0.5, k_BLHK, v_BLHV, log_decay)


@dataclass(frozen=True)
class HGRN2(ProjectedRecurrence):
    """S ← f ⊙ S + (1 - f) vᵀ, f = γ + (1 - γ) σ(xW), q = SiLU(xW_q) (Qin et al. 2024, section 3.2).

    The forget gate is the key's complement, so there is no projection of keys. In the paper γ grows with depth and is
    trained; in the authors' code values go through SiLU too.
    """

    convolution: int | None = None
    lower_bound: float = 0.0
    """γ: the least that is kept of the state, in [0, 1)."""

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.lower_bound < 1:
            raise ConfigError(f"hgrn2.lower_bound: {self.lower_bound} is not in [0, 1)")

    def update(self, q_BLHK, k_BLHK, v_BLHV, x_BLD, params):
        # The projection of keys is that of the forget gate; 1 - f and log f are exact also where f rounds to 1 or 0.
        new = (1 - self.lower_bound) * jax.nn.sigmoid(-k_BLHK)
        log_forget = jnp.log1p(-new) if self.lower_bound else jax.nn.log_sigmoid(k_BLHK)
        return Update(jax.nn.silu(q_BLHK), new, v_BLHV, log_forget)
