"""LayerNorm of groups of features."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from transformer.core.checks import check_not_negative
from transformer.core.errors import ConfigError
from transformer.core.parameters import ONES, ZEROS, Parameter
from transformer.norms.norm import Norm, affine, layer_norm


@dataclass(frozen=True)
class GroupNorm(Norm):
    """LayerNorm of each of `groups` equal parts of a token's features (Wu and He 2018)."""

    groups: int = 2
    """Number of parts, which divides the number of features."""
    eps: float = 1e-5

    def __post_init__(self):
        check_not_negative(self, "eps")

    def check(self, d_model):
        if self.groups < 1 or d_model % self.groups:
            raise ConfigError(f"groupnorm.groups: {self.groups} do not divide {d_model} features")

    def parameters(self, d_model):
        return {"scale": Parameter((d_model,), ONES), "bias": Parameter((d_model,), ZEROS)}

    def __call__(self, x_BLD, params):
        return group_norm(x_BLD, self.groups, scale_D=params["scale"], bias_D=params["bias"], eps=self.eps)


def group_norm(x: jax.Array, num_groups: int, *, scale_D=None, bias_D=None, eps: float = 1e-5) -> jax.Array:
    """`layer_norm` of each of `num_groups` equal parts of the features of a token (Wu and He 2018)."""
    parts = layer_norm(x.astype(jnp.float32).reshape(*x.shape[:-1], num_groups, -1), eps=eps)
    return affine(parts.reshape(x.shape), scale_D, bias_D).astype(x.dtype)
