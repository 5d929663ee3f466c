"""The folder of a run: which run it holds, which process writes to it, and what it ran on."""

import contextlib
import fcntl
import json
import os
import shutil
import socket
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TextIO

import jax
import numpy as np

from transformer.core.json import to_json
from transformer.core.modules import Params
from transformer.core.sources import sources
from transformer.core.values import ConfigError, check_type
from transformer.data.dataset import Dataset, fingerprint_arrays
from transformer.runs.config import Replica, RunConfig, fingerprint
from transformer.training.checkpoint import write_durably
from transformer.training.environment import environment

WhenNotEmpty = Literal["refuse", "resume", "overwrite"]
"""What to do with a folder that holds an earlier run."""
CONFIG, LOCK = "config.json", ".lock"
_held: set[Path] = set()


@contextlib.contextmanager
def prepared(workdir: Path, wanted: dict[str, Any], when_not_empty: WhenNotEmpty, files: Mapping[str, str]):
    """Make the folder that of the run `wanted` and hold it, or refuse; `files` are texts it needs to be resumed.

    A run may be resumed with more steps than it was begun with, and with no other change.

    Raises:
      ConfigError: the folder is not empty and `when_not_empty` refuses that, holds another run, or is in use.
    """
    # A folder that is refused is left unchanged, without a lock in it.
    _check(workdir, wanted, when_not_empty, files)
    with locked(workdir):
        steps_before = _check(workdir, wanted, when_not_empty, files)
        if when_not_empty == "overwrite":
            clear(workdir)
        for name, text in files.items():
            write_durably(workdir / name, text)
        write_durably(workdir / CONFIG, json.dumps(wanted, indent=1, sort_keys=True))
        write_environment(workdir)
        if steps_before is not None:
            after = wanted["run"]["steps"]
            print(f"{workdir}: from {steps_before} to {after} steps, from here on by their schedule", file=sys.stderr)
        yield


def write_environment(workdir: Path) -> None:
    """Write down what a run runs on, and warn where it ran on something else before, which may change numbers."""
    path, here = workdir / "environment.json", environment()
    before = json.loads(path.read_text()) if path.exists() else here
    old, new = ({"packages": each["packages"], "devices": sorted(set(each["devices"]))} for each in (before, here))
    if differing := differences(old, new):
        warnings.warn(
            f"{workdir} continues with other {', '.join(differing)}: the same up to rounding, not bit for bit",
            stacklevel=2,
        )
    write_durably(path, json.dumps(here, indent=1, sort_keys=True))


def _check(workdir: Path, wanted: dict[str, Any], when_not_empty: WhenNotEmpty, files: Mapping[str, str]) -> int | None:
    """Refuse the folder, or return the number of steps a run had before it was given more."""
    check_type(when_not_empty, WhenNotEmpty, "when_not_empty")
    found = contents(workdir)
    if found and when_not_empty == "refuse":
        raise ConfigError(f"workdir: {workdir} is not empty; --resume continues it, --overwrite starts again")
    # A start that was killed leaves these files only.
    if CONFIG not in found and found - files.keys():
        raise ConfigError(f"workdir: {workdir} is not empty and holds no {CONFIG} of a run")
    if CONFIG not in found or when_not_empty == "overwrite":
        return None
    stored = json.loads((workdir / CONFIG).read_text())
    differing = differences(stored, wanted)
    if differing == ["run.steps"] and stored["run"]["steps"] < wanted["run"]["steps"]:
        return stored["run"]["steps"]
    if differing:
        raise ConfigError(f"workdir: {workdir} holds another run, which differs in {', '.join(differing)}")
    return None


@contextlib.contextmanager
def locked(workdir: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold a folder, so that no other process writes to it; a process may hold one twice.

    Args:
      workdir: the folder, made where there is none.
      wait: whether to wait while another process holds it, instead of refusing.

    Raises:
      ConfigError: another process holds the folder, or it cannot be written.
    """
    place = workdir.resolve()
    if place in _held:
        yield
        return
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        file = (workdir / LOCK).open("a+", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"workdir: {workdir} cannot be written: {error.strerror}") from None
    with file:
        _take(file, workdir, wait)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        _held.add(place)
        try:
            yield
        finally:
            _held.discard(place)


def _take(file: TextIO, workdir: Path, wait: bool) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.read() or "another process"
        if not wait:
            raise ConfigError(
                f"workdir: {workdir} is in use by {holder}; end it first, or take another folder"
            ) from None
        print(f"waiting for {holder}, which holds {workdir}", file=sys.stderr, flush=True)
        fcntl.flock(file, fcntl.LOCK_EX)


def contents(workdir: Path) -> set[str]:
    """The names of the files in a folder, without the lock and partly written files.

    Raises:
      ConfigError: `workdir` is a file.
    """
    if workdir.exists() and not workdir.is_dir():
        raise ConfigError(f"workdir: {workdir} is not a folder")
    names = {p.name for p in workdir.iterdir()} if workdir.exists() else set()
    return {name for name in names if name != LOCK and not (name.startswith(".") and name.endswith(".partial"))}


def clear(workdir: Path) -> None:
    """Delete everything in a folder except its lock."""
    for path in workdir.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()


def identity(
    config: RunConfig, replicas: Sequence[Replica], data: Dataset, initial: Params | None = None
) -> dict[str, Any]:
    """Everything that determines the numbers of a run, as JSON with its hash."""
    body = {"run": config.to_json(), "replicas": to_json(list(replicas)), "data": data.fingerprint}
    if own := sources(config):
        body["sources"] = own
    if initial is not None:
        leaves = jax.tree.leaves_with_path(initial)
        body["initial"] = fingerprint_arrays({jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves})
    return {"sha256": fingerprint(body), **body}


def definitions(data: Dataset) -> dict[str, str]:
    """The files of the tokenizers of the data, by name."""
    return {f"{name}.json": tokenizer.definition for name, tokenizer in data.tokenizers.items()}


def differences(stored: Any, wanted: Any, path: str = "") -> list[str]:
    """The paths at which two JSON values differ, hashes left out."""
    if isinstance(stored, dict) and isinstance(wanted, dict):
        names = sorted((stored.keys() | wanted.keys()) - {"sha256"})
        return [d for n in names for d in differences(stored.get(n), wanted.get(n), f"{path}.{n}" if path else n)]
    return [] if stored == wanted else [path]
