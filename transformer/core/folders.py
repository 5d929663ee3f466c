"""Folders that one process at a time writes, and that are cleared only of what was written here."""

import contextlib
import fcntl
import os
import re
import shutil
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from transformer.core.errors import ConfigError
from transformer.core.files import Damaged, read_sealed, writing

LOCK = ".lock"
_held: set[Path] = set()


@contextlib.contextmanager
def locked(workdir: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold a folder, so that no other process writes to it; a process may hold one twice.

    Args:
      workdir: the folder, made where there is none.
      wait: whether to wait while another process holds it, instead of refusing.

    Raises:
      ConfigError: another process holds the folder, or it cannot be made.
      WriteError: there is no space to say who holds it.
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
        with writing(workdir / LOCK):
            file.truncate(0)
            holder = f"process {os.getpid()} on {socket.gethostname()}"
            os.write(file.fileno(), holder.encode())  # without a buffer, whose rest `close` would write
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
