"""Time contestants in turn, round by round, each in its own process; compare by ratio per round."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Contestant:
    name: str
    """A key of `contestant.CONTESTANTS`."""
    units: int
    """Units of work per round."""
    python: str = sys.executable
    """The Python interpreter, which may have other library versions."""
    size: str = "recipe"
    """A key of `contestant.SIZES`."""


class Running:
    """The process of a contestant that has warmed up."""

    def __init__(self, contestant: Contestant):
        self.contestant = contestant
        command = [contestant.python, "-m", "experiments.benchmarks.contestant", contestant.name, contestant.size]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        while (line := self._read()) != "ready":
            print(line, file=sys.stderr)

    def seconds(self) -> float:
        """Seconds per unit, in one round."""
        print(self.contestant.units, file=self.process.stdin, flush=True)
        return float(self._read()) / self.contestant.units

    def end(self) -> None:
        self.process.communicate()

    def _read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.contestant} ended with exit code {self.process.wait()}")
        return line.strip()


def race(contestants: Mapping[str, Contestant], rounds: int, *, together: bool = True) -> dict[str, list[float]]:
    """Seconds per unit of each contestant in each round.

    `together`: all processes live at once, and wait for their turns; otherwise, where memory holds only one, each is
    started again in each round.
    """
    times: dict[str, list[float]] = {label: [] for label in contestants}
    running = {label: Running(c) for label, c in contestants.items()} if together else {}
    for _ in range(rounds):
        for label, contestant in contestants.items():
            one = running.get(label) or Running(contestant)
            times[label].append(one.seconds())
            if not together:
                one.end()
    for one in running.values():
        one.end()
    return times


def ratios(times: Mapping[str, Sequence[float]], label: str, to: str) -> list[float]:
    """Time of `label` over that of `to`, round by round."""
    return [a / b for a, b in zip(times[label], times[to], strict=True)]
