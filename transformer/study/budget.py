"""Equal budgets: choose one integer of a config so that arms cost the same."""

import functools
import statistics
import time
from collections.abc import Callable
from typing import Literal

import jax

from transformer.analysis.counts import cache_bytes, parameter_count, train_flops
from transformer.core.values import ConfigError
from transformer.data.dataset import Dataset, stack_batches
from transformer.runs.config import Replica, RunConfig
from transformer.training.program import make_program

Budget = Literal["parameters", "flops", "state", "seconds"]
"""Parameters of the model; operations of training; bytes that a decoder remembers of a sequence of full length;
measured time of training."""
PATHS = {"d_ff": "model.feed_forward.d_ff", "num_layers": "model.num_layers", "steps": "steps"}
"""The field of a run that each knob sets; another knob is the dotted path of an integer."""
TIMED = 5
"""Dispatches that are timed, after two that are not."""

LARGEST = 2**20


def knob_value(config: RunConfig, knob: str) -> int:
    """The number that the knob of a config stands at."""
    return functools.reduce(getattr, PATHS.get(knob, knob).split("."), config)


def cost(config: RunConfig, budget: Budget) -> float:
    """What a run costs, in units of the budget; of `seconds` see `step_seconds`."""
    if budget == "parameters":
        return float(parameter_count(config.model))
    if budget == "state":
        return float(cache_bytes(config.model))
    return train_flops(config.model) * config.steps * config.batch_size


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


def match(config: RunConfig, to: RunConfig, budget: Budget, knob: str = "d_ff", multiple: int = 1) -> RunConfig:
    """The config with `knob` set to a multiple of `multiple` so that its cost is as near as possible to that of `to`.

    Raises:
      ConfigError: no value of the knob gets within 5 %, or the knob does not change the budget.
    """
    if knob == "steps" and budget in ("parameters", "state"):
        what = "number of parameters" if budget == "parameters" else "size of the state"
        raise ConfigError(f"match: the number of steps does not change the {what}")
    path, target = PATHS.get(knob, knob), cost(to, budget)

    def at(value: int) -> float:
        return cost(config.replace({path: value}), budget)

    above = _first(lambda count: at(count * multiple) >= target)
    value = min((n * multiple for n in (above - 1, above) if n >= 1), key=lambda v: abs(at(v) - target))
    if abs(at(value) - target) > 0.05 * target:
        raise ConfigError(
            f"match: {knob} = {value} costs {at(value):.4g} {budget}, not {target:.4g}, and is the nearest"
        )
    return config.replace({path: value})


def _first(reached: Callable[[int], bool]) -> int:
    """The smallest number from 1 on for which a monotone condition holds."""
    high = 1
    while not reached(high):
        if high > LARGEST:
            raise ConfigError(f"match: the budget is not reached at {high}")
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high
