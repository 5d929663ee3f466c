"""Attention whose queries are divided over devices, the axis `context` of a mesh."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec, get_abstract_mesh

from transformer.core.arrays import CONTEXT, REPLICA, axis_size
from transformer.functional.attention import Attended
from transformer.functional.masks import Mask, Tokens, Window, conjuncts


def over_context(
    attend: Callable[..., Attended],
    q_BLHK: jax.Array,
    *keys_values: jax.Array,
    queries: Tokens,
    mask: Mask | None = None,
    **how: Any,
) -> Attended:
    """`attend(q, k, v, queries=..., mask=..., **how)` by each device of `context` for its own queries.

    Keys and values pass from device to device once, whole (Grattafiori et al. 2024, section 3.3.2): with few key-value
    heads they are small beside the queries. Masks and biases are values of tokens, so that a device asks them for those
    of its own queries. Where the queries do not divide, as in decoding, every device computes all.

    Args:
      attend: attention that gives outputs alone, no weights.
      q_BLHK: queries.
      keys_values: k_BSGK and v_BSGK.
      queries: the tokens of the queries.
      mask: who may attend to whom; where late queries see more, they are dealt (`on_each`).
      how: its further arguments; what is no array in them is a constant.
    """
    devices = axis_size(CONTEXT)
    if devices == 1 or queries.length % devices:
        return attend(q_BLHK, *keys_values, queries=queries, mask=mask, **how)

    def of_device(q_BLHK, queries, keys_values, mask, how):
        return attend(q_BLHK, *keys_values, queries=queries, mask=mask, **how).out

    return Attended(on_each(of_device, (q_BLHK, queries), (keys_values, mask, how), dealt=sees_more_later(mask)))


def sees_more_later(mask: Mask | None) -> bool:
    """Whether late queries have more to attend to than early ones: all before them, not a window."""
    return mask is not None and mask.directed and not any(isinstance(one, Window) for one in conjuncts(mask))


def on_each(
    of_device: Callable[..., jax.Array], divided: tuple[Any, ...], whole: tuple[Any, ...], *, dealt: bool
) -> jax.Array:
    """`of_device(*divided, *whole)` on each device of `context`.

    Args:
      of_device: a function whose result has tokens as its second axis, of which each device makes its own.
      divided: arrays with tokens as their second axis, and `Tokens`; each device has its own.
      whole: what each device has whole; what is no array in it is a constant.
      dealt: whether causal work is balanced: the sequence is cut into 2n parts, and device i takes parts i and
        2n - 1 - i, where the length allows it (Grattafiori et al. 2024, section 3.3.2).
    """
    leaves, tree = jax.tree.flatten(whole)
    arrays = {number: leaf for number, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)}

    parts = 2 * axis_size(CONTEXT)
    dealt = dealt and all((each.length if isinstance(each, Tokens) else each.shape[1]) % parts == 0 for each in divided)

    def call(divided, arrays):
        own = tuple(map(_dealt, divided)) if dealt else divided
        out = of_device(*own, *tree.unflatten([arrays.get(number, leaf) for number, leaf in enumerate(leaves)]))
        return in_order(out, 1) if dealt else out

    def rows(each: Any) -> Any:
        return jax.tree.map(lambda a: PartitionSpec(*(None,) * (_token_axis(each) % a.ndim), CONTEXT), each)

    return jax.shard_map(
        call,
        mesh=get_abstract_mesh(),
        axis_names={CONTEXT, REPLICA},  # which is none of this function's, but `vmap` gives groups of replicas to it
        in_specs=(tuple(map(rows, divided)), PartitionSpec()),
        out_specs=PartitionSpec(None, CONTEXT),
        check_vma=False,
    )(divided, arrays)


def _token_axis(each: Any) -> int:
    return -1 if isinstance(each, Tokens) else 1


def moves(devices: int) -> list[list[tuple[int, int]]]:
    """From which device to which the first half of its part goes, and the second, where tokens are dealt."""
    last = 2 * devices - 1
    return [[(device, min(half, last - half)) for device, half in enumerate(range(of, last + 1, 2))] for of in (0, 1)]


def dealt_parts(devices: int) -> np.ndarray:
    """The numbers of the parts of all tokens, two a device, in the order in which devices have them."""
    turns = [{to: 2 * origin + half for origin, to in there} for half, there in enumerate(moves(devices))]
    return np.array([turn[device] for device in range(devices) for turn in turns])


def deal(array: jax.Array, axis: int) -> jax.Array:
    """The two parts dealt to each device, in place of the two neighbouring parts that it had."""
    halves = zip(jnp.split(array, 2, axis), moves(lax.axis_size(CONTEXT)), strict=True)
    return jnp.concatenate([lax.ppermute(half, CONTEXT, there) for half, there in halves], axis)


def in_order(array: jax.Array, axis: int) -> jax.Array:
    """What was made of parts that were dealt, as neighbouring parts again."""
    halves = zip(jnp.split(array, 2, axis), moves(lax.axis_size(CONTEXT)), strict=True)
    back = [lax.ppermute(half, CONTEXT, [(to, origin) for origin, to in there]) for half, there in halves]
    return jnp.concatenate(back, axis)


def _dealt(each: Any) -> Any:
    """An array, or `Tokens`, dealt; dealt tokens no longer count from 0."""
    each = each._replace(counted=None) if isinstance(each, Tokens) else each
    return jax.tree.map(lambda a: deal(a, _token_axis(each)), each)
