"""Scaled dot-product attention by the kernel for TPUs that comes with JAX, Splash: no score is ever in memory."""

import functools
import importlib

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec, get_abstract_mesh

from transformer.core.arrays import CONTEXT, DATA, MODEL, axis_size, divided
from transformer.functional.attention import OF_KERNEL
from transformer.functional.biases import Bias
from transformer.functional.context import deal, dealt_parts, in_order
from transformer.functional.masks import Causal, Full, MaskFunction, Padding, Segment, Tokens, Window, conjuncts

LANES = 128
"""Numbers in a row of a TPU's registers: lengths that the kernel takes are multiples of it."""
BLOCK = 512
"""Most queries or keys that are in a block."""


def by_splash(
    q_BLHK: jax.Array,
    k_BLGK: jax.Array,
    v_BLGK: jax.Array,
    *,
    queries: Tokens,
    keys: Tokens,
    mask: MaskFunction | None,
    scale: float | jax.Array,
    sink_H: jax.Array | None = None,
    soft_cap: float | None = None,
    interpret: bool = False,
) -> jax.Array:
    """Attention of tokens to each other, (B, L, H, K); a query that is padding or meets no key gets 0.

    Blocks in which the mask allows nothing are not computed. Heads and sequences stay on their devices; queries of
    devices that divide them are dealt (`context.on_each`) where the mask is causal.

    Args:
      q_BLHK: queries of what `why_not_splash` finds nothing wrong with.
      k_BLGK: keys, of as many tokens.
      v_BLGK: values.
      queries: the tokens, whose positions follow one another in each document.
      keys: the same.
      mask: any of causal, window, padding and segment, all together.
      scale: of the products, a number.
      sink_H: a score of each head that takes weight and has no value; None: none.
      soft_cap: c of scores c · tanh(s / c); None: scores as they are.
      interpret: run it on a CPU, step by step.
    """
    L = q_BLHK.shape[1]
    document_BL, valid_BL = _documents(mask, keys)
    document_BL = jnp.broadcast_to(document_BL, (len(q_BLHK), L))
    static = _static(mask, L)
    heads, head_size = q_BLHK.shape[2:]
    kernel, by_query = _kernel(static, heads // axis_size(MODEL), head_size, soft_cap, interpret)
    q_BHLK, k_BGLK, v_BGLK = (jnp.swapaxes(x, 1, 2) for x in (q_BLHK * scale, k_BLGK, v_BLGK))
    attend = functools.partial(_attend, dealt=_is_dealt(static))
    if divided():
        mesh = get_abstract_mesh()
        rows, part = (axis if axis_size(axis) > 1 else None for axis in (DATA, CONTEXT))
        whole_mesh = AbstractMesh(mesh.axis_sizes, mesh.axis_names)  # also where some axes are in a shard_map already
        of_mask = kernel.manual_sharding_spec(
            NamedSharding(whole_mesh, PartitionSpec(None, part if by_query else None))
        )
        of_queries, of_keys = PartitionSpec(rows, MODEL, part), PartitionSpec(rows, MODEL)
        attend = jax.shard_map(
            attend,
            mesh=mesh,
            axis_names=set(mesh.auto_axes),
            in_specs=(
                *(of_mask, of_queries, of_keys, of_keys),
                *(PartitionSpec(rows, part), PartitionSpec(rows), PartitionSpec(MODEL)),
            ),
            out_specs=of_queries,
            check_vma=False,
        )
    out_BHLK = attend(kernel, q_BHLK, k_BGLK, v_BGLK, document_BL, document_BL, sink_H)
    out_BLHK = jnp.swapaxes(out_BHLK, 1, 2).astype(v_BLGK.dtype)
    if valid_BL is None:
        return out_BLHK
    return jnp.where(valid_BL[:, :, None, None], out_BLHK, jnp.zeros_like(out_BLHK))


def _is_dealt(mask) -> bool:
    """Whether devices of `context` are dealt queries: late ones see more, and halves of each part are whole blocks."""
    devices = axis_size(CONTEXT)
    return isinstance(mask, _kernels().CausalMask) and devices > 1 and mask.shape[0] % (2 * devices * LANES) == 0


def _kernel(mask, heads: int, head_size: int, soft_cap: float | None, interpret: bool):
    """The kernel for the heads of one device, and whether each device of `context` has other blocks of the mask.

    Where heads do not fill whole rows of registers, rows hold tokens: neither are they filled up with nothing, nor
    is what the projections make turned for the kernel.
    """
    splash, devices = _kernels(), axis_size(CONTEXT)
    L, S = mask.shape
    dealt = _is_dealt(mask)
    part = L // devices // (2 if dealt else 1)
    block = max(size for size in range(LANES, BLOCK + 1, LANES) if part % size == 0)
    if dealt:
        mask.q_sequence = mask.q_sequence.reshape(2 * devices, part)[dealt_parts(devices)].reshape(L)
    by_query = not isinstance(mask, splash.FullMask)
    mask = mask if by_query else splash.FullMask((L // devices, S))
    layout = splash.QKVLayout.SEQ_MINOR if head_size % LANES else splash.QKVLayout.HEAD_DIM_MINOR
    sizes = splash.BlockSizes(
        **dict.fromkeys(("block_q", "block_kv", "block_kv_compute", "block_q_dkv", "block_kv_dkv"), block),
        **dict.fromkeys(("block_kv_dkv_compute", "block_q_dq", "block_kv_dq"), block),
        **dict.fromkeys(("q_layout", "k_layout", "v_layout"), layout),
    )
    kernel = splash.make_splash_mha(
        splash.MultiHeadMask([mask] * heads),
        block_sizes=sizes,
        head_shards=1,
        q_seq_shards=devices if by_query else 1,
        residual_checkpoint_name=OF_KERNEL,
        attn_logits_soft_cap=soft_cap,
        interpret=interpret,
    )
    return kernel, by_query


def _attend(kernel, q_BHLK, k_BGSK, v_BGSK, document_BL, document_BS, sink_H, *, dealt: bool) -> jax.Array:
    if dealt:
        q_BHLK, document_BL = deal(q_BHLK, 2), deal(document_BL, 1)
    of_rows = jax.vmap(kernel, in_axes=(0, 0, 0, 0, None))
    out_BHLK = of_rows(q_BHLK, k_BGSK, v_BGSK, _kernels().SegmentIds(document_BL, document_BS), sink_H)
    return in_order(out_BHLK, 2) if dealt else out_BHLK


def _documents(mask: MaskFunction | None, tokens: Tokens) -> tuple[jax.Array, jax.Array | None]:
    """(number of the document of each token, which tokens are not padding; None: all), as the mask tells them apart.

    Padding is a document of its own, so that each of its rows has keys.
    """
    kinds = {type(one) for one in conjuncts(mask)}
    document_BL = tokens.segments if Segment in kinds and tokens.segments is not None else tokens.positions * 0
    if Padding not in kinds or tokens.valid is None:
        return document_BL, None
    return jnp.where(tokens.valid, document_BL, jnp.iinfo(jnp.int32).max), tokens.valid


def _kernels():
    """The module of the kernel, which takes half a second to load and is for TPUs alone."""
    return importlib.import_module("jax.experimental.pallas.ops.tpu.splash_attention")


def why_not_splash(
    q_BLHK: jax.Array,
    k_BSGK: jax.Array,
    bias: Bias | None,
    scale: float | jax.Array,
    mask: MaskFunction | None,
    tokens: Tokens,
) -> str:
    """What the kernel does not take; empty where it takes everything.

    Positions that are given may be any, but in packed documents, where they follow one another.
    """
    L, S, G, parts = q_BLHK.shape[1], k_BSGK.shape[1], k_BSGK.shape[2], axis_size(CONTEXT)
    unknown = [one for one in conjuncts(mask) if not isinstance(one, Full | Causal | Window | Padding | Segment)]
    known = tokens.counted is not None or tokens.segments is not None
    order = [one for one in conjuncts(mask) if isinstance(one, Causal | Window)]
    reasons = {
        f"Splash takes bfloat16 or float32, not {q_BLHK.dtype}": q_BLHK.dtype not in (jnp.bfloat16, jnp.float32),
        f"Splash takes lengths of a multiple of {LANES * parts}, not {L}": L % (LANES * parts),
        f"Splash takes the keys of the same tokens, not {S} for {L}": L != S,
        "Splash takes no bias of the position": bias is not None,
        "Splash takes no trained scale": not isinstance(scale, float | int),
        f"Splash takes no mask {unknown[0] if unknown else ''}": unknown,
        "Splash takes positions that follow one another, and these are given and may be any": order and not known,
        f"Splash takes {G} key-value heads whole, and they are divided": G % axis_size(MODEL),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _static(mask: MaskFunction | None, length: int):
    """What the kernel knows of the mask when it is compiled: how far a query sees back and ahead."""
    splash, terms = _kernels(), list(conjuncts(mask))
    back = min((one.size - 1 for one in terms if isinstance(one, Window)), default=None)
    ahead = 0 if any(isinstance(one, Causal) for one in terms) else back
    if back is None and ahead is None:
        return splash.FullMask((length, length))
    if back is None:
        return splash.CausalMask((length, length))
    return splash.LocalMask((length, length), (back, ahead), 0)
