"""How far a run is, or other long work, on standard error: a bar in a terminal, elsewhere lines."""

import math
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn, track
from rich.progress import Progress as Bar

T = TypeVar("T")
FIRST, EVERY = 10.0, 60.0
"""Seconds until the first line, which a notebook has after a minute too, and at most between lines."""


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, of which there are two at least: 45 s, 12 min, 3 h."""
    size, unit = next((n, u) for n, u in ((3600, "h"), (60, "min"), (1, "s")) if seconds >= 2 * n or n == 1)
    return f"{seconds / size:.0f} {unit}"


def counted(results: Iterable[T], title: str, total: int) -> Iterator[T]:
    """The results as they come, with how many of `total` there are and the time left."""
    console = Console(stderr=True)
    start, due = time.monotonic(), time.monotonic() + FIRST
    bar = track(results, title, total, console=console, disable=not console.is_terminal)
    for count, result in enumerate(bar, 1):
        yield result
        if not console.is_terminal and (now := time.monotonic()) >= due:
            due, left = now + EVERY, duration((now - start) / count * (total - count))
            console.print(f"{title}: {count:,} of {total:,}, {left} left", markup=False, highlight=False)


class Progress:
    """Loss, throughput and time left of a run; `quiet` shows nothing, but measures."""

    def __init__(self, title: str, steps: int, *, quiet: bool = False):
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
        )
        self._console, self._title, self._steps = Console(stderr=True), title, steps
        terminal = self._console.is_terminal
        self._bar = Bar(*columns, TimeRemainingColumn(), console=self._console, disable=quiet or not terminal)
        self._task = self._bar.add_task(title, total=steps, state="compiling")
        self._start, first = time.monotonic(), EVERY if self._console.is_jupyter else FIRST
        self._due = math.inf if quiet or terminal else self._start + first
        self._tokens = 0
        self._marks: list[tuple[int, int, float]] = []

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, *_):
        self._bar.stop()

    def update(self, step: int, losses: np.ndarray | None = None, tokens: int = 0) -> None:
        """Show the step reached, with the replicas' losses there and the tokens read since the last update."""
        if losses is None:
            self._bar.update(self._task, completed=step, state="compiling")
            return
        now = time.monotonic()
        self._tokens += tokens
        self._marks = [*self._marks[:1], (self._tokens, step, now)]
        healthy = losses[np.isfinite(losses)]
        loss = f"loss {healthy.mean():.3f}" if len(healthy) else "diverged"
        rate = self.tokens_per_second
        state = [loss, *([f"{rate:,.0f} tokens/s"] if math.isfinite(rate) else [])]
        self._bar.update(self._task, completed=step, state="  ".join(state))
        if now >= self._due:
            self._due = now + min(EVERY, now - self._start)
            line = f"{self._title}: step {step:,} of {self._steps:,}, {', '.join([*state, *self._left(step)])}"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _left(self, step: int) -> list[str]:
        """The time left, from the second update on."""
        (_, first, start), (_, last, now) = self._marks[0], self._marks[-1]
        if last == first:
            return []
        return [f"{duration((now - start) / (last - first) * (self._steps - step))} left"]

    @property
    def tokens_per_second(self) -> float:
        """Throughput between the first and the last update; NaN before the second."""
        if len(self._marks) < 2:
            return math.nan
        (first, _, start), (last, _, now) = self._marks
        return (last - first) / (now - start)
