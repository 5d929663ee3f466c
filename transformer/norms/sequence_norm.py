"""Normalization over the tokens of a sequence."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from transformer.core.checks import check_not_negative
from transformer.core.parameters import ONES, ZEROS, Parameter
from transformer.norms.norm import Norm, affine, inverse_root


@dataclass(frozen=True)
class SequenceLayerNorm(Norm):
    """LayerNorm with one mean and variance over all features of all real tokens of a sequence.

    (The normalization of Ba, Kiros and Hinton 2016 with a sequence as the layer.) For encoders only: in a
    causal model it would leak later tokens.
    """

    name = "sequence_layernorm"
    eps: float = 1e-5
    """Added to the variance."""
    mixes_tokens = True

    def __post_init__(self):
        check_not_negative(self, "eps")

    def parameters(self, d_model):
        return {"scale": Parameter((d_model,), ONES), "bias": Parameter((d_model,), ZEROS)}

    def __call__(self, x_BLD, params):
        return self.normalize(x_BLD, None, params)

    def normalize(self, x_BLD, valid_BL, params):
        return sequence_layer_norm(x_BLD, valid_BL, scale_D=params["scale"], bias_D=params["bias"], eps=self.eps)


def sequence_layer_norm(x_BLD: jax.Array, valid_BL=None, *, scale_D=None, bias_D=None, eps: float = 1e-5) -> jax.Array:
    """`layer_norm` with one mean and variance over all valid tokens and features of a sequence; `valid_BL` is bool."""
    x32 = x_BLD.astype(jnp.float32)
    real_BL = jnp.ones((1, x32.shape[1]), jnp.bool) if valid_BL is None else valid_BL
    weights = real_BL[..., None].astype(jnp.float32)
    count = jnp.maximum(weights.sum((1, 2), keepdims=True), 1.0) * x32.shape[2]
    centred = x32 - (x32 * weights).sum((1, 2), keepdims=True) / count
    variance = (centred * centred * weights).sum((1, 2), keepdims=True) / count
    return affine(centred * inverse_root(variance, eps, False), scale_D, bias_D).astype(x_BLD.dtype)
