"""The compiled programs of a run: initial state, several steps, evaluation, each for all replicas."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from transformer.config.objectives import Sums
from transformer.config.run import Replica, RunConfig
from transformer.models import pure
from transformer.models.build import build
from transformer.modules.parameter import at
from transformer.training.optimizer import learning_rate, make_optimizer, stack_numbers
from transformer.training.replicas import (
    BATCHES,
    DATA,
    SHARED_BATCHES,
    STATE,
    over_replicas,
    repeat,
    replica_mesh,
    sharding,
)
from transformer.training.step import Metrics, TrainState, create_train_state, make_train_step


@dataclass(frozen=True)
class Program:
    """Pure functions of all replicas; arrays that belong to a replica have a leading axis R."""

    init: Callable[[], TrainState]
    """The state before the first step."""
    train: Callable[[TrainState, Any], tuple[TrainState, Metrics]]
    """(state, batches (R, T, …)) to (state, metrics (R, T)); the state is donated."""
    evaluate: Callable[[Any, Any], Sums]
    """(params, batches (N, …)) to sums (R, …); the batches are the same for all replicas."""
    learning_rates: Callable[[], jax.Array]
    """(R, steps): of every step."""
    abstract_state: TrainState
    """Shapes, dtypes and shardings of the state."""
    data_devices: int
    """How many devices share a batch; batches of evaluation are a multiple of it."""


def make_program(config: RunConfig, replicas: Sequence[Replica]) -> Program:
    """The programs of a config for replicas that differ only in numbers; nothing is compiled yet."""

    def make_model(key):
        return build(config.model, key=key)

    mesh = replica_mesh(len(replicas), config.batch_size // config.accumulation)
    model = pure.abstract(make_model)
    apply = pure.split(model)[1]
    optimizer = make_optimizer(config.optimizer, config.steps, pure.specs(model))
    average_from = None if config.average_last is None else max(config.steps - config.average_last, 0)
    step = make_train_step(
        apply,
        config.objective,
        optimizer,
        accumulation=config.accumulation,
        data_axis=DATA,
        average_from=average_from,
        skip_limit=config.optimizer.skip_limit,
        skip_above=config.optimizer.skip_above,
    )

    def init(seed, initial_scale, numbers):
        key = jax.random.key(seed)
        params = pure.initialize(make_model, at(key, "params"), initial_scale)
        averaged = average_from is not None
        return create_train_state(params, optimizer, numbers, at(key, "training"), averaged=averaged)

    def evaluate(params, batches):
        objective = config.objective.plain()

        def sums_of(batch):
            return objective(apply, params, batch, None)

        def add(sums, batch):
            return jax.tree.map(jnp.add, sums, sums_of(batch)), None

        first = jax.tree.map(lambda a: a[0], batches)
        zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(sums_of, first))
        return lax.psum(lax.scan(add, zeros, batches)[0], DATA)

    def rates():
        column = jax.tree.map(lambda x: x[:, None], numbers)
        return learning_rate(config.optimizer, column, jnp.arange(config.steps), config.steps)

    split = sharding(mesh)
    seeds = np.array([r.seed for r in replicas], np.int32)
    scales = np.array([r.initial_scale for r in replicas], np.float32)
    numbers = stack_numbers(config.optimizer, replicas)
    compiled_init = jax.jit(over_replicas(init, mesh, [STATE] * 3), out_shardings=split)
    shapes = jax.eval_shape(compiled_init, seeds, scales, numbers)
    return Program(
        init=lambda: compiled_init(seeds, scales, numbers),
        train=jax.jit(over_replicas(repeat(step), mesh, [STATE, BATCHES]), out_shardings=split, donate_argnums=0),
        evaluate=jax.jit(over_replicas(evaluate, mesh, [STATE, SHARED_BATCHES])),
        learning_rates=jax.jit(rates),
        abstract_state=jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=split), shapes),
        data_devices=mesh.shape[DATA],
    )
