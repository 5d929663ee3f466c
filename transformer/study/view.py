"""The progress of all cells of a study, in one view."""

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from transformer.core.files import Damaged
from transformer.study.cell import Cell
from transformer.training.metrics import METRICS, values_of

SECONDS = 0.3
"""Seconds between refreshes."""
_TAIL = 4096


class View:
    """A bar for each running cell and one for the study; none where standard error is not a terminal."""

    def __init__(self, cells: Sequence[Cell]):
        console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._bars = Progress(*columns, console=console, disable=not console.is_terminal)
        self._all = self._bars.add_task("cells", total=len(cells))
        self._tasks = {
            cell.folder: self._bars.add_task(cell.title, total=cell.config.steps, visible=False) for cell in cells
        }

    def __enter__(self) -> "View":
        self._bars.start()
        return self

    def __exit__(self, *_):
        self._bars.stop()

    def wait(self) -> None:
        """Wait for a moment, then show what has changed."""
        time.sleep(SECONDS)
        if self._bars.disable:
            return
        for folder, task in self._tasks.items():
            if step := step_reached(folder):
                self._bars.update(task, completed=step, visible=True)

    def end(self, cell: Cell) -> None:
        """Remove the bar of a cell."""
        self._bars.update(self._tasks.pop(cell.folder), visible=False)
        self._bars.advance(self._all)


def step_reached(folder: Path) -> int:
    """The last step in the metrics of a cell, which may be growing; 0 before the first."""
    try:
        with (folder / METRICS).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL))
            lines = file.read().split(b"\n")
        return int(values_of(lines[-2], METRICS)["step"]) if len(lines) > 1 else 0
    except (FileNotFoundError, Damaged):
        return 0
