"""The time mixing of RWKV-7."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from einops import rearrange

from transformer.core.arrays import dense, times
from transformer.core.checks import check_positive
from transformer.core.parameters import ONES, ZEROS, Constant, Initializer, Parameter
from transformer.functional.linear_recurrences import Erase, Update
from transformer.mixers.recurrent.initial_values import Ramp, Shares
from transformer.mixers.recurrent.linear import LinearRecurrence, low_rank, low_rank_parameters, split_heads, unit
from transformer.mixers.recurrent.recurrence import WINDOW
from transformer.norms.norm import layer_norm

MIXED = {"query": 0.2, "decay": 0.9, "key": 0.9, "value": 0.4, "rate": 0.9, "gate": 0.2}
"""What is made of a mixture of the token and the one before it, with the power of its initial shares."""


@dataclass(frozen=True)
class RWKV7(LinearRecurrence):
    """S ← (diag(w) - (a ⊙ κ) κᵀ) S + k vᵀ: a delta rule whose key to erase and to write differ (Peng et al. 2025).

    Every projection reads a trained mixture of the token and the one before it (equation 3); w, a and the output gate
    are of low rank (equations 4 to 11), log w is in (-0.61, 0), and (r·(ρ ⊙ k)) v is added to the output
    (equation 21). Initial values are those of a first layer in the authors' code of the paper, but for matrices that
    `model.initializer` gives; the low-rank ones begin at 0. There is no mixture of values with those of the first
    layer.
    """

    rank: int = 32
    """Width of w, a and the gate between their two matrices."""
    eps: float = 64e-5

    def __post_init__(self):
        super().__post_init__()
        check_positive(self, "rank")

    def parameters(self, model):
        D, initializer, H, (K, V) = model.d_model, model.initializer, self.num_heads, self.sizes(model)
        wide = H * K
        return {
            "query": Parameter((D, wide), initializer),
            "key": Parameter((D, wide), initializer),
            "value": Parameter((D, H * V), initializer, gain=model.inner_gain(model.residual)),
            "mixture": Parameter((len(MIXED), D), Shares(tuple(MIXED.values())), decay=False),
            **_from_zero("decay", (D, self.rank, wide), initializer),
            "decay_bias": Parameter((wide,), Ramp(-6.5, -1.5, 0.85)),
            **_from_zero("rate", (D, self.rank, wide), initializer),
            "rate_bias": Parameter((wide,), ZEROS),
            **_from_zero("gate", (D, self.rank, H * V), initializer),
            "erased": Parameter((wide,), Constant(0.85)),
            "written": Parameter((wide,), ONES),
            "bonus": Parameter((H, K), ZEROS, decay=False),
            "norm": Parameter((H, V), ONES, decay=False),
            "norm_bias": Parameter((H, V), ZEROS, decay=False),
            "out": Parameter((H * V, D), initializer, gain=model.output_gain(model.residual)),
        }

    def state(self, model):
        return super().state(model) | {WINDOW: (1, model.d_model)}

    def kernel(self, params):
        """The token before."""
        return jnp.stack([jnp.zeros_like(params["mixture"][0]), jnp.ones_like(params["mixture"][0])])

    def inputs(self, x_BLD, mixed_BLX, params):
        """(the update, the bonus (B, L, H, V) and what the gate is computed from)."""
        assert mixed_BLX is not None
        more_BLD = mixed_BLX - x_BLD
        mixed = {name: x_BLD + times(params["mixture"][i], more_BLD) for i, name in enumerate(MIXED)}
        r, k, v = (dense(mixed[name], params[name], jnp.float32) for name in ("query", "key", "value"))
        decay = low_rank(mixed["decay"], params, "decay", jnp.tanh) + params["decay_bias"]
        rate = jax.nn.sigmoid(low_rank(mixed["rate"], params, "rate") + params["rate_bias"])
        log_decay = -math.exp(-0.5) * jax.nn.sigmoid(decay)
        written, erased = k * (1 + (rate - 1) * params["written"]), k * params["erased"]
        all_heads = (split_heads(x, self.num_heads) for x in (r, written, v, rate, log_decay, erased))
        r, k, v, rate, log_decay, erased = all_heads
        erased = unit(erased)
        # What is erased is read before the state fades.
        erase = Erase(jnp.ones_like(v[..., 0]), erased * jnp.exp(-log_decay), rate * erased)
        bonus_BLHV = (r * params["bonus"] * k).sum(-1, keepdims=True) * v
        return Update(r, k, v, log_decay, erase), (bonus_BLHV, mixed["gate"])

    def output(self, y_BLX, inputs, x_BLD, params):
        bonus_BLHV, gate_BLD = inputs[1]
        y_BLHV = layer_norm(y_BLX, eps=self.eps) * params["norm"] + params["norm_bias"] + bonus_BLHV
        gate_BLX = low_rank(gate_BLD, params, "gate", jax.nn.sigmoid)
        return dense((rearrange(y_BLHV, "b l h v -> b l (h v)") * gate_BLX).astype(x_BLD.dtype), params["out"])


def _from_zero(name: str, shape: tuple[int, int, int], initializer: Initializer) -> dict[str, Parameter]:
    """Low-rank matrices whose product is 0 initially."""
    return low_rank_parameters(name, shape, initializer) | {f"{name}_in": Parameter(shape[:2], ZEROS)}
