"""The recurrent block of Griffin."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from einops import rearrange

from transformer.core.arrays import dense, plus
from transformer.core.checks import check_positive
from transformer.core.errors import ConfigError
from transformer.core.parameters import ZEROS, FanIn, OwnParams, Parameter
from transformer.mixers.recurrent.elementwise import ElementwiseRecurrence
from transformer.mixers.recurrent.initial_values import SlowDecay, Taps
from transformer.mixers.recurrent.recurrence import WINDOW


@dataclass(frozen=True)
class RGLRU(ElementwiseRecurrence):
    """h ← a ⊙ h + √(1 - a²) ⊙ i ⊙ x', and the output is (gelu(xW_y) ⊙ h) W_o (Griffin, De et al. 2024, equations 1-4).

    x' is xW_x after a short convolution, log a = c r log σ(Λ), and r and i are sigmoids of projections of x' within
    `blocks` of its features. The authors' code has the first token of a text enter whole, without √(1 - a²).
    """

    name = "rg_lru"
    hidden_dim: int | None = None
    """Width of the state; None: d_model. The paper has 4/3 d_model."""
    blocks: int = 4
    """Blocks of the features; a gate of one reads that block alone."""
    convolution: int = 4
    """Tokens spanned by the convolution."""
    power: float = 8.0
    """c."""

    def __post_init__(self):
        check_positive(self, "blocks", "convolution", "power", *([] if self.hidden_dim is None else ["hidden_dim"]))

    def check(self, model):
        if self.width(model) % self.blocks:
            raise ConfigError(f"rg_lru.blocks: {self.width(model)} features are no multiple of {self.blocks} blocks")

    def width(self, model):
        return model.d_model if self.hidden_dim is None else self.hidden_dim

    def parameters(self, model):
        D, X, n, initializer = model.d_model, self.width(model), self.blocks, model.initializer
        in_block = Parameter((n, X // n, X // n), FanIn(), stacked=True)
        return {
            "gate": Parameter((D, X), initializer),
            "gate_bias": Parameter((X,), ZEROS),
            "into": Parameter((D, X), initializer, gain=model.inner_gain(model.residual)),
            "into_bias": Parameter((X,), ZEROS),
            "convolution": Parameter((self.convolution, X), Taps(), decay=False),
            "convolution_bias": Parameter((X,), ZEROS),
            "input": in_block,
            "input_bias": Parameter((X,), ZEROS),
            "forget": in_block,
            "forget_bias": Parameter((X,), ZEROS),
            "kept": Parameter((X,), SlowDecay(power=self.power)),
            "out": Parameter((X, D), initializer, gain=model.output_gain(model.residual)),
            "out_bias": Parameter((D,), ZEROS),
        }

    def state(self, model):
        return super().state(model) | {WINDOW: (self.convolution - 1, self.width(model))}

    def kernel(self, params):
        return params["convolution"]

    def project(self, x_BLD, params):
        return plus(dense(x_BLD, params["into"]), params["into_bias"])

    def inputs(self, x_BLD, mixed_BLX, params):
        assert mixed_BLX is not None
        x_BLX = mixed_BLX.astype(jnp.float32) + params["convolution_bias"]
        i, r = (jax.nn.sigmoid(self._in_blocks(x_BLX, params, name)) for name in ("input", "forget"))
        log_kept_BLX = self.power * r * jax.nn.log_sigmoid(params["kept"])
        # √ has no gradient at 0, where everything is kept.
        new_share = jnp.sqrt(jnp.maximum(-jnp.expm1(2 * log_kept_BLX), 1e-12))
        return jnp.exp(log_kept_BLX), new_share * i * x_BLX

    def _in_blocks(self, x_BLX: jax.Array, params: OwnParams, name: str) -> jax.Array:
        x_BLNX = rearrange(x_BLX, "b l (n x) -> b l n x", n=self.blocks)
        y_BLNX = jnp.einsum("blnx,nxy->blny", x_BLNX, params[name])
        return y_BLNX.reshape(x_BLX.shape) + params[f"{name}_bias"]

    def output(self, y_BLX, inputs, x_BLD, params):
        gate_BLX = dense(x_BLD, params["gate"], jnp.float32) + params["gate_bias"]
        gated_BLX = (jax.nn.gelu(gate_BLX, approximate=True) * y_BLX).astype(x_BLD.dtype)
        return plus(dense(gated_BLX, params["out"]), params["out_bias"])
