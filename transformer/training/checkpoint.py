"""Checkpoints that are complete or absent: orbax arrays, a manifest of hashes, one atomic rename.

    checkpoints/00001000/state/         arrays, written by orbax
    checkpoints/00001000/manifest.json  sha256 of every file and of itself, shape and dtype of every array, notes

The notes hold what else the run needs to continue: the data position and its fingerprint, the size of
the metrics file.
"""

import contextlib
import hashlib
import json
import logging
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from transformer.runs.config import fingerprint
from transformer.training import hosts
from transformer.training.disk import WriteError, writing

KEEP = 2


class CheckpointError(RuntimeError):
    """A checkpoint is damaged, or belongs to another run."""


def save(folder: Path, step: int, state: Any, notes: dict[str, Any]) -> None:
    """Write the checkpoint of a step, then delete all but the latest `KEEP`.

    Raises:
      WriteError: the disk is full or broken; the older checkpoints are as they were.
    """
    import orbax.checkpoint.experimental.v1 as ocp

    partial = _partial(folder, step)
    arrays = _named_arrays(state)
    try:
        with writing(folder / f"{step:08d}"):
            if hosts.is_writer():
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir(parents=True)
            hosts.barrier("partial")
            with _quiet():
                ocp.save(str(partial.absolute() / "state"), arrays)
            hosts.barrier("saved")
            if hosts.is_writer():
                _publish(folder, step, arrays, notes)
            hosts.barrier("published")
    except WriteError:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _publish(folder: Path, step: int, arrays: dict[str, Any], notes: dict[str, Any]) -> None:
    """Turn what all processes have written into a checkpoint."""
    partial, final = _partial(folder, step), folder / f"{step:08d}"
    body = {
        "step": step,
        "notes": notes,
        "arrays": {name: _kind(a) for name, a in arrays.items()},
        "files": {str(p.relative_to(partial)): _sha256(p) for p in sorted(partial.rglob("*")) if p.is_file()},
    }
    write_durably(partial / "manifest.json", json.dumps({"sha256": fingerprint(body), **body}, indent=1))
    shutil.rmtree(final, ignore_errors=True)
    os.replace(partial, final)
    _sync(folder)
    for old in steps(folder)[:-KEEP]:
        # An interrupted deletion leaves nothing that looks like a checkpoint.
        os.replace(folder / f"{old:08d}", _partial(folder, old))
        shutil.rmtree(_partial(folder, old))


def _partial(folder: Path, step: int) -> Path:
    """The folder of a checkpoint that is not complete yet."""
    return folder / f".{step:08d}.partial"


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
    return sorted(int(p.name) for p in folder.glob("*") if p.name.isdigit())


def sweep(folder: Path) -> None:
    """Delete unfinished checkpoints of a killed process; no other process may be writing."""
    if hosts.is_writer():
        for partial in folder.glob(".*.partial"):
            shutil.rmtree(partial)
    hosts.barrier("swept")


def restore(folder: Path, template: Any, *, strict: bool = False) -> tuple[Any, dict[str, Any]] | None:
    """The newest undamaged checkpoint as (state, notes), or None without any checkpoint.

    A damaged one is named in a warning, and the one before it is used.

    Args:
      folder: the folder of the checkpoints.
      template: a state, or `ShapeDtypeStruct`s with shardings; the arrays must agree with it exactly.
      strict: whether a damaged checkpoint is an error.

    Raises:
      CheckpointError: every checkpoint is damaged, one is damaged and `strict`, or its arrays do not match `template`.
    """
    found = steps(folder)
    for step in reversed(found):
        path = folder / f"{step:08d}"
        if damage := _damage(path):
            if strict:
                raise CheckpointError(
                    f"checkpoint {path} is damaged ({damage}); without --strict the one before is taken"
                )
            warnings.warn(f"checkpoint {path} is damaged ({damage}); falling back to the one before", stacklevel=2)
            continue
        return _load(path, template)
    if found:
        raise CheckpointError(
            f"every checkpoint in {folder} is damaged; restore a copy, or start again with --overwrite"
        )
    return None


def _damage(path: Path) -> str | None:
    """What is wrong with the files of a checkpoint; None: nothing."""
    try:
        manifest = json.loads((path / "manifest.json").read_text())
    except (OSError, ValueError):
        return "manifest.json cannot be read"
    body = {name: value for name, value in manifest.items() if name != "sha256"}
    if manifest.get("sha256") != fingerprint(body):
        return "manifest.json has changed"
    for name, digest in body["files"].items():
        if not (path / name).is_file():
            return f"{name} is missing"
        if _sha256(path / name) != digest:
            return f"{name} has changed"
    return None


def _load(path: Path, template: Any) -> tuple[Any, dict[str, Any]]:
    import orbax.checkpoint.experimental.v1 as ocp

    manifest = json.loads((path / "manifest.json").read_text())
    wanted = _named_arrays(template)
    kinds = {name: _kind(a) for name, a in wanted.items()}
    if kinds != manifest["arrays"]:
        names = sorted(kinds.keys() | manifest["arrays"].keys())
        name = next(n for n in names if kinds.get(n) != manifest["arrays"].get(n))
        raise CheckpointError(f"{path}: {name} is {manifest['arrays'].get(name)}, this run has {kinds.get(name)}")
    abstract = {n: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=a.sharding) for n, a in wanted.items()}
    arrays: Any = ocp.load(str(path.absolute() / "state"), abstract)
    leaves = [
        jax.random.wrap_key_data(arrays[name]) if _is_key(leaf) else arrays[name]
        for name, leaf in _named_leaves(template).items()
    ]
    return jax.tree.unflatten(jax.tree.structure(template), leaves), manifest["notes"]


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


def write_durably(path: Path, text: str) -> None:
    """Write a small file atomically, and wait until it is on the disk."""
    partial = path.with_name(f".{path.name}.partial")
    with writing(path), partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
