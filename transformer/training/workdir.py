"""The folder of a run: which run it holds, which process writes to it, and what it ran on."""

import contextlib
import fcntl
import functools
import json
import os
import re
import shutil
import socket
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TextIO

import jax
import numpy as np

from transformer.core.checks import check_type
from transformer.core.errors import ConfigError
from transformer.core.files import Damaged, read_json, read_sealed, read_value, write_durably, write_sealed
from transformer.core.json import fingerprint, to_json
from transformer.core.modules import Params
from transformer.core.sources import sources
from transformer.data.dataset import Dataset, fingerprint_arrays
from transformer.runs.config import Replica, RunConfig
from transformer.training.environment import environment

WhenNotEmpty = Literal["refuse", "resume", "overwrite"]
"""What to do with a folder that holds an earlier run."""
CONFIG, LOCK = "config.json", ".lock"
RUN_FILES = (
    r"config\.json",
    r"environment\.json",
    r"metrics\.jsonl",
    r"checkpoints(/\.?[0-9]{8,}(\.partial)?(/.*)?)?",
    r"\w*tokenizer\.json",
    r"result\.json",
    r"evaluation\.json",
    r"sample\.(txt|png)",
    r"\w+\.png",
    r"tracked\.json",
    r"tensorboard(/[^/]+)?/events\.out\.tfevents\.[0-9a-f.]+",
    r"wandb(/.*)?",
    r"model/(config\.json|model[-\w]*\.safetensors|model\.safetensors\.index\.json)",
)
"""What a run and the commands of experiments write into its folder, as regular expressions."""
_held: set[Path] = set()


@dataclass(frozen=True)
class Identity:
    """Everything that determines the numbers of a run."""

    run: dict[str, Any]
    """Its config, as JSON."""
    replicas: list[dict[str, Any]]
    data: str
    """Hash of the data."""
    sources: dict[str, str] = field(default_factory=dict)
    """Hashes of the sources of variants from outside the package, by class."""
    initial: str | None = None
    """Hash of the initial values, where they were given."""

    @property
    def body(self) -> dict[str, Any]:
        """The fields that say something, as JSON."""
        stored = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in stored.items() if value not in ({}, None)}

    @functools.cached_property
    def sha256(self) -> str:
        """Hash of all of it."""
        return fingerprint(self.body)


@contextlib.contextmanager
def held_for_run(workdir: Path, wanted: Identity, when_not_empty: WhenNotEmpty, files: Mapping[str, str]):
    """Make the folder that of the run `wanted` and hold it, or refuse; `files` are texts it needs to be resumed.

    A run may be resumed with more steps than it was begun with, and with no other change.

    Raises:
      ConfigError: the folder is not empty and `when_not_empty` refuses that, holds another run, or is in use.
    """
    # A folder that is refused is left unchanged, without a lock in it.
    _check(workdir, wanted, when_not_empty, files)
    with locked(workdir):
        steps_before = _check(workdir, wanted, when_not_empty, files)
        if when_not_empty == "overwrite" and CONFIG in file_names(workdir):
            clear(workdir, CONFIG, RUN_FILES)
        for name, text in files.items():
            write_durably(workdir / name, text)
        write_sealed(workdir / CONFIG, wanted.body)
        write_environment(workdir)
        if steps_before is not None:
            after = wanted.run["steps"]
            print(f"{workdir}: from {steps_before} to {after} steps, from here on by their schedule", file=sys.stderr)
        yield


def write_environment(workdir: Path) -> None:
    """Write down what a run runs on, and warn where it ran on something else before, which may change numbers."""
    path, here = workdir / "environment.json", environment()
    try:
        before = read_json(path)
    except FileNotFoundError:
        before = here
    except Damaged as error:
        warnings.warn(f"{error}; it is written again", stacklevel=2)
        before = here
    old, new = ({name: each.get(name) for name in ("packages", "devices")} for each in (before, here))
    if differing := differences(old, new):
        warnings.warn(
            f"{workdir} continues with other {', '.join(differing)}: the same up to rounding, not bit for bit",
            stacklevel=2,
        )
    write_durably(path, json.dumps(here, indent=1, sort_keys=True))


def _check(workdir: Path, wanted: Identity, when_not_empty: WhenNotEmpty, files: Mapping[str, str]) -> int | None:
    """Refuse the folder, or return the number of steps a run had before it was given more."""
    check_type(when_not_empty, WhenNotEmpty, "when_not_empty")
    found = file_names(workdir)
    if found and when_not_empty == "refuse":
        refusal = ConfigError(f"workdir: {workdir} is not empty; --resume continues it, --overwrite starts again")
        refusal.add_note("In Python: when_not_empty='resume' or when_not_empty='overwrite'")
        raise refusal
    # A start that was killed leaves these files only.
    if CONFIG not in found and found - files.keys():
        raise ConfigError(f"workdir: {workdir} is not empty and holds no {CONFIG} of a run")
    if CONFIG not in found:
        return None
    if when_not_empty == "overwrite":
        check_own(workdir, CONFIG, RUN_FILES)
        return None
    stored = read_identity(workdir)
    differing = differences(stored.body, wanted.body)
    if differing == ["run.steps"] and stored.run["steps"] < wanted.run["steps"]:
        return stored.run["steps"]
    if differing:
        raise ConfigError(f"workdir: {workdir} holds another run, which differs in {', '.join(differing)}")
    return None


def read_identity(workdir: Path) -> Identity:
    """What determines the numbers of the run in a folder.

    Raises:
      ConfigError: it holds no run.
      Damaged: its config.json is not what was written.
    """
    try:
        return read_value(Identity, workdir / CONFIG)
    except FileNotFoundError:
        raise ConfigError(f"workdir: {workdir} holds no {CONFIG} of a run") from None
    except Damaged:
        if not _is_published(workdir / CONFIG):
            raise
        raise ConfigError(f"workdir: {workdir} holds a published model, which pretrained.load reads") from None


def _is_published(path: Path) -> bool:
    try:
        return "model_type" in read_json(path)
    except Damaged:
        return False


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


def file_names(workdir: Path) -> set[str]:
    """The names of the files in a folder, without the lock and partly written files.

    Raises:
      ConfigError: `workdir` is a file.
    """
    if workdir.exists() and not workdir.is_dir():
        raise ConfigError(f"workdir: {workdir} is not a folder")
    names = {p.name for p in workdir.iterdir()} if workdir.exists() else set()
    return {name for name in names if name != LOCK and not (name.startswith(".") and name.endswith(".partial"))}


def check_own(workdir: Path, proof: str, own: Sequence[str]) -> None:
    """Check that everything in a folder, and in folders in it that have a proof of their own, is this library's.

    Args:
      workdir: the folder.
      proof: a sealed file in it, which nothing else writes.
      own: the paths of files in it that are written, as regular expressions.

    Raises:
      ConfigError: the proof is missing or not what was written, or the folder holds something else.
    """
    if doubt := _doubt(workdir / proof):
        raise ConfigError(f"workdir: {workdir} is not deleted, for nothing says that a run wrote it ({doubt})")
    known = re.compile("|".join([*own, rf"(.*/)?(\{LOCK}|\.[^/]+\.partial)"]))
    foreign = [path for path in _paths(workdir) if not known.fullmatch(path)]
    inner = {path.partition("/")[0] for path in foreign if "/" in path}
    of_their_own = {name for name in sorted(inner) if not _doubt(workdir / name / proof)}
    for name in of_their_own:
        check_own(workdir / name, proof, own)
    if left := [path for path in foreign if path.partition("/")[0] not in of_their_own]:
        raise ConfigError(f"workdir: {workdir} holds {left[0]}, which no run wrote; move it, or take another folder")


def _doubt(proof: Path) -> str | None:
    """Why a file does not prove that this library wrote its folder; None: it does."""
    try:
        read_sealed(proof)
    except FileNotFoundError:
        return f"{proof} is missing"
    except Damaged as error:
        return str(error)
    return None


def clear(workdir: Path, proof: str, own: Sequence[str]) -> None:
    """Delete what is in a folder, except its lock; the proof last, so that it can go on where it was killed.

    Raises:
      ConfigError: it holds something that was not written by this library (`check_own`); nothing is deleted.
    """
    check_own(workdir, proof, own)
    for path in sorted(workdir.iterdir(), key=lambda path: path.name == proof):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()


def _paths(folder: Path) -> Iterator[str]:
    """The paths of all files and empty folders in a folder, seen from it; links are not followed."""
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if Path(place, name).is_symlink()]
        empty = [""] if not (folders or files) and Path(place) != folder else []
        for name in [*files, *links, *empty]:
            yield Path(place, name).relative_to(folder).as_posix()


def identity(config: RunConfig, replicas: Sequence[Replica], data: Dataset, initial: Params | None = None) -> Identity:
    """Everything that determines the numbers of a run."""
    if initial is None:
        digest = None
    else:
        leaves = jax.tree.leaves_with_path(initial)
        digest = fingerprint_arrays({jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves})
    return Identity(config.to_json(), to_json(list(replicas)), data.fingerprint, sources(config), digest)


def definitions(data: Dataset) -> dict[str, str]:
    """The files of the tokenizers of the data, by name."""
    return {f"{name}.json": tokenizer.definition for name, tokenizer in data.tokenizers.items()}


def differences(stored: Any, wanted: Any, path: str = "") -> list[str]:
    """The paths at which two JSON values differ."""
    if isinstance(stored, dict) and isinstance(wanted, dict):
        names = sorted(stored.keys() | wanted.keys())
        return [d for n in names for d in differences(stored.get(n), wanted.get(n), f"{path}.{n}" if path else n)]
    return [] if stored == wanted else [path]
