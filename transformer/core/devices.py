"""How the residual stream is laid out over devices, which is all a model says of them. Without a mesh, nothing.

The program that runs a model names its mesh while it is traced (`jax.sharding.use_abstract_mesh`); the
compiler cuts everything else as parameters, batch and stream are cut.
"""

import jax
from jax import lax
from jax.sharding import PartitionSpec

REPLICA, DATA, MODEL = "replica", "data", "model"
"""Axes of a mesh, over which independent runs, the sequences of a batch and the parts of a layer are divided."""


def axis_size(axis: str) -> int:
    """Devices along an axis of the mesh in use; 1 where there is none."""
    mesh = jax.sharding.get_abstract_mesh()
    return mesh.shape[axis] if axis in mesh.auto_axes else 1


def divided() -> bool:
    """Whether the compiler divides the work of one model over devices."""
    return DATA in jax.sharding.get_abstract_mesh().auto_axes


def constrain(x: jax.Array) -> jax.Array:
    """The stream (B, L, D), or tokens (T, D) of it, with its first axis cut over `data` and each vector whole."""
    if not divided():
        return x
    return lax.with_sharding_constraint(x, PartitionSpec(DATA, *(None,) * (x.ndim - 1)))


def whole_rows(table_VD: jax.Array) -> jax.Array:
    """The embedding table, gathered so that every row is whole before the lookup.

    Otherwise the compiler looks up pieces of rows and moves them between replicas.
    """
    if not divided():
        return table_VD
    return lax.with_sharding_constraint(table_VD, PartitionSpec(PartitionSpec.UNCONSTRAINED, None))
