"""A progress bar with loss, tokens per second and time left."""

import time

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar


class Progress:
    """The bar of a run; it shows nothing where standard error is not a terminal."""

    def __init__(self, title: str, steps: int):
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
        )
        console = Console(stderr=True)
        self._bar = Bar(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal)
        self._task = self._bar.add_task(title, total=steps, state="compiling")
        self._tokens = 0
        self._marks: list[tuple[int, float]] = []

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, *_):
        self._bar.stop()

    def update(self, step: int, losses: np.ndarray | None = None, tokens: int = 0) -> None:
        """Show the step reached, with the replicas' losses there and the tokens read since the last update."""
        state = "compiling"
        if losses is not None:
            self._tokens += tokens
            self._marks = [*self._marks[:1], (self._tokens, time.monotonic())]
            healthy = losses[np.isfinite(losses)]
            loss = f"{healthy.mean():.3f}" if len(healthy) else "diverged"
            state = f"loss {loss}  {self.tokens_per_second:,.0f} tokens/s"
        self._bar.update(self._task, completed=step, state=state)

    @property
    def tokens_per_second(self) -> float:
        """Throughput between the first and the last update; NaN before the second."""
        if len(self._marks) < 2:
            return float("nan")
        (first, start), (last, now) = self._marks
        return (last - first) / (now - start)
