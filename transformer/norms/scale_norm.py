"""Vectors of one trained length."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from transformer.core.checks import check_not_negative
from transformer.core.parameters import Constant, Parameter
from transformer.norms.norm import Norm, affine


@dataclass(frozen=True)
class ScaleNorm(Norm):
    """g · x / ‖x‖ with one trained number g, initially √D (Nguyen and Salazar 2019, equation 5)."""

    eps: float = 1e-6

    def __post_init__(self):
        check_not_negative(self, "eps")

    def parameters(self, d_model):
        return {"scale": Parameter((), Constant(math.sqrt(d_model)))}

    def __call__(self, x_BLD, params):
        return unit_norm(x_BLD, scale=params["scale"], eps=self.eps)


def unit_norm(x: jax.Array, *, scale=None, eps: float = 1e-6) -> jax.Array:
    """scale · x / ‖x‖ with one scale for all features (ScaleNorm, Nguyen and Salazar 2019, equation 5)."""
    x32 = x.astype(jnp.float32)
    size = checkpoint_name(jnp.sqrt((x32 * x32).sum(-1, keepdims=True) + eps * eps), "scale")
    return affine(x32 / size, scale, None).astype(x.dtype)
