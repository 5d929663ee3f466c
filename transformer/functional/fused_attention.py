"""Scaled dot-product attention by the kernel of the device that a program is compiled for."""

import functools
import math
import warnings
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec, get_abstract_mesh

from transformer.core.arrays import CONTEXT, DATA, MODEL, axis_size, divided, has_cuda, platform
from transformer.functional.attention import Attended, ScoreFunction, SoftCapped, Weigh, attention, check_shapes
from transformer.functional.biases import Bias
from transformer.functional.masks import Causal, Full, MaskFunction, Tokens, allows, conjuncts
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
    """`attention` under softmax, with sinks or a soft cap: by cuDNN on a GPU, by Splash on a TPU, exactly elsewhere.

    Only the output is returned. Where the kernel does not support the arguments, a warning says why, and attention is
    computed exactly; without a warning where the keys are of a cache or a source (`own_keys` False), which on a TPU
    always are.

    Raises:
      ValueError: the shapes do not fit, keys and values differ in size, or the weights are not a softmax of the
        scaled products or of soft caps of them.
    """
    check_shapes(q_BLHK, k_BSGK, v_BSGK, queries, keys)
    if not isinstance(score, SoftCapped | None) or not isinstance(weigh, Softmax | None):
        raise ValueError(f"fused attention: no kernel for {weigh} of {score or 'plain'} scores; use attention")
    if k_BSGK.shape != v_BSGK.shape:
        raise ValueError(f"fused attention: keys {k_BSGK.shape} and values {v_BSGK.shape} differ; use attention")
    scale = 1 / math.sqrt(q_BLHK.shape[-1]) if scale is None else scale
    sink_H = None if weigh is None else weigh.sink_H
    sides = {"queries": queries, "keys": keys, "mask": mask}
    reason = None
    if platform() == "gpu":
        if not (reason := why_not_cudnn(q_BLHK, k_BSGK, bias, scale, sink_H, score)):
            return Attended(by_cudnn(q_BLHK, k_BSGK, v_BSGK, **sides, scale=scale, own_keys=own_keys))
    elif platform() == "tpu" and own_keys and not (reason := why_not_splash(q_BLHK, k_BSGK, bias, scale, mask, keys)):
        soft_cap = None if score is None else score.cap
        return Attended(by_splash(q_BLHK, k_BSGK, v_BSGK, **sides, scale=scale, sink_H=sink_H, soft_cap=soft_cap))
    if reason and own_keys:
        warnings.warn(f"fused attention: {reason}; it is computed exactly", stacklevel=2)
    exact = attention(q_BLHK, k_BSGK, v_BSGK, **sides, bias=bias, scale=scale, score=score, weigh=weigh)
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
    own_keys: bool = False,
) -> jax.Array:
    """Attention by the kernel that comes with JAX, (B, L, H, K). Heads, sequences and queries stay on their devices.

    The kernel is told that a mask is causal where each query is at the place of its own key, which it takes for
    granted; any other mask is an array for it, of all queries and keys. Without JAX for CUDA the program can only be a
    plan of one for a GPU.
    """
    terms = [one for one in conjuncts(mask) if not isinstance(one, Full)]
    in_order = own_keys and queries.counted is not None and queries.length == keys.length and axis_size(CONTEXT) == 1
    causal = in_order and bool(terms) and all(isinstance(one, Causal) for one in terms)
    allowed = None if mask is None or causal or not terms else _whole(allows(mask, queries, keys), queries, keys)
    attend = functools.partial(_cudnn if has_cuda() else like_cudnn, scale, causal)
    if divided():
        rows, part = (axis if axis_size(axis) > 1 else None for axis in (DATA, CONTEXT))
        of_queries, of_keys = PartitionSpec(rows, part, MODEL), PartitionSpec(rows, None, MODEL)
        own = () if allowed is None else (rows if len(allowed) > 1 else None, MODEL if allowed.shape[1] > 1 else None)
        mesh = get_abstract_mesh()
        attend = jax.shard_map(
            attend,
            mesh=mesh,
            axis_names=set(mesh.auto_axes),
            in_specs=(of_queries, of_keys, of_keys, PartitionSpec(*own, part)),
            out_specs=of_queries,
            check_vma=False,
        )
    out_BLHK = attend(q_BLHK, k_BSGK, v_BSGK, allowed)
    if allowed is None:
        return out_BLHK
    # A row that attends to nothing has the mean of all values, padding and future included.
    return jnp.where(jnp.swapaxes(allowed.any(-1, keepdims=True), 1, 2), out_BLHK, jnp.zeros_like(out_BLHK))


def _cudnn(scale, causal, q_BLHK, k_BSGK, v_BSGK, allowed):
    kinds: dict[str, Any] = {"mask": allowed, "is_causal": causal, "scale": scale, "implementation": "cudnn"}
    return jax.nn.dot_product_attention(q_BLHK, k_BSGK, v_BSGK, **kinds)


def _exactly(scale, causal, q_BLHK, k_BSGK, v_BSGK, allowed):
    queries, keys = (Tokens.first(array.shape[1]) for array in (q_BLHK, k_BSGK))
    mask = Causal() if causal else None if allowed is None else lambda queries, keys: allowed
    return attention(q_BLHK, k_BSGK, v_BSGK, queries=queries, keys=keys, mask=mask, scale=scale).out


like_cudnn = jax.custom_vjp(_exactly, nondiff_argnums=(0, 1))
"""The same attention, which keeps for its gradient what cuDNN keeps: no score, but a sum of each row."""


def _keep(scale, causal, q_BLHK, k_BSGK, v_BSGK, allowed):
    out_BLHK = _exactly(scale, causal, q_BLHK, k_BSGK, v_BSGK, allowed)
    bias = None if allowed is None else allowed.astype(q_BLHK.dtype)
    return out_BLHK, (q_BLHK, k_BSGK, v_BSGK, bias, out_BLHK, out_BLHK[..., 0].astype(jnp.float32))


def _pull(scale, causal, kept, to_out_BLHK):
    q_BLHK, k_BSGK, v_BSGK, bias, *_ = kept
    allowed = None if bias is None else bias.astype(bool)
    _, gradient = jax.vjp(lambda q, k, v: _exactly(scale, causal, q, k, v, allowed), q_BLHK, k_BSGK, v_BSGK)
    return *gradient(to_out_BLHK), None


like_cudnn.defvjp(_keep, _pull)


def why_not_cudnn(
    q_BLHK: jax.Array,
    k_BSGK: jax.Array,
    bias: Bias | None,
    scale: float | jax.Array,
    sink_H: jax.Array | None = None,
    score: SoftCapped | None = None,
) -> str:
    """What cuDNN's kernel does not take; empty where it takes everything."""
    (_, L, _, K), (_, S, G, _), parts = q_BLHK.shape, k_BSGK.shape, axis_size(CONTEXT)
    reasons = {
        f"cuDNN takes bfloat16 or float16, not {q_BLHK.dtype}": q_BLHK.dtype not in (jnp.bfloat16, jnp.float16),
        f"cuDNN takes heads of a multiple of 8 up to 128, not {K}": K % 8 or K > 128,
        f"cuDNN takes even lengths, not {L}{f' by {parts}' * (parts > 1)} and {S}": L % (2 * parts) or S % 2,
        "cuDNN would round the bias of the position": bias is not None,
        "cuDNN takes no sinks": sink_H is not None,
        "cuDNN takes no soft cap": score is not None,
        "cuDNN takes no trained scale": not isinstance(scale, float | int),
        f"cuDNN takes {G} key-value heads whole, and they are divided": G % axis_size(MODEL),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _whole(array: jax.Array, queries: Tokens, keys: Tokens) -> jax.Array:
    """A mask with all of its queries and keys, (B or 1, H or 1, L, S)."""
    array = array.reshape((1,) * (4 - array.ndim) + array.shape)
    return jnp.broadcast_to(array, (*array.shape[:2], queries.length, keys.length))
