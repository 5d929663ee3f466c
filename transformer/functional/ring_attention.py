"""Attention over the axis `context` of a mesh, with keys and values that go round from device to device.

(Liu H., Zaharia and Abbeel 2023.) A device holds the keys and values of its own tokens and of one neighbour at a time,
never those of the whole text. What it has read so far is an output and the logarithm of its normalizer, from which the
outputs of other parts are mixed; gradients of keys and values go round with them.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from transformer.core.arrays import CONTEXT, axis_size
from transformer.functional.attention import NEVER, Attended, check_shapes
from transformer.functional.chunked_attention import (
    Modifiers,
    Sides,
    Sizes,
    backward,
    chunked_attention,
    forward,
    in_blocks,
    output_dot,
    sink_gradient,
)
from transformer.functional.context import on_each, over_context, sees_more_later
from transformer.functional.masks import Full, Mask, Tokens


def ring_attention(
    q_BLHK: jax.Array,
    k_BSGK: jax.Array,
    v_BSGK: jax.Array,
    *,
    queries: Tokens,
    keys: Tokens,
    mask: Mask | None = None,
    block: int = 256,
    **modifiers: Any,
) -> Attended:
    """The values and gradients of `chunked_attention`, of tokens that the devices of `context` divide.

    Where they do not divide, as in decoding, it is `chunked_attention` by each device for its own queries.

    Args:
      mask: who may attend to whom.
      block: queries and keys per block.
      modifiers: `bias`, `scale`, `score` and `weigh`, as there.

    Raises:
      ValueError: the shapes do not fit.
    """
    check_shapes(q_BLHK, k_BSGK, v_BSGK, queries, keys)
    devices = axis_size(CONTEXT)
    if devices == 1 or queries.length % devices or keys.length % devices:
        attend = functools.partial(chunked_attention, block=block)
        return over_context(attend, q_BLHK, k_BSGK, v_BSGK, queries=queries, keys=keys, mask=mask, **modifiers)

    def of_device(q_BLHK, k_BSGK, v_BSGK, queries, keys, modified, mask):
        return in_blocks(_attend, q_BLHK, k_BSGK, v_BSGK, modified, Sides(mask, queries, keys), block).out

    whole = Modifiers.of(q_BLHK.shape[-1], **modifiers), Full() if mask is None else mask
    return Attended(on_each(of_device, (q_BLHK, k_BSGK, v_BSGK, queries, keys), whole, dealt=sees_more_later(mask)))


class _Read(NamedTuple):
    """What queries have read of some keys."""

    out: jax.Array
    """The mean of their values, (B, G, R, L, K), float32."""
    log_normalizer: jax.Array
    """log Σ exp(score), (B, G, R, L), float32; NEVER where there are none."""


def _mixed(first: _Read, second: _Read) -> _Read:
    """What queries have read of the keys of both."""
    highest = jnp.maximum(first.log_normalizer, second.log_normalizer)
    reference = jnp.where(highest == NEVER, 0.0, highest)
    of_first, of_second = (jnp.exp(each.log_normalizer - reference) for each in (first, second))
    total = jnp.where(highest == NEVER, 1.0, of_first + of_second)
    out = first.out * (of_first / total)[..., None] + second.out * (of_second / total)[..., None]
    return _Read(out, jnp.where(highest == NEVER, NEVER, reference + jnp.log(total)))


def _passed_on(arrays: Any) -> Any:
    """What the device before has."""
    devices = lax.axis_size(CONTEXT)
    ring = [(device, (device + 1) % devices) for device in range(devices)]
    return jax.tree.map(lambda a: lax.ppermute(a, CONTEXT, ring), arrays)


def _round(q, k, v, modifiers: Modifiers, sides: Sides, sizes: Sizes):
    """The output, and what `_round_back` needs."""
    plain = modifiers._replace(sink_H=None)

    def read(have: _Read, k, v, keys: Tokens) -> _Read:
        out, (*_, log_normalizer) = forward(q, k, v, plain, sides._replace(keys=keys), sizes)
        return _mixed(have, _Read(out.astype(jnp.float32), log_normalizer))

    def step(carry, _):
        have, there = carry
        return (read(have, *there), _passed_on(there)), None

    sink, rows = modifiers.sink(k.shape[1]), q.shape[:-1]
    seen = jnp.full(rows, NEVER, jnp.float32) if sink is None else jnp.broadcast_to(sink, rows)
    start = _Read(jnp.zeros((*rows, v.shape[-1]), jnp.float32), seen)  # a sink is a key whose value is 0
    (have, last), _ = lax.scan(step, (start, (k, v, sides.keys)), None, lax.axis_size(CONTEXT) - 1)
    found = read(have, *last)
    out = found.out.astype(v.dtype)
    return out, (q, k, v, modifiers, sides, out, found.log_normalizer)


def _round_back(sizes: Sizes, residuals, dout):
    """The gradients of all arguments but the sides; those of keys and values come home after a whole round."""
    q, k, v, modifiers, sides, out, log_normalizer = residuals
    plain = modifiers._replace(sink_H=None)

    def step(carry, _):
        (k, v, keys, dk, dv), dq, dmodifiers = carry
        here = (q, k, v, plain, sides._replace(keys=keys), out, log_normalizer)
        dq_new, dk_new, dv_new, dmodifiers_new, _ = backward(sizes, here, dout)
        there = (k, v, keys, dk + dk_new.astype(jnp.float32), dv + dv_new.astype(jnp.float32))
        return (_passed_on(there), dq + dq_new, jax.tree.map(jnp.add, dmodifiers, dmodifiers_new)), None

    zeros = [jnp.zeros(a.shape, jnp.float32) for a in (k, v, q)]
    start = ((k, v, sides.keys, *zeros[:2]), zeros[2], jax.tree.map(jnp.zeros_like, plain))
    ((*_, dk, dv), dq, dmodifiers), _ = lax.scan(step, start, None, lax.axis_size(CONTEXT))
    if modifiers.sink_H is not None:
        dmodifiers = dmodifiers._replace(sink_H=sink_gradient(modifiers, log_normalizer, output_dot(out, dout)))
    return dq.astype(q.dtype), dk.astype(k.dtype), dv.astype(v.dtype), dmodifiers, None


_attend = jax.custom_vjp(lambda *args: _round(*args)[0], nondiff_argnums=(5,))
_attend.defvjp(_round, _round_back)
