"""The metrics of a run: a line of metrics.jsonl for each replica at each measurement, with a checksum of its own."""

import json
import math
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from transformer.core.errors import ConfigError, nearest
from transformer.core.files import Damaged, parsed

METRICS = "metrics.jsonl"
CHECKSUM = "crc32"


class Curve(NamedTuple):
    """A quantity over the steps of a run, as the plots take it."""

    steps_S: np.ndarray
    """(S,) steps at which some replica has a value."""
    values_RS: np.ndarray
    """(R, S) values, NaN where a replica has none or one that is not finite."""


def line_of(values: dict[str, Any]) -> str:
    """The line of some values."""
    return json.dumps({**values, CHECKSUM: _checksum(values)}) + "\n"


def _checksum(values: dict[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(values).encode()):08x}"


def read_metrics(workdir: Path) -> list[dict[str, Any]]:
    """The lines of a run, of which the last may be incomplete: then it is left out.

    Raises:
      ConfigError: there is no file.
      Damaged: a line is not what was written.
    """
    path = workdir / METRICS
    try:
        whole, _, _ = path.read_bytes().rpartition(b"\n")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    return [values_of(line, f"{path}, line {number}") for number, line in enumerate(whole.splitlines(), 1)]


def values_of(line: bytes, where: str) -> dict[str, Any]:
    """The values of a line.

    Raises:
      Damaged: it is not what was written.
    """
    values = parsed(line.decode("utf-8", "replace"), where)
    if not isinstance(values, dict) or values.pop(CHECKSUM, None) != _checksum(values):
        raise Damaged(f"{where}: is not what was written, by its checksum")
    return values


def read_curve(workdir: Path, name: str, num_replicas: int) -> Curve:
    """One quantity of all replicas.

    Raises:
      ConfigError: nothing of that name was measured.
    """
    lines = read_metrics(workdir)
    found = {(line["replica"], line["step"]): line[name] for line in lines if name in line}
    if name == "skipped":  # written where it is not 0
        found = {(line["replica"], line["step"]): line.get(name, 0) for line in lines if "loss" in line}
    if not found:
        names = sorted({name for line in lines for name in line} - {"step", "replica"})
        raise ConfigError(f"metrics: {workdir} has no {name!r}{nearest(name, names)}")
    steps = sorted({step for _, step in found})
    values = [[found.get((i, step)) for step in steps] for i in range(num_replicas)]
    return Curve(np.array(steps), np.array(values, np.float64))


def charged(costs: np.ndarray, guess: float) -> np.ndarray:
    """Costs with a number for failed runs, by which a learning rate is chosen.

    A failed run costs as much as the worst of the others, or as a guess does, whichever is more.

    Args:
      costs: any shape, not finite where a run failed.
      guess: the cost of a model that has learned nothing; infinite where that is not known.
    """
    known = np.append(costs[np.isfinite(costs)], guess if np.isfinite(guess) else [])
    return np.where(np.isfinite(costs), costs, known.max() if known.size else 0.0)


def finite(value: float) -> float | None:
    """The number, or None where it is not finite: JSON has no NaN."""
    return float(value) if math.isfinite(value) else None
