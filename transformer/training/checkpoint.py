"""Checkpoints that are complete or absent: orbax arrays, a manifest of hashes, one atomic rename.

    checkpoints/00001000/state/         arrays, written by orbax
    checkpoints/00001000/manifest.json  sha256 of every file and of itself, shape and dtype of every array, notes

The notes hold what else the run needs to continue.
"""

import contextlib
import dataclasses
import hashlib
import logging
import os
import re
import shutil
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from transformer.core.errors import ConfigError, OneLine
from transformer.core.files import WriteError, read_value, sync, write_sealed, writing
from transformer.core.json import later
from transformer.training import processes

KEEP = 2
MANIFEST = "manifest.json"


class CheckpointError(OneLine, RuntimeError):
    """A checkpoint is damaged, or belongs to another run."""


class _Damage(Exception):
    """What is wrong with the files of a checkpoint."""


class _Gone(Exception):
    """A checkpoint was deleted while it was read: its run goes on, and has a newer one."""


@dataclass(frozen=True)
class Notes:
    """What else a run needs to continue."""

    position: int
    """Steps that are done, which is how far the data were read."""
    fingerprint: str
    """Hash of the data."""
    metrics_bytes: int
    """Size of the metrics file."""
    seconds: float
    """Wall time so far."""
    mesh: dict[str, int]
    """Devices along each axis."""
    last: bool = later(False)
    """Whether the run ended here, until it was given more steps."""


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint holds."""

    step: int
    notes: Notes
    arrays: dict[str, str]
    """Dtype and shape of each array by its path in the state."""
    files: dict[str, str]
    """sha256 of each file by its path in the folder."""


def save(folder: Path, step: int, state: Any, notes: Notes, damaged: Collection[int] = ()) -> None:
    """Write the checkpoint of a step, then delete all but the latest `KEEP`, and those of steps that are `damaged`.

    Raises:
      WriteError: the disk is full or broken; the older checkpoints are as they were.
    """
    import orbax.checkpoint.experimental.v1 as ocp

    partial = _partial(folder, step)
    arrays = _named_arrays(state)
    try:
        with writing(folder / f"{step:08d}"):
            if processes.is_writer():
                _remove(partial)
                partial.mkdir(parents=True)
            processes.barrier("partial")
            with _quiet():
                ocp.save(str(partial.absolute() / "state"), arrays)
            processes.barrier("saved")
            if processes.is_writer():
                _publish(folder, step, arrays, notes, damaged)
            processes.barrier("published")
    except WriteError:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _publish(folder: Path, step: int, arrays: dict[str, Any], notes: Notes, damaged: Collection[int]) -> None:
    """Turn what all processes have written into a checkpoint."""
    partial, final = _partial(folder, step), folder / f"{step:08d}"
    kinds = {name: _kind(a) for name, a in arrays.items()}
    files = {str(p.relative_to(partial)): _sha256(p) for p in sorted(partial.rglob("*")) if p.is_file()}
    write_sealed(partial / MANIFEST, dataclasses.asdict(Manifest(step, notes, kinds, files)))
    _remove(final)
    os.replace(partial, final)
    sync(folder)
    there = steps(folder)
    kept = [each for each in there if each == step or each not in damaged][-KEEP:]
    for old in (each for each in there if each not in kept):
        # An interrupted deletion leaves nothing that looks like a checkpoint.
        _remove(_partial(folder, old))
        os.replace(folder / f"{old:08d}", _partial(folder, old))
        _remove(_partial(folder, old))


def _partial(folder: Path, step: int) -> Path:
    """The folder of a checkpoint that is not complete yet."""
    return folder / f".{step:08d}.partial"


def _remove(path: Path) -> None:
    """Delete a folder, or what has taken its name."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the log in which orbax repeats its exceptions at length."""
    log = logging.getLogger("absl")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def steps(folder: Path) -> list[int]:
    """The steps that have a checkpoint, damaged or not, in ascending order."""
    return sorted(int(p.name) for p in folder.glob("*") if re.fullmatch("[0-9]{8,}", p.name))


def sweep(folder: Path) -> None:
    """Delete unfinished checkpoints of a killed process; no other process may be writing."""
    if processes.is_writer():
        for path in folder.glob(".*.partial"):
            if re.fullmatch(r"\.[0-9]{8,}\.partial", path.name):
                _remove(path)
    processes.barrier("swept")


def restore(folder: Path, template: Any, *, strict: bool = False) -> tuple[Any, Notes] | None:
    """The newest undamaged checkpoint as (state, notes), or None without any checkpoint.

    A damaged one is named in a warning, and the one before it is used.

    Args:
      folder: the folder of the checkpoints.
      template: a state, or `ShapeDtypeStruct`s with shardings; the arrays must agree with it exactly.
      strict: whether a damaged checkpoint is an error.

    Raises:
      CheckpointError: every checkpoint is damaged, one is damaged and `strict`, or its arrays do not match `template`.
    """
    while True:
        with contextlib.suppress(_Gone):
            return _newest(folder, template, strict)


def _newest(folder: Path, template: Any, strict: bool) -> tuple[Any, Notes] | None:
    found = steps(folder)
    for step in reversed(found):
        path = folder / f"{step:08d}"
        try:
            manifest = _checked(path)
            return _load(path, manifest, template)
        except Exception as error:
            if not os.path.lexists(path):
                raise _Gone from None
            if not isinstance(error, _Damage):
                raise
            said = f"checkpoint {path} is damaged ({error})"
            if strict:
                raise CheckpointError(f"{said}; without --strict the one before is taken") from None
            warnings.warn(f"{said}; falling back to the one before", stacklevel=4)
    if found:
        raise CheckpointError(
            f"every checkpoint in {folder} is damaged; restore a copy, or start again with --overwrite"
        )
    return None


def _checked(path: Path) -> Manifest:
    """The manifest of a checkpoint whose files are all as they were written.

    Raises:
      _Damage: a file is missing or has changed.
    """
    try:
        manifest = read_value(Manifest, path / MANIFEST)
    except ConfigError as error:
        raise _Damage(str(error).removeprefix(f"{path}/")) from None
    except FileNotFoundError:
        raise _Damage(f"{MANIFEST} is missing") from None
    for name, digest in manifest.files.items():
        if not (path / name).is_file():
            raise _Damage(f"{name} is missing")
        try:
            changed = _sha256(path / name) != digest
        except OSError as error:
            raise _Damage(f"{name} cannot be read: {error.strerror}") from None
        if changed:
            raise _Damage(f"{name} has changed")
    return manifest


def _load(path: Path, manifest: Manifest, template: Any) -> tuple[Any, Notes]:
    import orbax.checkpoint.experimental.v1 as ocp

    wanted = _named_arrays(template)
    kinds = {name: _kind(a) for name, a in wanted.items()}
    if kinds != manifest.arrays:
        names = sorted(kinds.keys() | manifest.arrays.keys())
        name = next(n for n in names if kinds.get(n) != manifest.arrays.get(n))
        raise CheckpointError(f"{path}: {name} is {manifest.arrays.get(name)}, this run has {kinds.get(name)}")
    abstract = {n: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=a.sharding) for n, a in wanted.items()}
    arrays: Any = ocp.load(str(path.absolute() / "state"), abstract)
    leaves = [
        jax.random.wrap_key_data(arrays[name]) if _is_key(leaf) else arrays[name]
        for name, leaf in _named_leaves(template).items()
    ]
    return jax.tree.unflatten(jax.tree.structure(template), leaves), manifest.notes


def _named_leaves(state: Any) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(state)}


def _named_arrays(state: Any) -> dict[str, Any]:
    """The leaves by path, with typed keys as their underlying integers."""
    return {name: _key_data(leaf) if _is_key(leaf) else leaf for name, leaf in _named_leaves(state).items()}


def _key_data(key: Any) -> Any:
    if isinstance(key, jax.Array):
        return jax.random.key_data(key)
    shape = jax.eval_shape(jax.random.key_data, key)
    return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=key.sharding)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _kind(array: Any) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
