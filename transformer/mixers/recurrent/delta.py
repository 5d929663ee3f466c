"""The delta rule: what is stored at a key is replaced, not added to."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from einops import rearrange

from transformer.core.arrays import dense
from transformer.core.checks import check_positive
from transformer.core.parameters import OwnParams, Parameter
from transformer.functional.linear_recurrences import Erase, Update, linear_step
from transformer.functional.masks import Tokens
from transformer.mixers.recurrent.initial_values import LogUniform, StepSize
from transformer.mixers.recurrent.linear import (
    STATE,
    ProjectedRecurrence,
    low_rank,
    low_rank_parameters,
    split_heads,
    unit,
)


@dataclass(frozen=True)
class DeltaNet(ProjectedRecurrence):
    """S ← (I - β k kᵀ) S + β k vᵀ with β = σ(xW), q and k of length 1 (Yang et al. 2024, equations 3 and 12)."""

    negative_eigenvalues: bool = False
    """Whether β is 2σ(xW), so that I - β k kᵀ may reflect and states can be tracked (Grazzi et al. 2025)."""

    def gates(self, model):
        return {"rate": Parameter((model.d_model, self.num_heads), model.initializer)}

    def rate(self, x_BLD: jax.Array, params: OwnParams) -> jax.Array:
        """β (B, L, …) of all writes."""
        rate = jax.nn.sigmoid(dense(x_BLD, params["rate"], jnp.float32))
        return 2 * rate if self.negative_eigenvalues else rate

    def log_decay(self, x_BLD: jax.Array, params: OwnParams) -> jax.Array | None:
        """(B, L, H, 1 or K); None: nothing fades."""
        return None

    def update(self, q_BLHK, k_BLHK, v_BLHV, x_BLD, params):
        q, k, rate_BLH = unit(q_BLHK) * q_BLHK.shape[-1] ** -0.5, unit(k_BLHK), self.rate(x_BLD, params)
        return Update(q, k, rate_BLH[..., None] * v_BLHV, self.log_decay(x_BLD, params), Erase(rate_BLH))


@dataclass(frozen=True)
class GatedDeltaNet(DeltaNet):
    """S ← α (I - β k kᵀ) S + β k vᵀ with log α = -exp(a) softplus(xW + b) (Yang et al. 2025, equation 10).

    exp(a) is initially uniform in [1, 16], softplus(b) log-uniform in [.001, .1], as in Mamba-2. The output gate is
    SiLU.
    """

    name = "gated_deltanet"
    output_gate = jax.nn.silu

    def gates(self, model):
        H = self.num_heads
        return super().gates(model) | {
            "forget": Parameter((model.d_model, H), model.initializer),
            "forget_bias": Parameter((H,), StepSize()),
            "forget_rate": Parameter((H,), LogUniform()),
        }

    def log_decay(self, x_BLD, params):
        forget_BLH = jax.nn.softplus(dense(x_BLD, params["forget"], jnp.float32) + params["forget_bias"])
        return (-jnp.exp(params["forget_rate"]) * forget_BLH)[..., None]


@dataclass(frozen=True)
class KimiDeltaAttention(DeltaNet):
    """S ← (I - β k kᵀ) (α ⊙ S) + β k vᵀ, a delta rule with a decay of every feature (Kimi Linear, 2025, equation 1).

    log α = -exp(a_h) softplus(x W₁ W₂ + b); the output gate is σ(x W₃ W₄); W₁ and W₃ are as wide as a head.
    """

    name = "kda"
    output_gate = jax.nn.sigmoid

    def gates(self, model):
        D, initializer, H, (K, V) = model.d_model, model.initializer, self.num_heads, self.sizes(model)
        return super().gates(model) | {
            **low_rank_parameters("forget", (D, V, H * K), initializer),
            "forget_bias": Parameter((H * K,), StepSize()),
            "forget_rate": Parameter((H,), LogUniform()),
        }

    def gate_parameters(self, model):
        V = self.sizes(model)[1]
        return low_rank_parameters("gate", (model.d_model, V, self.num_heads * V), model.initializer)

    def log_decay(self, x_BLD, params):
        forget_BLX = jax.nn.softplus(low_rank(x_BLD, params, "forget") + params["forget_bias"])
        return -jnp.exp(params["forget_rate"])[:, None] * split_heads(forget_BLX, self.num_heads)

    def gate(self, x_BLD, params):
        return low_rank(x_BLD, params, "gate")


@dataclass(frozen=True)
class DeltaProduct(GatedDeltaNet):
    """`steps` delta rules for every token, each with a key, value and rate of its own (Siems et al. 2025, equation 3).

    The product of their transitions reaches any orthogonal matrix that differs from the
    identity in at most `steps` dimensions. What fades, fades once a token.
    """

    steps: int = 2
    """Writes of a token."""
    negative_eigenvalues: bool = True
    forgets: bool = True
    """Whether the state fades as in `gated_deltanet`."""

    def __post_init__(self):
        super().__post_init__()
        check_positive(self, "steps")

    def widths(self, model):
        widths = super().widths(model)
        return {name: width * (1 if name == "query" else self.steps) for name, width in widths.items()}

    def gates(self, model):
        gates = super().gates(model)
        kept = gates if self.forgets else {"rate": gates["rate"]}
        return kept | {"rate": Parameter((model.d_model, self.steps * self.num_heads), model.initializer)}

    def inputs(self, x_BLD, mixed_BLX, params):
        """(the update of each write, arrays (B, L, steps, H, …), the values)."""
        q, k, v = self.features(x_BLD, mixed_BLX, params)
        n, H, K = self.steps, self.num_heads, q.shape[-1] // self.key_heads
        q = unit(self.shared(split_heads(q, self.key_heads))) * K**-0.5
        k_BLNHK = jnp.repeat(rearrange(k, "b l (n g k) -> b l n g k", n=n, k=K), H // self.key_heads, 3)
        v_BLNHV = rearrange(v, "b l (n h v) -> b l n h v", n=n, h=H)
        rate_BLNH = rearrange(self.rate(x_BLD, params), "b l (n h) -> b l n h", n=n)
        first, last = (jnp.arange(n)[:, None, None] == i for i in (0, n - 1))
        log_decay = jnp.where(first, self.log_decay(x_BLD, params)[:, :, None], 0.0) if self.forgets else None
        q_BLNHK = jnp.where(last, q[:, :, None], 0.0)
        return Update(q_BLNHK, unit(k_BLNHK), rate_BLNH[..., None] * v_BLNHV, log_decay, Erase(rate_BLNH)), v_BLNHV

    def step(self, state, inputs):
        memory, y_BHV = state[STATE], inputs[1][:, 0]
        for i in range(self.steps):
            memory, y_BHV = linear_step(memory, jax.tree.map(lambda x, i=i: x[:, i], inputs[0]))
        return {STATE: memory}, y_BHV

    def parallel(self, state, inputs, tokens):
        n = self.steps
        writes = jax.tree.map(lambda x: x.reshape(len(x), -1, *x.shape[3:]), inputs[0])
        segments, valid = (None if x is None else jnp.repeat(x, n, 1) for x in (tokens.segments, tokens.valid))
        each = Tokens.at(jnp.arange(n * tokens.length), segments, valid)
        y_BLHV, after = super().parallel(state, (writes, None), each)
        return y_BLHV[:, n - 1 :: n], after
