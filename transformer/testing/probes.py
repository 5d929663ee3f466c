"""Properties of probes. Each raises AssertionError with one line where it does not hold."""

import functools
from typing import Any

import jax
import numpy as np

from transformer.core.modules import Params
from transformer.data.arrays import Arrays, arrays
from transformer.runs.config import RunConfig
from transformer.study.probes import Probe
from transformer.testing.subject import LENGTH, initial_values, shaken, small, tokens_of

RUNS = 2


@functools.cache
def trained() -> tuple[RunConfig, list[Params], Arrays]:
    """A config, the parameters of some runs, and their data."""
    data = arrays(tokens_of(16, LENGTH + 1), validation=tokens_of(8, LENGTH + 1, seed=1))
    config = data.complete(RunConfig(model=small(max_length=LENGTH), batch_size=4))
    initial = initial_values(config.model)
    return config, [shaken(initial, seed) for seed in range(RUNS)], data


def measured(probe: Probe, *runs: Params) -> np.ndarray:
    """What it finds of runs, (R,)."""
    config, _, data = trained()
    stacked: Any = jax.tree.map(lambda *leaves: np.stack(leaves), *runs)
    found = np.asarray(probe(config, stacked, data))
    assert found.shape == (len(runs),), f"it returns {found.shape} for {len(runs)} runs"
    assert np.issubdtype(found.dtype, np.number), f"it returns {found.dtype}"
    return found.astype(np.float64)


def titled(probe: Probe) -> None:
    """It has a title, and says which of two numbers is the better one."""
    assert isinstance(probe.label, str), f"its label is {probe.label!r}, and a text is needed"
    assert isinstance(probe.higher_is_better, bool), f"higher_is_better is {probe.higher_is_better!r}"


def of_each_run(probe: Probe) -> None:
    """A number for each run, that which it has alone, and has again."""
    _, runs, _ = trained()
    together, again = measured(probe, *runs), measured(probe, *reversed(runs))[::-1]
    alone = np.concatenate([measured(probe, run) for run in runs])
    for found, how in ((again, "in another order"), (alone, "alone")):
        same = np.isclose(found, together, rtol=1e-5, atol=1e-7, equal_nan=True)
        assert same.all(), f"of runs {how} it finds {found.tolist()}, and {together.tolist()} of all"


PROBE = (titled, of_each_run)
