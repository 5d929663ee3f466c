"""Scaled dot-product attention by the kernel of the device that a program is compiled for."""

import math
import warnings
from typing import Any, Literal

import jax
import jax.numpy as jnp

from transformer.core.arrays import divided, platform
from transformer.functional.attention import Attended, ScoreFunction, Weigh, attention, check_shapes
from transformer.functional.biases import Bias
from transformer.functional.masks import MaskFunction, Tokens
from transformer.functional.normalizers import Softmax
from transformer.functional.splash_attention import by_splash, why_not_splash


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
    score: ScoreFunction | None = None,
    weigh: Weigh | None = None,
    own_keys: bool = True,
) -> Attended:
    """`attention` under softmax, with sinks or without: by cuDNN on a GPU, by Splash on a TPU, exactly elsewhere.

    Only the output is returned. Where the kernel does not support the arguments, a warning says why, and attention is
    computed exactly; so are, on a TPU, keys of a cache or a source (`own_keys` False).

    Raises:
      ValueError: the shapes do not fit, keys and values differ in size, or the weights are not a plain softmax of the
        scaled products.
    """
    check_shapes(q_BLHK, k_BSGK, v_BSGK, queries, keys)
    if score is not None or not isinstance(weigh, Softmax | None):
        raise ValueError(f"fused attention: no kernel for {weigh} of {score or 'plain'} scores; use exact")
    if k_BSGK.shape != v_BSGK.shape:
        raise ValueError(f"fused attention: keys {k_BSGK.shape} and values {v_BSGK.shape} differ; use exact")
    scale = 1 / math.sqrt(q_BLHK.shape[-1]) if scale is None else scale
    sink_H = None if weigh is None else weigh.sink_H
    sides = {"queries": queries, "keys": keys, "mask": mask}
    reason = None
    if platform() == "gpu":
        if not (reason := why_not_cudnn(q_BLHK, k_BSGK, bias, scale, sink_H)):
            return Attended(by_cudnn(q_BLHK, k_BSGK, v_BSGK, **sides, scale=scale))
    elif platform() == "tpu" and own_keys and not (reason := why_not_splash(q_BLHK, k_BSGK, bias, scale, mask)):
        return Attended(by_splash(q_BLHK, k_BSGK, v_BSGK, **sides, scale=scale, sink_H=sink_H))
    if reason:
        warnings.warn(f"fused attention: {reason}; it is computed exactly", stacklevel=2)
    exact = attention(q_BLHK, k_BSGK, v_BSGK, **sides, bias=bias, scale=scale, weigh=weigh)
    return Attended(exact.out)


def by_cudnn(
    q_BLHK: jax.Array,
    k_BSGK: jax.Array,
    v_BSGK: jax.Array,
    *,
    queries: Tokens,
    keys: Tokens,
    mask: MaskFunction | None,
    scale: float | jax.Array,
    implementation: Literal["cudnn", "xla"] = "cudnn",
) -> jax.Array:
    """Attention by a kernel that comes with JAX, (B, L, H, K).

    The mask is always the array of its own positions: kernels that are told "causal" align the first query with the
    first key, which is wrong behind a cache.
    """
    allowed = None if mask is None else _whole(mask(queries, keys), queries, keys)
    kinds: dict[str, Any] = {"mask": allowed, "scale": scale, "implementation": implementation}
    out_BLHK = jax.nn.dot_product_attention(q_BLHK, k_BSGK, v_BSGK, **kinds)
    if allowed is None:
        return out_BLHK
    # A row that attends to nothing has the mean of all values, padding and future included.
    return jnp.where(jnp.swapaxes(allowed.any(-1, keepdims=True), 1, 2), out_BLHK, jnp.zeros_like(out_BLHK))


def why_not_cudnn(
    q_BLHK: jax.Array, k_BSGK: jax.Array, bias: Bias | None, scale: float | jax.Array, sink_H: jax.Array | None = None
) -> str:
    """What cuDNN's kernel does not take; empty where it takes everything."""
    (_, L, _, K), S = q_BLHK.shape, k_BSGK.shape[1]
    reasons = {
        f"cuDNN takes bfloat16 or float16, not {q_BLHK.dtype}": q_BLHK.dtype not in (jnp.bfloat16, jnp.float16),
        f"cuDNN takes heads of a multiple of 8 up to 128, not {K}": K % 8 or K > 128,
        f"cuDNN takes even lengths, not {L} and {S}": L % 2 or S % 2,
        "cuDNN would round the bias of the position": bias is not None,
        "cuDNN takes no sinks": sink_H is not None,
        "cuDNN takes no trained scale": not isinstance(scale, float | int),
        "cuDNN's kernel is not divided over devices here": divided(),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _whole(array: jax.Array, queries: Tokens, keys: Tokens) -> jax.Array:
    """A mask with all of its queries and keys, (B or 1, H or 1, L, S)."""
    array = array.reshape((1,) * (4 - array.ndim) + array.shape)
    return jnp.broadcast_to(array, (*array.shape[:2], queries.length, keys.length))
