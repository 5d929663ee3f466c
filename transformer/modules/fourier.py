"""Mixing of tokens by a Fourier transform, without parameters."""

import jax
from flax import nnx

from transformer.config.model import ModelConfig
from transformer.functional.fourier import fourier_mix
from transformer.modules.context import Context, Kept


class FourierMixing(nnx.Module):
    """The real part of the transform over the tokens of a sequence and over features (Lee-Thorp et al. 2021)."""

    def __init__(self, config: ModelConfig, *, key: jax.Array):
        """Creates no parameters."""

    def __call__(self, x_BLD: jax.Array, *, context: Context, key: jax.Array | None = None) -> tuple[jax.Array, Kept]:
        """The output (B, L, D), and an empty `Kept`."""
        assert context.mask is not None
        together_BLL = context.mask(context.tokens, context.tokens)[:, 0]
        return fourier_mix(x_BLD, together_BLL), Kept()
