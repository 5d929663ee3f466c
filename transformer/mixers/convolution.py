"""Mixing of tokens by a causal convolution."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from transformer.core.arrays import dense
from transformer.core.checks import check_positive
from transformer.core.parameters import Parameter
from transformer.functional.cache import Inputs
from transformer.mixers.local import convolve_latest
from transformer.mixers.mixer import Mixer


@dataclass(frozen=True)
class Convolution(Mixer):
    """(σ(xW₁) ⊙ a causal depthwise convolution of xW₂) W₃: a gated convolution.

    That of LFM2 (Liquid AI 2025) is gated before the convolution too, and by products alone, without σ. A decoder
    remembers the inputs of the latest `width` tokens.
    """

    width: int = 4
    """Tokens spanned, the token itself included."""
    causal = True
    sees_all = False

    def __post_init__(self):
        check_positive(self, "width")

    def span(self, model):
        return self.width

    def memory(self, model, batch_size, slots, dtype):
        return Inputs(jnp.zeros((batch_size, slots, model.d_model), dtype))

    def parameters(self, model):
        D, initializer, gain = model.d_model, model.initializer, model.output_gain(model.residual)
        into = Parameter((D, D), initializer, gain=model.inner_gain(model.residual))
        taps = Parameter((self.width, D), initializer, decay=False)
        return {
            "gate": Parameter((D, D), initializer),
            "into": into,
            "taps": taps,
            "out": Parameter((D, D), initializer, gain=gain),
        }

    def __call__(self, x_BLD, context, params):
        past_BSD = None if context.writing is None else context.writing.memory.inputs_BSX
        mixed_BLD, kept_BSD = convolve_latest(dense(x_BLD, params["into"]), params["taps"], past_BSD, context)
        gate_BLD = jax.nn.sigmoid(dense(x_BLD, params["gate"], jnp.float32)).astype(x_BLD.dtype)
        return dense(gate_BLD * mixed_BLD, params["out"]), None if kept_BSD is None else Inputs(kept_BSD)
