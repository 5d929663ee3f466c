"""Time contestants in turn, round by round, each in its own process; compare by ratio per round."""

import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Contestant:
    name: str
    """A key of `contestant.CONTESTANTS`."""
    units: int
    """Units of work per round."""
    python: str = sys.executable
    """The Python interpreter, which may have other library versions."""


def race(contestants: Mapping[str, Contestant], rounds: int) -> dict[str, list[float]]:
    """Seconds per unit of each contestant in each round."""
    processes = {}
    for label, c in contestants.items():
        command = [c.python, "-m", "experiments.benchmarks.contestant", c.name]
        processes[label] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        while (line := _read(processes[label], label)) != "ready":
            print(line)
    times: dict[str, list[float]] = {label: [] for label in contestants}
    for _ in range(rounds):
        for label, c in contestants.items():
            print(c.units, file=processes[label].stdin, flush=True)
            times[label].append(float(_read(processes[label], label)) / c.units)
    for process in processes.values():
        process.communicate()
    return times


def _read(process: subprocess.Popen, label: str) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{label} ended with exit code {process.wait()}")
    return line.strip()


def ratios(times: Mapping[str, Sequence[float]], label: str, to: str) -> list[float]:
    """Time of `label` over that of `to`, round by round."""
    return [a / b for a, b in zip(times[label], times[to], strict=True)]


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Median and, in brackets, lowest and highest."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(*columns, title=title)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
