"""The task of a dask worker: start the process that computes a cell, and wait for it."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_running: dict[str, subprocess.Popen] = {}
_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class Place:
    """The part of a machine that a worker owns."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that tell JAX of it."""
    cores: tuple[int, ...] = ()
    """Its CPU cores; empty: all that the worker may use."""


class Died(RuntimeError):
    """The process of a cell was killed, or ended without a word; another attempt continues from its checkpoint."""


def compute(folder: str, modules: Sequence[str], where: tuple[str, str], places: Mapping[str, Place]) -> str | None:
    """Compute the cell of a folder; returns its error in one line if it fails, else None.

    Args:
      folder: the folder of the cell.
      modules: those that it may import.
      where: the working directory of the study, to which its paths are relative, and the folder of its script.
      places: what each worker owns, by its name; a worker that is missing was given its devices at its start.

    Raises:
      Died: a signal ended the process, or it did not say why it ended.
    """
    from distributed import get_worker

    place, said = places.get(str(get_worker().name), Place()), Path(folder) / "error.txt"
    with _one_at_a_time, (Path(folder) / "log.txt").open("a") as log:
        directory, script = where
        if place.cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, place.cores)  # for this thread and the process it starts
        paths = (script, os.environ.get("PYTHONPATH"))
        command = [sys.executable, "-m", "transformer.study.worker", folder]
        said.unlink(missing_ok=True)  # of an earlier attempt
        process = subprocess.Popen(
            [*command, *(f"--allow={name}" for name in modules), "--parent", str(os.getpid())],
            cwd=directory,
            env={**os.environ, **place.environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # a Ctrl-C is for the study, which asks this process once
        )
        _running[folder] = process
        try:
            code = process.wait()
        finally:
            del _running[folder]
    if code == 0:
        return None
    if code == 1 and said.exists():
        return said.read_text().partition("\n")[0]
    raise Died(f"the process ended with {code}, see {folder}/log.txt")


def stop(folders: Sequence[str]) -> None:
    """Ask the processes of these cells to save and end, and wait until they do, however long a dispatch takes."""
    running = [process for folder, process in list(_running.items()) if folder in folders]
    for process in running:
        process.send_signal(signal.SIGTERM)
    for process in running:
        process.wait()
