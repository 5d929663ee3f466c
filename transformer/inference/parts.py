"""A batch decoded in parts, one on each device."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from transformer.core.errors import ConfigError

Result = TypeVar("Result")


def in_parts(
    decode: Callable[[Any, Any, jax.Array | None], Result],
    mesh: Mesh | None,
    params: Any,
    sequences: Any,
    key: jax.Array | None,
) -> Result:
    """`decode(params, sequences, key)`, where each device of a mesh has an equal part of the sequences.

    Nothing passes between devices, so that each stops at the end of its own sequences; each has a key of its own.

    Args:
      decode: a function of parameters, of arrays (B, …) and of a key, whose results are arrays (B, …).
      mesh: the devices; None: all sequences on one.
      params: what all devices have.
      sequences: arrays (B, …), the prompt first.
      key: of all, or None.

    Raises:
      ConfigError: B is not a multiple of the number of devices.
    """
    if mesh is None:
        return decode(params, sequences, key)
    if (B := len(jax.tree.leaves(sequences)[0])) % mesh.size:
        raise ConfigError(f"mesh: {B} sequences cannot be divided by {mesh.size} devices")

    def decode_part(params, sequences, key):
        return decode(params, sequences, None if key is None else jax.random.fold_in(key, lax.axis_index("part")))

    whole, cut = PartitionSpec(), PartitionSpec("part")
    parts = Mesh(mesh.devices.reshape(-1), "part")  # one axis, whatever axes the devices have
    run = jax.shard_map(decode_part, mesh=parts, in_specs=(whole, cut, whole), out_specs=cut, check_vma=False)
    return run(params, sequences, key)
