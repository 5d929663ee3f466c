"""The replica axis: independent runs as one compiled program.

Everything that belongs to a run has a leading axis R. The axis is sharded over devices; the runs
of one device go one after another on a CPU, whose cores are the devices, and side by side (`vmap`)
on an accelerator. Devices that the replicas leave over share their batches: the data axis.
`experiments/benchmarks/replicas.py` measures what that gains.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from transformer.training.step import Step

REPLICA, DATA = "replica", "data"
STATE = PartitionSpec(REPLICA)
"""Of what belongs to a replica, leading axis R."""
BATCHES = PartitionSpec(REPLICA, None, DATA)
"""Of the batches of several steps, (R, T, B, …)."""
SHARED_BATCHES = PartitionSpec(None, DATA)
"""Of several batches that are the same for all replicas, (N, B, …)."""


def replica_mesh(num_replicas: int, batch_size: int) -> Mesh:
    """Local devices as (replica, data): as many as divide the replicas evenly, then the batch."""
    devices = jax.devices()
    replicas = _largest_divisor(num_replicas, len(devices))
    data = _largest_divisor(batch_size, len(devices) // replicas)
    used = devices[: replicas * data]
    return jax.make_mesh((replicas, data), (REPLICA, DATA), axis_types=(AxisType.Auto,) * 2, devices=used)


def _largest_divisor(number: int, limit: int) -> int:
    return next(n for n in range(min(number, limit), 0, -1) if number % n == 0)


def sharding(mesh: Mesh) -> NamedSharding:
    """The replica axis over the devices of the mesh."""
    return NamedSharding(mesh, STATE)


def over_replicas(function: Callable[..., Any], mesh: Mesh, in_specs: Sequence[PartitionSpec]) -> Callable[..., Any]:
    """`function` for each replica: results gain a leading axis R.

    Args:
      function: of one replica's arguments and its share of the batch; it may reduce over `DATA`,
        and its results are the same on all devices of that axis.
      mesh: from `replica_mesh`.
      in_specs: of each argument; one without the replica axis is the same for all replicas.
    """
    on_cpu = mesh.devices.flat[0].platform == "cpu"
    own = [i for i, spec in enumerate(in_specs) if spec[0] == REPLICA]

    def local(*args):
        def one(mine):
            everything = dict(enumerate(args)) | dict(zip(own, mine, strict=True))
            return function(*everything.values())

        mine = [args[i] for i in own]
        return lax.map(one, mine) if on_cpu else jax.vmap(one)(mine)

    return jax.shard_map(local, mesh=mesh, in_specs=tuple(in_specs), out_specs=STATE, check_vma=False)


def repeat(step: Step) -> Callable[..., Any]:
    """Several steps in one: batches and metrics gain a leading axis of steps."""
    return lambda state, batches: lax.scan(step, state, batches)
