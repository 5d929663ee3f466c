"""The optimizer of a config, with learning rate, weight decay and warm-up as numbers of each replica."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from transformer.core.errors import ConfigError, nearest
from transformer.core.modules import Params
from transformer.runs.config import Replica
from transformer.runs.optimizer import OptimizerConfig, ParameterGroup


class Numbers(NamedTuple):
    """What may differ between the replicas of one program; float32 scalars, from `stack_numbers` or given."""

    learning_rate: Any
    """Peak learning rate."""
    weight_decay: Any
    """Decoupled weight decay, multiplied by the learning rate."""
    warmup_steps: Any
    """Steps of linear warm-up."""


def stack_numbers(config: OptimizerConfig, replicas: Sequence[Replica]) -> Numbers:
    """The numbers of all replicas, (R,) each; where a replica has None, the config's."""
    filled = [replica.filled(config) for replica in replicas]
    return Numbers(*(np.array([getattr(r, name) for r in filled], np.float32) for name in Numbers._fields))


def learning_rate(config: OptimizerConfig, numbers: Numbers, step: Any, total_steps: int) -> jax.Array:
    """The learning rate of the update after `step` updates."""
    return numbers.learning_rate * config.schedule(step, numbers.warmup_steps, total_steps)


def make_optimizer(config: OptimizerConfig, total_steps: int, specs: Params) -> optax.GradientTransformationExtraArgs:
    """The config's rule after clipping by the global norm, with weight decay, a schedule and groups.

    The norm is that of the parameters that are trained: frozen ones, of a group with rate 0, have no part in it.
    `update` takes the replica's `numbers` as a keyword, besides the parameters.

    Args:
      config: the choices.
      total_steps: step at which the schedule ends.
      specs: `transformer.core.modules.specs` of the model.

    Raises:
      ConfigError: a group matches no parameter that an earlier one does not match.
    """
    groups = group_of(config.groups, specs)
    rates = jax.tree.map(lambda group: group.rate, groups)
    decays = jax.tree.map(
        lambda spec, group: float(spec.decayed) if group.decay is None else group.decay, specs, groups
    )

    def chain(numbers: Numbers) -> optax.GradientTransformation:
        def rate(step):
            return learning_rate(config, numbers, step, total_steps)

        def clipped(updates, _):
            trained = jax.tree.map(lambda u, factor: u if factor else jnp.zeros_like(u), updates, rates)
            if config.clip_norm is None:
                return trained
            return optax.clip_by_global_norm(config.clip_norm).update(trained, optax.EmptyState())[0]

        def decayed(updates, params):
            return jax.tree.map(lambda u, p, d: u + numbers.weight_decay * d * p, updates, params, decays)

        def of_groups(updates, _):
            return jax.tree.map(lambda u, factor: factor * u, updates, rates)

        return optax.chain(
            optax.stateless(clipped),
            config.rule.direction(specs),
            optax.stateless(decayed),
            optax.scale_by_learning_rate(rate),
            optax.stateless(of_groups),
            config.rule.correction(specs, rate),
        )

    def init(params):
        return chain(Numbers(*(jnp.float32(0),) * 3)).init(params)

    def update(updates, state, params=None, *, numbers: Numbers, **_):
        with jax.numpy_dtype_promotion("standard"):  # optax raises floats to integer powers
            return chain(numbers).update(updates, state, params)

    return optax.GradientTransformationExtraArgs(init, update)  # pyright: ignore[reportArgumentType]


def group_of(groups: Sequence[ParameterGroup], specs: Params) -> Params:
    """The first group whose pattern matches the path of each leaf, or the default `group`.

    Raises:
      ConfigError: a group matches no parameter that an earlier one does not match.
    """
    leaves, tree = jax.tree.flatten_with_path(specs)
    paths = [".".join(entry.key for entry in path) for path, _ in leaves]
    rest = ParameterGroup()
    found = [next((group for group in groups if fnmatchcase(path, group.pattern)), rest) for path in paths]
    for group in groups:
        fitting = [taker for path, taker in zip(paths, found, strict=True) if fnmatchcase(path, group.pattern)]
        if not fitting:
            raise ConfigError(f"optimizer.groups: no parameter fits {group.pattern!r}{nearest(group.pattern, paths)}")
        if group not in fitting:
            raise ConfigError(
                f"optimizer.groups: {fitting[0].pattern!r} matches all that {group.pattern!r} does; put it after"
            )
    return jax.tree.unflatten(tree, found)
