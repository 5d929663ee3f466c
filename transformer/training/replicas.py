"""The replica axis: independent runs as one compiled program.

Everything that belongs to a run has a leading axis R, cut over the devices along `replica`. The runs
of one device are computed one after another on a CPU, whose cores are the devices, and side by side
(`vmap`) on an accelerator. `experiments/benchmarks/replicas.py` measures what that gains.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax.sharding import Mesh, PartitionSpec, use_abstract_mesh

from transformer.core.arrays import REPLICA, compiled_for
from transformer.training.step import Step


def over_replicas(function: Callable[..., Any], mesh: Mesh, shared: Sequence[int] = ()) -> Callable[..., Any]:
    """`function` for each replica: arguments and results gain a leading axis R.

    Nothing passes between replicas. Within one, `data` and `model` divide the work as arguments and
    results are sharded.

    Args:
      function: a function of one replica's arguments.
      mesh: from `transformer.training.sharding.make_mesh`.
      shared: indices of arguments that are the same for all replicas, without the axis R.
    """
    platform = mesh.devices.flat[0].platform
    groups, one_by_one = mesh.shape[REPLICA], platform == "cpu"
    function = compiled_for(platform)(function)

    def replicated(*args):
        own = {i: arg for i, arg in enumerate(args) if i not in shared}
        same = {i: args[i] for i in shared}

        def of_group(mine, same):
            def one(mine):
                return function(*[arg for _, arg in sorted((mine | same).items())])

            if one_by_one:
                return lax.map(one, mine)
            if len(jax.tree.leaves(mine)[0]) > 1:
                return jax.vmap(one)(mine)
            # A run alone is compiled as if there were no replicas.
            return jax.tree.map(lambda a: a[None], one(jax.tree.map(lambda a: a[0], mine)))

        if mesh.size == groups:  # each group on its own device, where nothing can pass between replicas
            cut, whole = PartitionSpec(REPLICA), PartitionSpec()
            alone = jax.shard_map(of_group, mesh=mesh, in_specs=(cut, whole), out_specs=cut, check_vma=False)
            return alone(own, same)
        with use_abstract_mesh(mesh.abstract_mesh):
            if groups == 1:
                return of_group(own, same)
            cut = jax.tree.map(lambda a: a.reshape(groups, -1, *a.shape[1:]), own)
            results = jax.vmap(of_group, in_axes=(0, None), spmd_axis_name=REPLICA)(cut, same)
        return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), results)

    return replicated


def repeat(step: Step) -> Callable[..., Any]:
    """Several steps in one function: batches are (T, B, …) and metrics (T,), with an axis of T steps."""
    return lambda state, batches: lax.scan(step, state, batches)
