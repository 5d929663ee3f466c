"""The replica axis: independent runs as one compiled program.

Everything that belongs to a run has a leading axis R. The axis is sharded over devices; the runs
of one device go one after another on a CPU, whose cores are the devices, and side by side (`vmap`)
on an accelerator. `experiments/benchmarks/replicas.py` measures what that gains.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from transformer.training.step import Step

AXIS = "replica"


def replica_mesh(num_replicas: int) -> Mesh:
    """A mesh over as many local devices as divide the replicas evenly."""
    devices = jax.devices()
    count = next(n for n in range(min(len(devices), num_replicas), 0, -1) if num_replicas % n == 0)
    return jax.make_mesh((count,), (AXIS,), axis_types=(AxisType.Auto,), devices=devices[:count])


def sharding(mesh: Mesh) -> NamedSharding:
    """The replica axis over the devices of the mesh."""
    return NamedSharding(mesh, PartitionSpec(AXIS))


def over_replicas(function: Callable[..., Any], mesh: Mesh, *, shared: int = 0) -> Callable[..., Any]:
    """`function` for each replica: arguments and results gain a leading axis R, sharded over `mesh`.

    Args:
      function: of one replica's arguments.
      mesh: from `replica_mesh`.
      shared: how many of the last arguments are the same for all replicas and have no such axis.
    """
    on_cpu = mesh.devices.flat[0].platform == "cpu"

    def local(*args):
        own, common = args[: len(args) - shared], args[len(args) - shared :]
        one = lambda own: function(*own, *common)  # noqa: E731
        return lax.map(one, own) if on_cpu else jax.vmap(one)(own)

    def mapped(*args):
        split, whole = PartitionSpec(AXIS), PartitionSpec()
        in_specs = (split,) * (len(args) - shared) + (whole,) * shared
        return jax.shard_map(local, mesh=mesh, in_specs=in_specs, out_specs=split, check_vma=False)(*args)

    return mapped


def repeat(step: Step) -> Callable[..., Any]:
    """Several steps in one: batches and metrics gain a leading axis of steps."""
    return lambda state, batches: lax.scan(step, state, batches)
