"""Scaled dot-product attention by the kernels that come with JAX."""

import math
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp

from transformer.functional.attention import SOFTMAX, check_shapes
from transformer.functional.biases import Bias
from transformer.functional.devices import divided
from transformer.functional.masks import MaskFunction, Tokens
from transformer.functional.weights import Softmax, Weigh


def fused_attention(
    q_BLHK: jax.Array,
    k_BSGK: jax.Array,
    v_BSGK: jax.Array,
    *,
    queries: Tokens,
    keys: Tokens,
    mask: MaskFunction | None = None,
    bias: Bias | None = None,
    scale: float | jax.Array | None = None,
    score: Callable[[jax.Array], jax.Array] | None = None,
    weigh: Weigh = SOFTMAX,
) -> jax.Array:
    """The values and gradients of `attention` under softmax: on a GPU by cuDNN's kernel, elsewhere by XLA.

    The mask is always the array of its own positions: kernels that are told "causal" align the first query with the
    first key, which is wrong behind a cache. Where cuDNN does not take what is given on a GPU, a warning says why and
    XLA computes it.

    Raises:
      ValueError: the shapes do not fit, sizes of keys and values differ, or the weights are no plain softmax of scores.
    """
    check_shapes(q_BLHK, k_BSGK, v_BSGK, queries, keys)
    if not isinstance(weigh, Softmax) or weigh.sink_H is not None or score is not None:
        raise ValueError(f"fused attention: no kernel for {weigh} of {score or 'plain'} scores; use exact")
    if k_BSGK.shape != v_BSGK.shape:
        raise ValueError(f"fused attention: keys {k_BSGK.shape} and values {v_BSGK.shape} differ; use exact")
    kernel, scale = "xla", 1 / math.sqrt(q_BLHK.shape[-1]) if scale is None else scale
    if jax.default_backend() == "gpu":
        if reason := why_not_cudnn(q_BLHK, k_BSGK, bias, scale):
            warnings.warn(f"fused attention: {reason}; XLA computes it", stacklevel=2)
        else:
            kernel = "cudnn"
    allowed = None if mask is None else _whole(mask(queries, keys), queries, keys)
    bias_BHLS = None if bias is None else _whole(bias(queries, keys), queries, keys)
    kinds = {"bias": bias_BHLS, "mask": allowed, "scale": scale, "implementation": kernel}
    out_BLHK = jax.nn.dot_product_attention(q_BLHK, k_BSGK, v_BSGK, **kinds)
    if allowed is None:
        return out_BLHK
    # A row that attends to nothing has the mean of all values, padding and future included.
    return jnp.where(jnp.swapaxes(allowed.any(-1, keepdims=True), 1, 2), out_BLHK, jnp.zeros_like(out_BLHK))


def why_not_cudnn(q_BLHK: jax.Array, k_BSGK: jax.Array, bias: Bias | None, scale: float | jax.Array) -> str:
    """What cuDNN's kernel does not take; empty where it takes everything."""
    (_, L, _, K), S = q_BLHK.shape, k_BSGK.shape[1]
    reasons = {
        f"cuDNN takes bfloat16 or float16, not {q_BLHK.dtype}": q_BLHK.dtype not in (jnp.bfloat16, jnp.float16),
        f"cuDNN takes heads of a multiple of 8 up to 128, not {K}": K % 8 or K > 128,
        f"cuDNN takes even lengths, not {L} and {S}": L % 2 or S % 2,
        "cuDNN would round the bias of the position": bias is not None,
        "cuDNN takes no trained scale": not isinstance(scale, float | int),
        "cuDNN's kernel is not divided over devices here": divided(),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _whole(array: jax.Array, queries: Tokens, keys: Tokens) -> jax.Array:
    """A mask or bias with all of its queries and keys, (B or 1, H or 1, L, S)."""
    array = array.reshape((1,) * (4 - array.ndim) + array.shape)
    return jnp.broadcast_to(array, (*array.shape[:2], queries.length, keys.length))
