"""The metrics of a run: a line of metrics.jsonl for each replica at each measurement."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from transformer.core.values import ConfigError, nearest

METRICS = "metrics.jsonl"


class Curve(NamedTuple):
    """A quantity over the steps of a run, as the plots take it."""

    steps_S: np.ndarray
    """(S,) steps at which some replica has a value."""
    values_RS: np.ndarray
    """(R, S) values, NaN where a replica has none or one that is not finite."""


def read_metrics(workdir: Path) -> Iterator[dict[str, Any]]:
    """The lines of a run, of which the last may be incomplete: then it is left out."""
    whole, _, _ = (workdir / METRICS).read_text(encoding="utf-8").rpartition("\n")
    return map(json.loads, whole.splitlines())


def read_curve(workdir: Path, name: str, num_replicas: int) -> Curve:
    """One quantity of all replicas.

    Raises:
      ConfigError: nothing of that name was measured.
    """
    lines = list(read_metrics(workdir))
    found = {(line["replica"], line["step"]): line[name] for line in lines if name in line}
    if not found:
        names = sorted({name for line in lines for name in line} - {"step", "replica"})
        raise ConfigError(f"metrics: {workdir} has no {name!r}{nearest(name, names)}")
    steps = sorted({step for _, step in found})
    values = [[found.get((i, step)) for step in steps] for i in range(num_replicas)]
    return Curve(np.array(steps), np.array(values, np.float64))


def finite(value: float) -> float | None:
    """The number, or None where it is not finite: JSON has no NaN."""
    return float(value) if math.isfinite(value) else None
