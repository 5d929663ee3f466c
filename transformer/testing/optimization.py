"""Properties of update rules and schedules. Each raises AssertionError with one line where it does not hold."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from transformer.core.modules import Params
from transformer.core.parameters import Parameter
from transformer.runs.config import Replica
from transformer.runs.optimizer import OptimizerConfig
from transformer.runs.rules import UpdateRule
from transformer.runs.schedules import Schedule
from transformer.testing.comparing import close, differ
from transformer.training.optimizer import Numbers, make_optimizer, stack_numbers
from transformer.training.step import TrainState, create_train_state

STEPS, LAYERS = 6, 3
SPECS = {
    "blocks": {
        "kernel": Parameter((4, 6)),
        "experts": Parameter((2, 9, 2), stacked=True),
        "scale": Parameter((4,)),
        "gate": Parameter(()),
    },
    "embedding": {"table": Parameter((5, 4))},
}


def values_of(seed: int, specs: Params = SPECS) -> Params:
    """Values of all parameters; those of blocks have a leading axis of layers."""
    rng = np.random.default_rng(seed)

    def value(path, spec):
        shape = (LAYERS, *spec.shape) if path[0].key == "blocks" else spec.shape
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    return jax.tree.map_with_path(value, specs)


def config_of(rule: UpdateRule, **more: Any) -> OptimizerConfig:
    """An optimizer with this rule."""
    return OptimizerConfig(**{"rule": rule, "warmup_steps": 2, "learning_rate": 0.03, "clip_norm": None} | more)


def numbers_of(config: OptimizerConfig, *replicas: Replica) -> Numbers:
    """The numbers of some replicas, or those of the config alone."""
    stacked = stack_numbers(config, replicas or [Replica()])
    return jax.tree.map(jnp.asarray, stacked if replicas else jax.tree.map(lambda a: a[0], stacked))


def descend(
    optimizer: optax.GradientTransformationExtraArgs,
    params: Params,
    numbers: Numbers,
    gradients: Sequence[Params] | None = None,
) -> list[TrainState]:
    """The states after each of some steps with given gradients, or with `STEPS` random ones."""
    state, states = create_train_state(params, optimizer, numbers, jax.random.key(0)), []
    for gradient in map(values_of, range(1, STEPS + 1)) if gradients is None else gradients:
        updates, opt_state = optimizer.update(gradient, state.opt_state, state.params, numbers=numbers)
        state = state._replace(params=optax.apply_updates(state.params, updates), opt_state=opt_state)
        states.append(state)
    return states


def trained(config: OptimizerConfig, numbers: Numbers | None = None) -> tuple[Params, Params]:
    """Parameters and what is evaluated after all steps."""
    numbers = numbers_of(config) if numbers is None else numbers
    last = descend(make_optimizer(config, STEPS, SPECS), values_of(0), numbers)[-1]
    return last.params, last.evaluated


def _same(left: Params, right: Params, what: str, tolerance: float = 1e-4) -> None:
    for (path, a), b in zip(jax.tree.leaves_with_path(left), jax.tree.leaves(right), strict=True):
        close(a, b, f"{what}: {jax.tree_util.keystr(path, simple=True, separator='.')}", tolerance)


def layer_by_layer(rule: UpdateRule) -> None:
    """A stack of layers moves as its layers do, each in a model of one layer."""
    config = config_of(rule)
    made, numbers, params = make_optimizer(config, STEPS, SPECS), numbers_of(config), values_of(0)
    together = descend(made, params, numbers)[-1].params

    def only(i, params):
        return params | {"blocks": jax.tree.map(lambda a: a[i : i + 1], params["blocks"])}

    for i in range(LAYERS):
        gradients = [only(i, values_of(seed)) for seed in range(1, STEPS + 1)]
        alone = descend(made, only(i, params), numbers, gradients)[-1].params
        _same(alone["blocks"], only(i, together)["blocks"], "a layer is not updated by itself", 1e-5)


def replica_by_replica(rule: UpdateRule) -> None:
    """Mapped over numbers, in a batch or in a loop, the rule gives what it gives for each of them."""
    config, replicas = config_of(rule), (Replica(), Replica(learning_rate=0.01), Replica(weight_decay=3.0))
    run = functools.partial(trained, config)
    numbers = numbers_of(config, *replicas)
    for how, together in {
        "vmap": jax.jit(jax.vmap(run))(numbers),
        "map": jax.jit(functools.partial(lax.map, run))(numbers),
    }.items():
        for i in range(len(replicas)):
            single = jax.jit(run)(jax.tree.map(lambda a, i=i: a[i], numbers))
            _same(jax.tree.map(lambda a, i=i: a[i], together), single, f"a replica of {how} is no single run")


def moved_by_numbers(rule: UpdateRule) -> None:
    """The learning rate, the weight decay and the warm-up of a replica matter."""
    config = config_of(rule)
    run = jax.jit(functools.partial(trained, config))
    first = run(numbers_of(config))[0]["blocks"]["kernel"]
    for other in (Replica(learning_rate=0.01), Replica(weight_decay=3.0), Replica(warmup_steps=0)):
        params, _ = run(jax.tree.map(lambda a: a[0], numbers_of(config, other)))
        differ(params["blocks"]["kernel"], first, f"{other} changes nothing")


def downhill(rule: UpdateRule) -> None:
    """To the bottom of a bowl: after 200 steps the mean square is less than a tenth."""
    config = config_of(rule, learning_rate=0.1, weight_decay=0.0, clip_norm=1.0)
    made, bottom = make_optimizer(config, 200, SPECS), values_of(7)

    def step(state, _):
        gradient = jax.tree.map(jnp.subtract, state.params, bottom)
        updates, opt_state = made.update(gradient, state.opt_state, state.params, numbers=state.numbers)
        return state._replace(params=optax.apply_updates(state.params, updates), opt_state=opt_state), None

    def height(params):
        return float(optax.tree.norm(jax.tree.map(jnp.subtract, params, bottom), squared=True))

    start = create_train_state(values_of(0), made, numbers_of(config), jax.random.key(0))
    end = jax.jit(lambda state: lax.scan(step, state, None, 200)[0])(start)
    before, after = height(start.evaluated), height(end.evaluated)
    assert after < 0.1 * before, f"a bowl of height {before:.3g} is still {after:.3g} high after 200 steps"


TOTAL = 20


def factors(schedule: Schedule, warmup: int) -> np.ndarray:
    """The factor at steps 0 … TOTAL, the number of warm-up steps traced."""
    run = jax.jit(jax.vmap(lambda step, warmup: schedule(step, warmup, TOTAL), in_axes=(0, None)))
    return np.asarray(run(jnp.arange(TOTAL + 1), jnp.int32(warmup)))


def warmed_up(schedule: Schedule) -> None:
    """A straight rise to 1 at the end of warm-up, which may be traced, none, or longer than the run."""
    for warmup in (0, 4, TOTAL + 10):
        rise = np.arange(1, min(warmup, TOTAL) + 2) / (warmup + 1)
        close(factors(schedule, warmup)[: len(rise)], rise, f"no straight rise to 1 in {warmup} steps of warm-up", 1e-6)


def possible(schedule: Schedule) -> None:
    """Finite factors, float32, of which none is negative."""
    for warmup in (0, 4, TOTAL - 1, TOTAL, TOTAL + 10):
        found = factors(schedule, warmup)
        assert found.dtype == np.float32, f"the factor is {found.dtype}, not float32"
        assert found.shape == (TOTAL + 1,), f"the factor of a step has the shape {found.shape[1:]}, not ()"
        assert np.isfinite(found).all(), f"the factor is {found[~np.isfinite(found)][0]} with warm-up {warmup}"
        assert (found >= 0).all(), f"the factor is {found.min():.3g} with warm-up {warmup}"


RULE = (layer_by_layer, replica_by_replica, moved_by_numbers, downhill)
SCHEDULE = (warmed_up, possible)
