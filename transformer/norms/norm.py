"""Normalization of the features of each token: LayerNorm, RMSNorm, and what all norms share."""

import abc
import math
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from transformer.core.checks import check_not_negative
from transformer.core.errors import ConfigError
from transformer.core.modules import Parameters, at
from transformer.core.parameters import ONES, ZEROS, OwnParams, Parameter
from transformer.core.values import Variant


class Norm(Variant):
    """Normalizes the features of each token. A new norm is one frozen dataclass."""

    mixes_tokens: ClassVar[bool] = False
    """Whether its statistics run over tokens, which a causal model does not allow."""

    bounds: ClassVar[bool] = True
    """Whether its output stays of one size, however large its input."""

    def check(self, d_model: int) -> None:
        """Raise `ConfigError` where it does not fit `d_model` features."""

    def parameters(self, d_model: int) -> dict[str, Parameter]:
        """The parameters it owns, by name."""
        return {}

    @abc.abstractmethod
    def __call__(self, x_BLD: jax.Array, params: OwnParams) -> jax.Array:
        """Maps (…, D) to (…, D) in the same dtype."""

    def normalize(self, x_BLD: jax.Array, valid_BL: jax.Array | None, params: OwnParams) -> jax.Array:
        """The same with padding, where `valid_BL` is False."""
        return self(x_BLD, params)


def _gain(d_model: int, scale: bool, zero_centered: bool) -> dict[str, Parameter]:
    return {"scale": Parameter((d_model,), ZEROS if zero_centered else ONES)} if scale else {}


def _scale(params: OwnParams, zero_centered: bool) -> jax.Array | None:
    scale = params.get("scale")
    return 1 + scale if zero_centered and scale is not None else scale


@dataclass(frozen=True)
class LayerNorm(Norm):
    """scale · (x - mean) / √(variance + eps) + bias (Ba, Kiros and Hinton 2016).

    Without the bias as in Xu et al. 2019 and PaLM; without both as in OLMo (Groeneveld et al. 2024).
    """

    eps: float = 1e-5
    """Added to the variance."""
    bias: bool = True
    """Whether there is a trained bias."""
    scale: bool = True
    """Whether there is a trained gain."""
    zero_centered: bool = False
    """Whether the gain is 1 + scale with an initial scale of 0 (Gemma, 2024), to which weight decay pulls it where a
    group of parameters has some."""
    eps_outside: bool = False
    """Whether to divide by √variance + eps."""
    cast_first: bool = False
    """Whether to round to the compute dtype before the gain, not after."""

    def __post_init__(self):
        check_not_negative(self, "eps")

    def parameters(self, d_model):
        bias = {"bias": Parameter((d_model,), ZEROS)} if self.bias else {}
        return _gain(d_model, self.scale, self.zero_centered) | bias

    def __call__(self, x_BLD, params):
        return layer_norm(
            x_BLD,
            scale_D=_scale(params, self.zero_centered),
            bias_D=params.get("bias"),
            eps=self.eps,
            eps_outside=self.eps_outside,
            cast_first=self.cast_first,
        )


@dataclass(frozen=True)
class RMSNorm(Norm):
    """scale · x / √(mean x² + eps) (Zhang and Sennrich 2019); without scale as in TransNormer (Qin et al. 2023)."""

    eps: float = 1e-6
    """Added to the mean square."""
    scale: bool = True
    """Whether there is a trained gain."""
    zero_centered: bool = False
    """Whether the gain is 1 + scale with an initial scale of 0 (Gemma, 2024)."""
    fraction: float = 1.0
    """Share of the features, from the first, whose mean is taken (pRMSNorm, section 4.2)."""
    eps_outside: bool = False
    """Whether to divide by √mean x² + eps."""
    cast_first: bool = False
    """Whether to round to the compute dtype before the gain, not after (Llama)."""

    def __post_init__(self):
        check_not_negative(self, "eps")
        if not 0 < self.fraction <= 1:
            raise ConfigError(f"rmsnorm.fraction: {self.fraction} is not in (0, 1]")

    def parameters(self, d_model):
        return _gain(d_model, self.scale, self.zero_centered)

    def __call__(self, x_BLD, params):
        return rms_norm(
            x_BLD,
            scale_D=_scale(params, self.zero_centered),
            eps=self.eps,
            fraction=self.fraction,
            eps_outside=self.eps_outside,
            cast_first=self.cast_first,
        )


class NormLayer(nnx.Module):
    """A `Norm` of the config with the parameters it asks for."""

    def __init__(self, norm: Norm, d_model: int, name: str, *, key: jax.Array):
        self.norm, self.name = norm, name
        self.params = Parameters(norm.parameters(d_model), key=at(key, name))

    def __call__(self, x_BLD: jax.Array, valid_BL: jax.Array | None = None) -> jax.Array:
        with jax.named_scope(self.name):
            return self.norm.normalize(x_BLD, valid_BL, self.params())


def norm_layer(norm: Norm | None, width: int, name: str, *, key: jax.Array) -> NormLayer | None:
    """The layer of a norm; None: no norm."""
    return None if norm is None else NormLayer(norm, width, name, key=key)


def layer_norm(
    x: jax.Array, *, scale_D=None, bias_D=None, eps: float = 1e-5, eps_outside: bool = False, cast_first: bool = False
) -> jax.Array:
    """scale · (x - mean) / √(variance + eps) + bias (Ba, Kiros and Hinton 2016, equation 4).

    Args:
      x: (…, D), any float dtype; the result has the same.
      scale_D: (D,); None: 1.
      bias_D: (D,); None: 0.
      eps: keeps the quotient finite where the variance is 0.
      eps_outside: divide by √variance + eps instead.
      cast_first: round to the dtype of `x` before scale and bias, not after.
    """
    x32 = x.astype(jnp.float32)
    centred = x32 - x32.mean(-1, keepdims=True)
    out = centred * inverse_root((centred * centred).mean(-1, keepdims=True), eps, eps_outside)
    return affine(_cast(out, x, cast_first), scale_D, bias_D).astype(x.dtype)


def rms_norm(
    x: jax.Array,
    *,
    scale_D=None,
    eps: float = 1e-6,
    fraction: float = 1.0,
    eps_outside: bool = False,
    cast_first: bool = False,
) -> jax.Array:
    """scale · x / √(mean x² + eps) (Zhang and Sennrich 2019, equation 4); arguments as in `layer_norm`.

    `fraction`: the mean is taken over this share of the features, rounded up, from the first (pRMSNorm, section 4.2).
    """
    x32 = x.astype(jnp.float32)
    # 100 · .07 is 7.000000000000001.
    seen = x32[..., : max(1, math.ceil(x.shape[-1] * fraction - 1e-9))]
    out = x32 * inverse_root((seen * seen).mean(-1, keepdims=True), eps, eps_outside)
    return affine(_cast(out, x, cast_first), scale_D, None).astype(x.dtype)


def inverse_root(square, eps: float, eps_outside: bool):
    # 1e-30 keeps the gradient of the root finite where all features are equal.
    inverse = 1 / (jnp.sqrt(square + 1e-30) + eps) if eps_outside else jax.lax.rsqrt(square + eps)
    return checkpoint_name(inverse, "scale")


def _cast(out, x, cast_first: bool):
    return out.astype(x.dtype).astype(jnp.float32) if cast_first else out


def affine(x, scale_D, bias_D):
    x = x if scale_D is None else x * scale_D.astype(jnp.float32)
    return x if bias_D is None else x + bias_D.astype(jnp.float32)
