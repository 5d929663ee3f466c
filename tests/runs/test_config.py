"""Numbers of runs."""

import math

import pytest

from transformer.core.errors import ConfigError
from transformer.runs.config import Replica, grid
from transformer.runs.optimizer import OptimizerConfig


def test_a_grid_of_a_number_of_seeds():
    assert grid(3) == grid(seeds=range(3)) == grid([0, 1, 2])
    assert [(each.seed, each.learning_rate) for each in grid(2, (0.1, 0.2))] == [(0, 0.1), (1, 0.1), (0, 0.2), (1, 0.2)]
    for none in (0, []):
        with pytest.raises(ConfigError, match="seeds: none is given"):
            grid(none)


@pytest.mark.parametrize(
    ("number", "what"), [(math.nan, "nan is not a finite number"), (math.inf, "inf is not a finite")]
)
def test_numbers_that_are_none(number, what):
    with pytest.raises(ConfigError, match=f"^optimizer.learning_rate: {what}"):
        OptimizerConfig(learning_rate=number)
    for name in ("learning_rate", "weight_decay", "initial_scale"):
        with pytest.raises(ConfigError, match=f"^{name}: {what}"):
            Replica(**{name: number})
    with pytest.raises(ConfigError, match=r"^learning_rate: -1\.0 is negative"):
        Replica(learning_rate=-1.0)
