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
    leaves, tree = jax.tree.flatten(how)
    arrays = {number: leaf for number, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)}

    def of_device(q_BLHK, queries, keys_values, arrays):
        given = tree.unflatten([arrays.get(number, leaf) for number, leaf in enumerate(leaves)])
        return attend(q_BLHK, *keys_values, queries=queries, **given).out

    of_queries = jax.tree.map(lambda a: PartitionSpec(*(None,) * (a.ndim - 1), CONTEXT), queries)
    rows, whole = PartitionSpec(None, CONTEXT), PartitionSpec()
    divided = jax.shard_map(
        of_device,
        mesh=get_abstract_mesh(),
        axis_names={CONTEXT, REPLICA},  # which is none of this function's, but `vmap` gives groups of replicas to it
        in_specs=(rows, of_queries, whole, whole),
        out_specs=rows,
        check_vma=False,
    )
    return Attended(divided(q_BLHK, queries, keys_values, arrays))
