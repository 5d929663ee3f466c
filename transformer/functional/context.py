"""Attention whose queries are divided over devices, the axis `context` of a mesh."""

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import PartitionSpec, get_abstract_mesh

from transformer.core.arrays import CONTEXT, REPLICA, axis_size
from transformer.functional.attention import Attended
from transformer.functional.masks import Tokens


def over_context(
    attend: Callable[..., Attended], q_BLHK: jax.Array, *keys_values: jax.Array, queries: Tokens, **how: Any
) -> Attended:
    """`attend(q, k, v, queries=..., **how)` by each device of `context` for its own queries.

    Keys and values pass from device to device once, whole (Grattafiori et al. 2024, section 3.3.2): with few key-value
    heads they are small beside the queries. Masks and biases are values of tokens, so that a device asks them for those
    of its own queries. Where the queries do not divide, as in decoding, every device computes all.

    Args:
      attend: attention that gives outputs alone, no weights.
      q_BLHK: queries.
      keys_values: k_BSGK and v_BSGK.
      queries: the tokens of the queries.
      how: its further arguments; what is no array in them is a constant.
    """
    devices = axis_size(CONTEXT)
    if devices == 1 or queries.length % devices:
        return attend(q_BLHK, *keys_values, queries=queries, **how)

    def of_device(q_BLHK, queries, keys_values, how):
        return attend(q_BLHK, *keys_values, queries=queries, **how).out

    return Attended(on_each(of_device, (q_BLHK, queries), (keys_values, how)))


def on_each(of_device: Callable[..., jax.Array], divided: tuple[Any, ...], whole: tuple[Any, ...]) -> jax.Array:
    """`of_device(*divided, *whole)` on each device of `context`.

    Args:
      of_device: a function whose result has tokens as its second axis, of which each device makes its own.
      divided: arrays with tokens as their second axis, and `Tokens`; each device has its own.
      whole: what each device has whole; what is no array in it is a constant.
    """
    leaves, tree = jax.tree.flatten(whole)
    arrays = {number: leaf for number, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)}

    def call(divided, arrays):
        return of_device(*divided, *tree.unflatten([arrays.get(number, leaf) for number, leaf in enumerate(leaves)]))

    def rows(each: Any) -> Any:
        axis = -1 if isinstance(each, Tokens) else 1
        return jax.tree.map(lambda a: PartitionSpec(*(None,) * (axis % a.ndim), CONTEXT), each)

    return jax.shard_map(
        call,
        mesh=get_abstract_mesh(),
        axis_names={CONTEXT, REPLICA},  # which is none of this function's, but `vmap` gives groups of replicas to it
        in_specs=(tuple(map(rows, divided)), PartitionSpec()),
        out_specs=PartitionSpec(None, CONTEXT),
        check_vma=False,
    )(divided, arrays)
