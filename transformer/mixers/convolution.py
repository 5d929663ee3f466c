"""Mixing of tokens by a causal convolution."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from transformer.core.arrays import dense
from transformer.core.checks import check_positive
from transformer.core.parameters import Parameter
from transformer.functional.cache import Inputs
from transformer.functional.convolution import convolve, convolve_slots
from transformer.mixers.mixer import Mixer


@dataclass(frozen=True)
class Convolution(Mixer):
    """(σ(xW₁) ⊙ a causal depthwise convolution of xW₂) W₃: a gated convolution (LFM2, Liquid AI 2025; H3's shift).

    A decoder remembers the inputs of the latest `width` tokens.
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
        D, law, gain = model.d_model, model.initializer, model.output_gain(model.residual)
        into = Parameter((D, D), law, gain=model.inner_gain(model.residual))
        taps = Parameter((self.width, D), law, decay=False)
        return {"gate": Parameter((D, D), law), "into": into, "taps": taps, "out": Parameter((D, D), law, gain=gain)}

    def __call__(self, x_BLD, context, params):
        inputs_BLD, memory = dense(x_BLD, params["into"]), None
        if context.writing is None:
            mixed_BLD = convolve(inputs_BLD, params["taps"], context.tokens)
        else:
            past = context.writing.memory.inputs_BSX
            seen_BSD, kept_BSD = context.writing.append(past, inputs_BLD, axis=1)
            mixed_BLD, memory = convolve_slots(seen_BSD, params["taps"], context.tokens, context.keys), Inputs(kept_BSD)
        gate_BLD = jax.nn.sigmoid(dense(x_BLD, params["gate"], jnp.float32)).astype(x_BLD.dtype)
        return dense(gate_BLD * mixed_BLD, params["out"]), memory
