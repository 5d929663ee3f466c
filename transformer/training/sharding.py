"""The sharding of a run's arrays: a mesh of devices, and tables of rules from paths to its axes.

A rule says what the *last* axes of a parameter are cut over, so that it fits a single layer as well as
stacked layers (N, …); every leaf begins with the replica axis R. Leaves of the optimizer that have the
shape of their parameter (moments, averages) are cut as it is; all others (counters, the rows and
columns of Adafactor) are whole.

`TENSOR_PARALLEL` cuts products as Shoeybi et al. 2019 (Megatron-LM, section 3): projections into
heads and feed-forward features by columns, those back by rows, the vocabulary by rows of its table,
and experts one by one. `FULLY_SHARDED` cuts matrices over the devices that share a batch (Rajbhandari
et al. 2020, ZeRO, stage 3), always along the width of the stream, so that both tables combine. Vectors,
and the small matrices of positions, heads and routers, are whole in both.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from transformer.core.arrays import AXES, DATA, MODEL, REPLICA
from transformer.core.errors import ConfigError, nearest
from transformer.core.modules import Params, dotted
from transformer.models.config import ModelConfig
from transformer.runs.mesh import MeshConfig, Shard

Axes = tuple[str | tuple[str, ...] | None, ...]
"""Mesh axes over which the last axes of an array are cut."""
Table = tuple[Shard, ...]

ROLES: dict[str, tuple[str, ...]] = {
    "columns": ("*attention.query.kernel", "*attention.parts.output_gate.kernel", "*feed_forward*.branches.*.kernel"),
    "columns_bias": ("*attention.query.bias", "*feed_forward*.branches.*.bias"),
    "kv": ("*attention.key.kernel", "*attention.value.kernel", "*attention.parts.value_gate.kernel"),
    "kv_bias": ("*attention.key.bias", "*attention.value.bias"),
    "rows": ("*attention.out.kernel", "*feed_forward*.out.kernel"),
    "vocabulary": ("*embedding.table", "output.table"),
    "experts_in": ("*feed_forward*.branches.[0-9]",),
    "experts_out": ("*feed_forward.out", "*feed_forward_before.out"),
}
"""Patterns of parameters that are cut alike, by role; each path matches at most one, and others are whole."""


def table(**axes: tuple[str | None, ...]) -> Table:
    """A rule for each pattern, from the axes of its role; roles that are not named are whole."""
    return tuple(Shard(pattern, axes.get(role, ())) for role, patterns in ROLES.items() for pattern in patterns)  # pyright: ignore[reportArgumentType]


DATA_PARALLEL: Table = (Shard("*"),)
"""Every device has all parameters."""
FULLY_SHARDED: Table = table(
    columns=(DATA, None),
    kv=(DATA, None),
    rows=(None, DATA),
    vocabulary=(None, DATA),
    experts_in=(DATA, None),
    experts_out=(None, DATA),
)
"""Matrices cut over the devices that share a batch."""
TENSOR_PARALLEL: Table = table(
    columns=(None, MODEL),
    columns_bias=(MODEL,),
    kv=(None, MODEL),
    kv_bias=(MODEL,),
    rows=(MODEL, None),
    vocabulary=(MODEL, None),
    experts_in=(MODEL, None, None),
    experts_out=(MODEL, None, None),
)
"""Products cut over the devices that share a layer."""


def tables(mesh: MeshConfig) -> tuple[Table, ...]:
    """The tables of a mesh; a parameter is cut by all of them."""
    chosen = (TENSOR_PARALLEL,) * (mesh.model > 1) + (FULLY_SHARDED,) * mesh.fully_sharded
    return chosen or (DATA_PARALLEL,)


SHARED_ON_CPU = 5e6
"""Parameters up to which the devices of a CPU share a batch by default.

Each device adds up the gradients of all parameters and updates them, which costs more than is gained where they are
many. Two devices of an Intel Xeon take 1.0 to 0.66 of the time of one whose products are divided with 0.8M to 3.2M
parameters, and the less the more tokens there are; 1.04 to 1.3 with 29M. With 11M it depends on the processor: 0.9 to
0.83, and 1.14 on an AMD EPYC.
"""


def make_mesh(
    config: MeshConfig,
    num_replicas: int,
    batch_size: int,
    num_parameters: int = 0,
    devices: Sequence[Any] | None = None,
) -> Mesh:
    """Devices as (replica, data, context, model); where the config leaves sizes open, replicas come first, then data.

    Args:
      config: the sizes.
      num_replicas: R, to be divided over `replica`.
      batch_size: sequences that go through the model at once, to be divided over `data`.
      num_parameters: of the model.
      devices: among which it is laid; None: those that there are.

    Raises:
      ConfigError: there are too few devices, or a size does not divide the replicas or the batch.
    """
    devices = list(devices or jax.devices())
    groups = len(devices) // (config.context * config.model)
    replica = config.replica or _largest_divisor(num_replicas, groups // (config.data or 1))
    alone = num_parameters > SHARED_ON_CPU and devices[0].platform == "cpu" and jax.process_count() == 1
    data = config.data or (1 if alone else _largest_divisor(batch_size, groups // max(replica, 1)))
    shape = (replica, data, config.context, config.model)
    if (needed := math.prod(shape)) > len(devices) or not needed:
        what = " × ".join(str(n or "…") for n in (config.replica, config.data, config.context, config.model))
        raise ConfigError(f"mesh: {what} is more than the {len(devices)} devices there are")
    for name, size, number, of in (
        ("replica", replica, num_replicas, "replicas"),
        ("data", data, batch_size, "sequences of a batch (of a piece of it, where gradients are accumulated)"),
    ):
        if number % size:
            raise ConfigError(f"mesh.{name}: {number} {of} cannot be divided by {size}")
    if len({device.process_index for device in devices[:needed]}) < jax.process_count():
        raise ConfigError(
            f"mesh: {needed} of {len(devices)} devices, and a process has none of them; use some of every process"
        )
    try:
        return jax.make_mesh(shape, AXES, axis_types=(AxisType.Auto,) * len(AXES), devices=devices[:needed])
    except NotImplementedError as error:  # of devices in a torus, an axis takes whole sides of it
        raise ConfigError(f"mesh: {' × '.join(map(str, shape))} does not follow the links of the devices") from error


def _largest_divisor(number: int, limit: int) -> int:
    return next((n for n in range(min(number, limit), 0, -1) if number % n == 0), 0)


def parameter_axes(config: MeshConfig, model: ModelConfig, params: Params, mesh: Mesh | AbstractMesh) -> Params:
    """Mesh axes over which the last axes of each parameter are cut, an `Axes` for each leaf.

    Two things stay whole over `model` where its size does not divide them: key-value heads, as is usual
    (Shazeer 2019), and the table of a vocabulary, with a warning.

    Args:
      config: the mesh with its rules.
      model: the model whose heads are divided.
      params: arrays or shapes, without the replica axis.
      mesh: sizes of the axes.

    Raises:
      ConfigError: a parameter matches several rules of a table, a rule of the config matches no parameter, or an axis
        cannot be divided.
    """
    sizes = dict(mesh.shape)
    heads = [kind.attention.sizes(kind) for kind in model.kinds if kind.attention is not None]
    for one in heads:
        if one.num_heads % sizes[MODEL]:
            raise ConfigError(f"mesh.model: {one.num_heads} heads cannot be divided by {sizes[MODEL]}")
    leaves, tree = jax.tree.flatten_with_path(params)
    paths = [dotted(path) for path, _ in leaves]
    for rule in config.rules:
        if not any(fnmatchcase(path, rule.pattern) for path in paths):
            raise ConfigError(f"mesh.rules: no parameter fits {rule.pattern!r}{nearest(rule.pattern, paths)}")
    whole = any(one.num_kv_heads % sizes[MODEL] for one in heads)
    few = set(ROLES["kv"] + ROLES["kv_bias"]) if whole else set()

    def axes_of(path: str, shape: Sequence[int]) -> Axes:
        own = next((rule for rule in config.rules if fnmatchcase(path, rule.pattern)), None)
        if own is not None:
            return _divided(path, shape, _used(own.axes, sizes), sizes)
        rules = [_rule(path, each) for each in tables(config)]
        joined = _product([() if rule.pattern in few and MODEL in rule.axes else rule.axes for rule in rules])
        joined = _used(joined, sizes)
        if rules[0].pattern in ROLES["vocabulary"] and joined and joined[0] and shape[-2] % sizes[MODEL]:
            warnings.warn(
                f"{path} is whole on all {sizes[MODEL]} devices of a layer: they cannot divide {shape[-2]} rows",
                stacklevel=2,
            )
            joined = (None, joined[1])
        return _divided(path, shape, joined, sizes)

    return jax.tree.unflatten(tree, [axes_of(path, leaf.shape) for path, (_, leaf) in zip(paths, leaves, strict=True)])


def _rule(path: str, rules: Table) -> Shard:
    """The one rule of a table that matches the path; parameters that none names, such as a mixer's own, are whole."""
    found = [rule for rule in rules if fnmatchcase(path, rule.pattern)]
    if len(found) > 1:
        raise ConfigError(
            f"mesh: more than one rule fits the parameter {path}; give one in mesh.rules: shard('{path}')"
        )
    return found[0] if found else Shard(path)


def _product(several: Sequence[tuple[str | None, ...]]) -> Axes:
    """Axes cut by all of these rules, aligned at the last axis."""
    length = max(map(len, several))
    padded = [(None,) * (length - len(axes)) + tuple(axes) for axes in several]
    return tuple(tuple(axis for axis in column if axis) for column in zip(*padded, strict=True))


def _used(axes: Axes, sizes: Mapping[str, int]) -> Axes:
    """The axes without those of one device, so that equal layouts are equal values."""
    several = [(axis,) if isinstance(axis, str) else axis or () for axis in axes]
    kept = [tuple(axis for axis in one if sizes[axis] > 1) for one in several]
    return tuple((one[0] if len(one) == 1 else one) if one else None for one in kept)


def _divided(path: str, shape: Sequence[int], axes: Axes, sizes: Mapping[str, int]) -> Axes:
    """The axes; raises `ConfigError` where they do not divide the array."""
    if len(axes) > len(shape):
        raise ConfigError(f"mesh: {path} {tuple(shape)} has fewer axes than the rule {axes}")
    for size, axis in zip(shape[len(shape) - len(axes) :], axes, strict=True):
        count = math.prod(sizes[name] for name in ([axis] if isinstance(axis, str) else axis or ()))
        if size % count:
            raise ConfigError(
                f"mesh: {path} {tuple(shape)} cannot be cut, {size} is not a multiple of {count} ({axis})"
            )
    return axes


def state_shardings(state: Any, axes: Params, params: Params, mesh: Mesh | AbstractMesh) -> Any:
    """A `NamedSharding` for each leaf of a training state (leading axis R).

    Args:
      state: arrays or shapes.
      axes: from `parameter_axes`.
      params: the parameters or their shapes, without the axis R.
      mesh: the devices.
    """
    of_parameter = {
        tuple(entry.key for entry in path): (leaf.shape, own)
        for (path, leaf), own in zip(
            jax.tree.leaves_with_path(params),
            jax.tree.leaves(axes, is_leaf=lambda a: isinstance(a, tuple)),
            strict=True,
        )
    }

    def sharding(path, leaf):
        names = tuple(entry.key for entry in path if isinstance(entry, jax.tree_util.DictKey))
        tails = (names[i:] for i in range(len(names)))
        shape, own = next((of_parameter[tail] for tail in tails if tail in of_parameter), ((), ()))
        own = own if leaf.shape[1:] == shape else ()
        return NamedSharding(mesh, PartitionSpec(REPLICA, *(None,) * (leaf.ndim - 1 - len(own)), *own))

    return jax.tree.map_with_path(sharding, state)
