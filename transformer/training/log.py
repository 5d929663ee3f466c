"""The numbers of a run while it trains: the lines of metrics.jsonl, which trackers and the progress bar show too."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from transformer.core.files import writing
from transformer.training import processes
from transformer.training.checkpoint import CheckpointError
from transformer.training.metrics import METRICS, finite, line_of, read_metrics
from transformer.training.progress import Progress
from transformer.training.step import Metrics
from transformer.training.trackers import Tracking


def metrics_path(workdir: Path) -> Path:
    """The file of metrics; processes that do not write have os.devnull."""
    return workdir / METRICS if processes.is_writer() else Path(os.devnull)


@contextlib.contextmanager
def appended(path: Path) -> Iterator[TextIO]:
    """The file of metrics, open to be written at its end; closing it may write too."""
    with writing(path):
        file = path.open("a", encoding="utf-8")
    try:
        yield file
    finally:
        with writing(path):
            file.close()


def rewind(workdir: Path, written: int) -> None:
    """Cut the file back to the bytes that it had at a checkpoint; what came after them will be written again.

    Raises:
      CheckpointError: there are fewer, or they are damaged.
    """
    if not processes.is_writer():
        return
    path = workdir / METRICS
    if not written:
        path.write_bytes(b"")
        return
    if not path.is_file() or path.stat().st_size < written:
        raise CheckpointError(f"{path} has lost lines that were written before the checkpoint; restore a copy")
    os.truncate(path, written)
    read_metrics(workdir)


LOGGED = ("step", "replica", "seconds", "loss", "grad_norm", "learning_rate", "skipped")
"""What the lines of a run have besides what is measured at evaluations."""


@dataclass
class RunLog:
    """Where the numbers of all replicas go."""

    file: TextIO
    tracking: Tracking
    progress: Progress
    learning_rates: np.ndarray
    """(R, steps)."""
    unread: tuple[int, Metrics, int] | None = None
    """First step, metrics (R, steps) and tokens of the last dispatch, which the device may still compute."""

    def dispatched(self, step: int, metrics: Metrics, tokens: int) -> None:
        """Write the numbers of the dispatch before this one, so that the host never waits for the device."""
        self.catch_up()
        self.unread = (step, metrics, tokens)

    def catch_up(self) -> None:
        """Wait for the last dispatch, and write its numbers."""
        if self.unread is None:
            return
        (first, metrics, tokens), self.unread = self.unread, None
        metrics = processes.fetch(metrics)
        loss, norm = (np.asarray(metrics[name], np.float64) for name in ("loss", "grad_norm"))
        skipped = np.asarray(metrics["skipped"]).sum(1)
        end = first + loss.shape[1]
        self.write(
            [
                {
                    "step": end,
                    "replica": i,
                    "loss": finite(loss[i].mean()),
                    "grad_norm": finite(norm[i].mean()),
                    "learning_rate": float(rates[end - 1]),
                    **({"skipped": int(skipped[i])} if skipped[i] else {}),
                }
                for i, rates in enumerate(self.learning_rates)
            ]
        )
        self.progress.update(end, loss[:, -1], tokens)

    def evaluated(self, step: int, values: Mapping[str, np.ndarray]) -> None:
        """Write measures, (R,) each, of the parameters after a step."""
        self.write(
            [
                {"step": step, "replica": i} | {name: finite(value[i]) for name, value in values.items()}
                for i in range(len(self.learning_rates))
            ]
        )

    def write(self, lines: list[dict[str, Any]]) -> None:
        with writing(Path(self.file.name)):
            self.file.writelines(map(line_of, lines))
            self.file.flush()
        self.tracking.log(lines)

    def on_disk(self) -> int:
        """Bytes of the file, with the last dispatch, once all of them are on the disk."""
        self.catch_up()
        if processes.is_writer():
            with writing(Path(self.file.name)):
                os.fsync(self.file.fileno())
        return self.file.tell()

    def finish(self, loss: np.ndarray, diverged_at: np.ndarray) -> None:
        """Tell the trackers how the replicas ended."""
        self.tracking.finish(
            [
                {"replica": i, "validation_loss": finite(loss[i]), "diverged_at": int(at) if at >= 0 else None}
                for i, at in enumerate(diverged_at)
            ]
        )
