"""The compiled programs of a run: initial state, several steps, evaluation, each for all replicas.

Shapes are computed first, then the sharding of each array, then the program that creates it there: no device
ever holds more of a model than its part.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from transformer.core import modules as pure
from transformer.core.arrays import DATA, REPLICA
from transformer.core.errors import ConfigError
from transformer.core.modules import Apply, Params, at
from transformer.core.sources import PACKAGE
from transformer.functional.segment_memory import SegmentMemory
from transformer.models.build import abstract_model, initial_params, pure_model
from transformer.objectives.objective import Batch, Sums
from transformer.runs.config import Replica, RunConfig
from transformer.runs.mesh import AUTOMATIC, MeshConfig
from transformer.training.optimizer import (
    Numbers,
    groups_of,
    learning_rate,
    make_optimizer,
    stack_numbers,
    trained_part,
)
from transformer.training.replicas import over_replicas, repeat
from transformer.training.sharding import make_mesh, parameter_axes, state_shardings
from transformer.training.step import Step, TrainState, create_train_state, make_train_step, with_average

BATCHES = PartitionSpec(REPLICA, None, DATA)
"""Sharding of the batches of several steps, (R, T, B, …)."""
SHARED_BATCHES = PartitionSpec(None, DATA)
"""Sharding of several batches that are the same for all replicas, (N, B, …)."""


@dataclass(frozen=True)
class Program:
    """Pure functions over all replicas; arrays that belong to a replica have a leading axis R."""

    init: Callable[[], TrainState]
    """The state before the first step."""
    train: jax.stages.Wrapped
    """Maps (state, batches (R, T, …)) to (state, metrics (R, T)); the state is donated."""
    evaluate: Callable[[Any, Any], tuple[Sums, Sums]]
    """Maps (params, batches (N, …)) to sums (R, …) over all of them, and sums (R, N) over each batch with all its
    positions; the batches are the same for all replicas."""
    learning_rates: Callable[[], jax.Array]
    """The learning rate of every step, (R, steps)."""
    abstract_state: TrainState
    """Shapes, dtypes and shardings of the state."""
    mesh: Mesh
    """The devices, as (replica, data, context, model)."""

    @property
    def data_devices(self) -> int:
        """Number of devices that share a batch."""
        return self.mesh.shape[DATA]

    def put(self, batches: Any, spec: PartitionSpec = BATCHES) -> Any:
        """Puts host arrays on the devices; each process puts what its own devices hold."""
        sharding = NamedSharding(self.mesh, spec)
        return jax.tree.map(lambda a: jax.make_array_from_callback(a.shape, sharding, a.__getitem__), batches)


def make_program(
    config: RunConfig,
    replicas: Sequence[Replica],
    mesh_config: MeshConfig = AUTOMATIC,
    initial: Params | None = None,
    devices: Sequence[Any] | None = None,
) -> Program:
    """The programs of a config for replicas that differ only in numbers; nothing is compiled yet.

    Args:
      config: of the run.
      replicas: their numbers.
      mesh_config: how devices share the work.
      initial: parameters with given initial values, in the tree of all parameters.
      devices: among which the mesh is laid, which may be those of another machine that programs are only compiled
        for; None: those that there are.

    Raises:
      ConfigError: the mesh does not fit the devices, the batch or the model; `initial` is of another model.
    """
    _check(config, mesh_config)
    shapes, apply = pure_model(config.model)
    sequences = config.batch_size // config.accumulation
    num_parameters = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    mesh = make_mesh(mesh_config, len(replicas), sequences, num_parameters, devices)
    apply = _with_precision(apply, config.matmul_precision)
    axes = parameter_axes(mesh_config, config.model, shapes, mesh)
    specs = pure.specs(abstract_model(config.model))
    optimizer = make_optimizer(config.optimizer, config.steps, specs)
    jax.tree.map(lambda own, leaf: own.rate(leaf), groups_of(config.optimizer.groups, specs), shapes)  # or it refuses
    numbers = stack_numbers(config.optimizer, replicas)
    seeds = np.array([r.seed for r in replicas], np.int32)
    scales = np.array([r.initial_scale for r in replicas], np.float32)
    start = (seeds, scales, numbers, initial or {})
    step = _make_step(config, mesh_config, mesh, apply, optimizer, trained_part(config.optimizer, specs))
    init = over_replicas(functools.partial(_initial_state, config, apply, optimizer), mesh, shared=(3,))
    states = jax.eval_shape(init, *start)
    split = state_shardings(states, axes, shapes, mesh)
    rows = NamedSharding(mesh, PartitionSpec(REPLICA, DATA))
    split = split._replace(earlier=jax.tree.map(lambda _: rows, states.earlier))
    of_replica, batches, shared_batches, whole = (
        NamedSharding(mesh, spec) for spec in (PartitionSpec(REPLICA), BATCHES, SHARED_BATCHES, PartitionSpec())
    )
    on_cpu = mesh.devices.flat[0].platform == "cpu"  # runs once: half the time to compile
    quick = {"xla_backend_optimization_level": 0} if on_cpu else None
    compiled_init = jax.jit(init, out_shardings=split, compiler_options=quick)
    evaluate = over_replicas(functools.partial(_evaluate, config, apply), mesh, shared=(1,))
    return Program(
        init=lambda: compiled_init(*start),
        train=jax.jit(
            over_replicas(repeat(step), mesh),
            in_shardings=(split, batches),
            out_shardings=(split, of_replica),
            donate_argnums=0,
        ),
        evaluate=jax.jit(evaluate, in_shardings=(None, shared_batches), out_shardings=of_replica),
        learning_rates=jax.jit(functools.partial(_learning_rates, config, numbers), out_shardings=whole),
        abstract_state=jax.tree.map(lambda s, own: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=own), states, split),
        mesh=mesh,
    )


def _check(config: RunConfig, mesh: MeshConfig) -> None:
    if mesh.rounded and config.model.dtype == "float32":
        raise ConfigError("mesh.rounded: nothing is saved where model.dtype is float32; set model.dtype=bfloat16")
    if config.model.max_length % mesh.context:
        raise ConfigError(f"mesh.context: {config.model.max_length} tokens cannot be divided by {mesh.context}")


def _make_step(
    config: RunConfig,
    mesh_config: MeshConfig,
    mesh: Mesh,
    apply: Apply,
    optimizer: optax.GradientTransformation,
    trained: Callable[[Params], Params],
) -> Step:
    """The step of one replica."""
    step = make_train_step(
        apply,
        config.objective,
        optimizer,
        accumulation=config.accumulation,
        skip_limit=config.optimizer.skip_limit,
        skip_above=config.optimizer.skip_above,
        sum_once=rows_are_alone(config, mesh_config, mesh.shape[REPLICA]),
        rounded_to=config.model.dtype if mesh_config.rounded else None,
        trained=trained,
    )
    return step if config.average_from is None else with_average(step, config.average_from, config.average_decay)


def rows_are_alone(config: RunConfig, mesh: MeshConfig, groups: int) -> bool:
    """Whether a device can compute the gradient of its rows with what it holds of the model, without the other rows.

    Not with several groups of replicas: JAX cannot nest a program for each device of `data` in one for each group. An
    objective of one's own may compare rows, as contrastive losses do.
    """
    if type(config.objective).__module__.partition(".")[0] != PACKAGE:
        return False
    routed = any(kind.feed_forward is not None and kind.feed_forward.routed for kind in config.model.kinds)
    return groups == mesh.model == mesh.context == 1 and not mesh.fully_sharded and not mesh.rules and not routed


def _with_precision(apply: Apply, precision: str | None) -> Apply:
    """`apply` with the precision of its matrix products, those of its gradients included."""

    def run(*args, **kwargs):
        with jax.default_matmul_precision(precision):
            return apply(*args, **kwargs)

    return apply if precision is None else run


def _initial_state(
    config: RunConfig,
    apply: Apply,
    optimizer: optax.GradientTransformation,
    seed: jax.Array,
    scale: jax.Array,
    numbers: Numbers,
    given: Params,
) -> TrainState:
    """The initial state of one replica."""
    key = jax.random.key(seed)
    params = pure.overlay(initial_params(config.model, key, scale), given)
    earlier = _empty_memory(config, apply, params, config.batch_size)
    averaged = config.average_from is not None
    return create_train_state(params, optimizer, numbers, at(key, "training"), averaged=averaged, earlier=earlier)


def _empty_memory(config: RunConfig, apply: Apply, params: Params, batch_size: int) -> SegmentMemory | None:
    """The empty memory before the first batch; None for a model without memory."""
    return None if config.model.memory_length is None else apply(params, batch_size, method="empty_memory")


def _evaluate(config: RunConfig, apply: Apply, params: Params, batches: Batch) -> tuple[Sums, Sums]:
    """Sums over the batches (N, B, …) for one replica, and those (N,) of each batch over all positions."""
    objective = config.objective.plain()

    def sums_of(batch, earlier):
        return objective.segment_sums(apply, params, batch, None, earlier)

    def add(carry, batch):
        sums, earlier = carry
        more, earlier = sums_of(batch, earlier)
        return (jax.tree.map(jnp.add, sums, more), earlier), jax.tree.map(jnp.sum, more)

    first = jax.tree.map(lambda a: a[0], batches)
    earlier = _empty_memory(config, apply, params, len(jax.tree.leaves(first)[0]))
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(sums_of, first, earlier)[0])
    (sums, _), by_batch = lax.scan(add, (zeros, earlier), batches)
    return sums, by_batch


def _learning_rates(config: RunConfig, numbers: Numbers) -> jax.Array:
    """The learning rate of every step, (R, steps)."""
    column = jax.tree.map(lambda x: x[:, None], numbers)
    return learning_rate(config.optimizer, column, jnp.arange(config.steps), config.steps)
