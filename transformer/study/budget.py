"""Equal budgets: choose one integer of a config so that arms cost the same."""

import bisect
import dataclasses
import functools
import math
import statistics
import time
from collections.abc import Callable
from typing import Any, Literal

import jax

from transformer.analysis.counts import cache_bytes, parameter_count, step_flops
from transformer.core.errors import ConfigError, nearest
from transformer.data.dataset import Dataset, stack_batches
from transformer.runs.config import Replica, RunConfig
from transformer.training.program import make_program

Budget = Literal["parameters", "flops", "state", "seconds"]
"""Parameters of the model; operations of training on its data; bytes that a decoder remembers of a sequence of full
length; measured time of training."""
PATHS = {"d_ff": "model.feed_forward.d_ff", "num_layers": "model.num_layers", "steps": "steps"}
"""The field of a run that each knob sets; another knob is the dotted path of an integer."""
MATCH_BY = "d_ff"
"""The knob of those that name none."""
NAMES = {"parameters": "number of parameters", "flops": "operations of training", "state": "size of the state"}
TIMED = 5
"""Dispatches that are timed, after two that are not."""

LARGEST = 2**20
REFUSED = 256
"""Numbers in a row that a model may refuse, such as widths that its heads do not divide, before none is looked for."""


def knob_value(config: RunConfig, knob: str) -> Any:
    """The number that the knob of a config stands at.

    Raises:
      ConfigError: the config has no such field.
    """
    path, value = PATHS.get(knob, knob), config
    for name in path.split("."):
        fields = [f.name for f in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []
        if name not in fields:
            given = "none" if value is None else type(value).__name__
            known = [*fields, *(PATHS if value is config else ())]
            raise ConfigError(f"match: {path}: {given} has no {name!r}{nearest(name, known)}")
        value = getattr(value, name)
    return value


def cost(config: RunConfig, budget: Budget, data: Dataset | None = None) -> float:
    """What a run costs in units of the budget, operations as `step_flops` counts them; not of seconds."""
    if budget == "parameters":
        return float(parameter_count(config.model))
    if budget == "state":
        return float(cache_bytes(config.model))
    return step_flops(config, data) * config.steps


def step_seconds(config: RunConfig, data: Dataset) -> float:
    """Median seconds of a training step of one run, measured here and now."""
    program = make_program(config, [Replica(seed=0)])
    batches = program.put(stack_batches([data.train_batches(config, 0)], 0, config.steps_per_dispatch))
    state, times = program.init(), []
    for _ in range(2 + TIMED):
        started = time.perf_counter()
        state, metrics = program.train(state, batches)
        jax.block_until_ready(metrics)
        times.append(time.perf_counter() - started)
    return statistics.median(times[2:]) / config.steps_per_dispatch


def match(
    config: RunConfig, target: float, budget: Budget, knob: str = MATCH_BY, data: Dataset | None = None
) -> RunConfig:
    """The config with `knob` set so that its `cost` is as near as possible to `target`.

    Numbers that the model refuses, such as widths that its heads do not divide, are left out.

    Raises:
      ConfigError: no value of the knob gets within 5 %, the model refuses too many of them, or there is no such knob or
        it does not change the budget.
    """
    path = PATHS.get(knob, knob)
    if (stands := knob_value(config, knob)) is not None and type(stands) is not int:
        raise ConfigError(f"match: {knob} is {stands}, and a whole number is needed")

    @functools.cache
    def taken(least: int) -> tuple[int, float]:
        """The first number from `least` on that the model takes, with its cost."""
        refused = ""
        for number in range(least, least + REFUSED):
            try:
                changed = config.replace({path: number})
            except ConfigError as error:
                refused = str(error)
            else:
                return number, cost(changed, budget, data)
        raise ConfigError(f"match: {knob} is none of {least} to {least + REFUSED - 1}: {refused}")

    def at(least: int) -> float:
        return taken(least)[1]

    if at(1) == at(taken(1)[0] + 1):
        raise ConfigError(f"match: {knob} does not change the {NAMES[budget]}")
    above = _first(at, target)  # so the number below it is one that the model takes, if there is any
    value, nearest_cost = min((taken(n) for n in (above - 1, above) if n >= 1), key=lambda one: abs(one[1] - target))
    if abs(nearest_cost - target) > 0.05 * target:
        raise ConfigError(
            f"match: {knob} = {value} costs {nearest_cost:.4g} {budget}, not {target:.4g}, and is the nearest"
        )
    return config.replace({path: value})


def _first(at: Callable[[int], float], target: float) -> int:
    """The smallest number from 1 on at which a cost that never falls reaches the target.

    Most costs grow in a straight line. So the next number is where the line through the last two reaches it, and four
    costs are often enough.
    """
    low, high = 0, 1
    while at(high) < target:
        if high > LARGEST:
            raise ConfigError(f"match: the budget is not reached at {high}")
        low, high = high, max(2 * high, min(_on_line(at, target, low, high), LARGEST) if low else 0)
    if high - low > 1 and at(high - 1) < target:
        return high
    return bisect.bisect_left(range(high), target, lo=low + 1, key=at)


def _on_line(at: Callable[[int], float], target: float, low: int, high: int) -> int:
    """Where the line through the costs of two numbers reaches the target; 0 if it does not rise."""
    slope = (at(high) - at(low)) / (high - low)
    return high + math.ceil((target - at(high)) / slope) if slope > 0 else 0
