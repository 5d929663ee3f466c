"""Equal budgets: choose one integer of a config so that arms cost the same."""

import functools
from collections.abc import Callable
from typing import Literal

from transformer.analysis.counts import parameter_count, train_flops
from transformer.core.values import ConfigError
from transformer.runs.config import RunConfig

Budget = Literal["parameters", "flops"]
Knob = Literal["d_ff", "num_layers", "steps"]
PATHS: dict[Knob, str] = {"d_ff": "model.feed_forward.d_ff", "num_layers": "model.num_layers", "steps": "steps"}
"""The field of a run that each knob sets."""

LARGEST = 2**20


def knob_value(config: RunConfig, knob: Knob) -> int:
    """The number that the knob of a config stands at."""
    return functools.reduce(getattr, PATHS[knob].split("."), config)


def cost(config: RunConfig, budget: Budget) -> float:
    """Number of parameters of the model, or floating-point operations of all matrix products in training."""
    if budget == "parameters":
        return float(parameter_count(config.model))
    return train_flops(config.model) * config.steps * config.batch_size


def match(config: RunConfig, to: RunConfig, budget: Budget, knob: Knob = "d_ff", multiple: int = 1) -> RunConfig:
    """The config with `knob` set to a multiple of `multiple` so that its cost is as near as possible to that of `to`.

    Raises:
      ConfigError: no value of the knob gets within 5 %, or the knob does not change the budget.
    """
    if budget == "parameters" and knob == "steps":
        raise ConfigError("match: the number of steps does not change the number of parameters")
    path, target = PATHS[knob], cost(to, budget)

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
