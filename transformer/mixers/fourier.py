"""Mixing of tokens by a Fourier transform, without parameters."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from transformer.mixers.mixer import Mixer


@dataclass(frozen=True)
class Fourier(Mixer):
    """The real part of the transform over the tokens of a sequence and over features (FNet, Lee-Thorp et al. 2021)."""

    causal = False

    def __call__(self, x_BLD, context, params):
        assert context.mask is not None
        together_BLL = context.mask(context.tokens, context.tokens)[:, 0]
        return fourier_mix(x_BLD, together_BLL), None


def fourier_mix(x_BLD: jax.Array, together_BLL: jax.Array) -> jax.Array:
    """Re F_tokens(F_features(x)), each sequence on its own (FNet, Lee-Thorp et al. 2021, equation 3).

    Computed as products with the matrices of the transforms, so that padding and packed documents of any
    lengths are no special case; O(L²) like attention.

    Args:
      together_BLL: (B or 1, L, L), whether two tokens belong to the same sequence and the second is no padding.
    """
    together = together_BLL.astype(jnp.float32)
    length_BL1 = jnp.maximum(together_BLL.sum(-1, keepdims=True, dtype=jnp.int32), 1)
    place_BL = jnp.tril(together_BLL, -1).sum(-1, dtype=jnp.int32)  # index of a token in its sequence
    # Whole turns change no cosine: without them an angle is exact in float32 (products up to 46,340 tokens).
    rest_BLL = (place_BL[:, :, None] * place_BL[:, None, :]) % length_BL1
    turns = rest_BLL.astype(jnp.float32) / length_BL1.astype(jnp.float32)
    cosine_BLL, sine_BLL = (f(2 * jnp.pi * turns) * together for f in (jnp.cos, jnp.sin))
    D = x_BLD.shape[-1]
    angle_DD = 2 * jnp.pi * ((jnp.arange(D)[:, None] * jnp.arange(D)) % D).astype(jnp.float32) / D
    x = x_BLD.astype(jnp.float32)
    return (cosine_BLL @ (x @ jnp.cos(angle_DD)) - sine_BLL @ (x @ jnp.sin(angle_DD))).astype(x_BLD.dtype)
