"""The optimizer of a config, with learning rate, weight decay and warm-up as numbers of each replica."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from transformer.core.checks import check_kind, is_count
from transformer.core.errors import ConfigError, nearest
from transformer.core.modules import Params, dotted
from transformer.core.parameters import Parameter
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
      ConfigError: a group matches no parameter that an earlier one does not match, groups of all layers freeze all
        parameters, or something else is given in place of one of these.
    """
    check_kind(config, OptimizerConfig, "make_optimizer")
    check_kind(specs, Mapping, "make_optimizer: specs")
    if not isinstance(total_steps, jax.Array) and (not is_count(total_steps) or total_steps < 1):
        raise ConfigError(f"make_optimizer: total_steps {total_steps!r} is not a positive whole number")
    fitting, trained = groups_of(config.groups, specs), trained_part(config, specs)
    if all(group.rate == 0 for each in jax.tree.leaves(fitting) for group in each.groups):
        raise ConfigError("optimizer.groups: all parameters have rate 0, so none is trained")

    def chain(numbers: Numbers) -> optax.GradientTransformation:
        def rate(step):
            return learning_rate(config, numbers, step, total_steps)

        def clipped(updates, _):
            if config.clip_norm is None:
                return trained(updates)
            return optax.clip_by_global_norm(config.clip_norm).update(trained(updates), optax.EmptyState())[0]

        def decayed(updates, params):
            return jax.tree.map(lambda u, p, own: u + numbers.weight_decay * own.decay(p) * p, updates, params, fitting)

        def of_groups(updates, _):
            return jax.tree.map(lambda u, own: own.rate(u) * u, updates, fitting)

        def still(updates, _):  # a correction rounds, and frozen parameters do not move at all
            return trained(updates)

        return optax.chain(
            optax.stateless(clipped),
            config.rule.direction(specs),
            optax.stateless(decayed),
            optax.scale_by_learning_rate(rate),
            optax.stateless(of_groups),
            config.rule.correction(specs, rate),
            optax.stateless(still),
        )

    def init(params):
        return chain(Numbers(*(jnp.float32(0),) * 3)).init(params)

    def update(updates, state, params=None, *, numbers: Numbers, **_):
        if params is None:
            raise ConfigError("make_optimizer: its update needs the parameters, update(gradients, state, params, …)")
        with jax.numpy_dtype_promotion("standard"):  # optax raises floats to integer powers
            return chain(numbers).update(updates, state, params)

    return optax.GradientTransformationExtraArgs(init, update)  # pyright: ignore[reportArgumentType]


def trained_part(config: OptimizerConfig, specs: Params) -> Callable[[Params], Params]:
    """Maps gradients, or updates, to those of the parameters that are trained; 0 for those of a group with rate 0."""
    fitting = groups_of(config.groups, specs)
    return lambda updates: jax.tree.map(lambda u, own: own.trained(u), updates, fitting)


@dataclass(frozen=True)
class Fitting:
    """The parameter groups that match one parameter, in order of precedence; the last one is of all layers."""

    path: str
    spec: Parameter
    groups: tuple[ParameterGroup, ...]

    def rate(self, leaf: jax.Array) -> float | jax.Array:
        """The factor on the learning rate, for all of a leaf or for each of its layers."""
        return self._of(leaf, lambda group: group.rate)

    def decay(self, leaf: jax.Array) -> float | jax.Array:
        """The factor on the weight decay, likewise."""
        return self._of(leaf, lambda group: float(self.spec.decayed) if group.decay is None else group.decay)

    def trained(self, update: jax.Array) -> jax.Array:
        """An update, 0 where the parameter is frozen."""
        rate = self.rate(update)
        if isinstance(rate, float | int):
            return update if rate else jnp.zeros_like(update)
        return jnp.where(rate == 0, jnp.zeros_like(update), update)

    def _of(self, leaf: jax.Array, number: Callable[[ParameterGroup], float]) -> float | jax.Array:
        if self.groups[0].layers is None:
            return number(self.groups[0])
        count = leaf.shape[0] if leaf.ndim > len(self.spec.shape) else 0
        asked = [layer for group in self.groups for layer in group.layers or ()]
        if max(asked) >= count:
            what = f"of {count} layers" if count else "of no layer"
            raise ConfigError(f"optimizer.groups: layer {max(asked)} of {self.path}, which is {what}")
        rows = [next(g for g in self.groups if g.layers is None or row in g.layers) for row in range(count)]
        return jnp.asarray([number(group) for group in rows], leaf.dtype).reshape(-1, *[1] * (leaf.ndim - 1))


def groups_of(groups: Sequence[ParameterGroup], specs: Params) -> Params:
    """What each leaf has of the groups whose pattern matches its path (`Fitting`); the last of all is the default one.

    Raises:
      ConfigError: a group matches no parameter that an earlier one does not match, or is there twice.
    """
    if twice := [group for group in groups if groups.count(group) > 1]:
        raise ConfigError(f"optimizer.groups: {twice[0]} is there twice")
    leaves, tree = jax.tree.flatten_with_path(specs)
    found = []
    for path, spec in leaves:
        name, own, taken = dotted(path), [], set()
        for group in (*groups, ParameterGroup()):
            if fnmatchcase(name, group.pattern) and (group.layers is None or set(group.layers) - taken):
                own.append(group)
                if group.layers is None:
                    break
                taken |= set(group.layers)
        found.append(Fitting(name, spec, tuple(own)))
    for group in groups:
        matching = [each for each in found if fnmatchcase(each.path, group.pattern)]
        if not matching:
            known = [each.path for each in found]
            raise ConfigError(f"optimizer.groups: no parameter fits {group.pattern!r}{nearest(group.pattern, known)}")
        if not any(group in each.groups for each in matching):
            before = groups[: groups.index(group)]
            taker = next(one for one in reversed(matching[0].groups) if one in before)
            raise ConfigError(f"optimizer.groups: {taker} matches all that {group} does; put it after")
    return jax.tree.unflatten(tree, found)
