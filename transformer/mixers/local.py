"""Causal convolutions of the latest tokens, for sublayers of any kind, in training and in decoding."""

import jax

from transformer.core.parameters import FanIn, Parameter
from transformer.functional.convolution import convolve, convolve_slots
from transformer.functional.masks import Tokens
from transformer.mixers.mixer import Context


def convolve_latest(
    x_BLX: jax.Array, kernel_WX: jax.Array, past_BSX: jax.Array | None, context: Context, read: Tokens | None = None
) -> tuple[jax.Array, jax.Array | None]:
    """(the convolution of features, the features in the slots of the memory with these).

    Args:
      x_BLX: features of the tokens `read`; None: those of the context.
      kernel_WX: W weights for each feature, that of the token itself first.
      past_BSX: features in the slots of the memory; None: nothing is remembered.
      context: of the sublayer.
      read: the tokens of x, where an earlier segment is read with those of the context.
    """
    if past_BSX is None:
        return convolve(x_BLX, kernel_WX, context.tokens if read is None else read), None
    assert context.writing is not None
    seen_BSX, kept_BSX = context.writing.append(past_BSX, x_BLX, axis=1)
    return convolve_slots(seen_BSX, kernel_WX, context.tokens, context.keys), kept_BSX


def canon_kernel(width: int, features: int) -> Parameter:
    """The kernel of a Canon layer (Allen-Zhu 2025), with the variance of PyTorch's uniform law: 1 / (3 · width)."""
    return Parameter((width, features), FanIn(), gain=3**-0.5, decay=False)
