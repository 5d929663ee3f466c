"""Numbers of runs."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
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


def test_a_grid_of_numbers_of_jax():
    assert grid(jnp.arange(2), jnp.array([0.5, 0.25])) == grid(2, (0.5, 0.25))


def test_a_grid_of_numbers_of_numpy():
    """What comes out of arrays becomes numbers of Python, as a replica's JSON needs; nothing else is turned."""
    assert grid(np.int64(2), np.array([0.5, 0.25])) == grid(2, (0.5, 0.25))
    assert grid(np.arange(2)) == grid([np.int64(0), np.int32(1)]) == grid(2)
    (one,) = grid([3], [np.float32(0.5)])
    assert type(one.learning_rate) is float
    wrong: dict[str, Any] = {"2.0 is neither a whole number nor a sequence of them": 2.0, "'1' is not int": ["1"]}
    for said, seeds in wrong.items():
        with pytest.raises(ConfigError, match=f"^seeds?: {said}$"):
            grid(seeds)
    for name, value in (("seed", True), ("seed", 1.0), ("warmup_steps", 2.5)):
        with pytest.raises(ConfigError, match=rf"^{name}: {value} is not int"):
            Replica(**{name: value})


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
