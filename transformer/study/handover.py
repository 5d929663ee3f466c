"""A cell as files, which another process reads and computes with `python -m transformer.study.worker FOLDER`.

Variants travel as text, so their classes have to lie in modules that both processes can import.
"""

import dataclasses
import importlib
import importlib.util
import io
import sys
import zipfile
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from transformer.core.contents import contents
from transformer.core.errors import ConfigError
from transformer.core.files import check_unpacked, read_value, write_durably, write_sealed
from transformer.core.json import from_json, to_json
from transformer.core.modules import Params, dotted, nest
from transformer.core.sources import PACKAGE
from transformer.data.dataset import load_data, read_run_config
from transformer.data.tokenizers import UnknownText
from transformer.runs.mesh import MeshConfig
from transformer.study.cell import Cell, replicas_of
from transformer.study.probes import Probe
from transformer.training.trackers import Tracker
from transformer.training.workdir import CONFIG, Identity, definitions

CELL = "cell.json"
"""The file of what config.json does not hold."""


@dataclass(frozen=True)
class _Handed:
    """The contents of cell.json."""

    modules: list[str]
    """Modules of all classes."""
    title: str
    probes: list[dict[str, Any]]
    mesh: dict[str, Any]
    runs: str
    """Folder of the runs."""
    trackers: list[dict[str, Any]]


def write(cell: Cell) -> list[str]:
    """Write everything that computing a cell needs into its folder; returns the modules that define its classes.

    Raises:
      ConfigError: a class is defined where only this process knows it.
    """
    modules = sorted({_module(cls) for cls in set(map(type, contents((cell.config, *cell.probes, *cell.trackers))))})
    cell.write_config()
    for name, text in definitions(cell.data).items():
        write_durably(cell.folder / name, text)
    if cell.initial is not None and not (path := _initial(cell.cells, cell.identity)).exists():
        _write_arrays(cell.initial, path)
    values = (to_json(cell.probes), to_json(cell.mesh), str(cell.runs), to_json(tuple(cell.trackers)))
    handed = _Handed(modules, cell.title, *values)
    write_sealed(cell.folder / CELL, dataclasses.asdict(handed))
    return modules


def check_data(cells: Sequence[Cell]) -> None:
    """Raise `ConfigError` where the data of a cell that is written is not what its config describes."""
    for config, cell in {cell.config.data: cell for cell in cells}.items():
        if load_data(config, cell.folder if definitions(cell.data) else None).fingerprint != cell.data.fingerprint:
            raise ConfigError(
                f"data: {cell.data.source} is not what config.data describes, so another process cannot load it; "
                "use the engine local"
            )


def read(folder: Path, allow: Collection[str] = ()) -> Cell:
    """The cell of a folder.

    Args:
      folder: the folder.
      allow: the modules outside this package whose classes it may name; they are imported, and no others.

    Raises:
      ConfigError: a file or a module is missing here, a module is not allowed, or the data has changed.
    """
    try:
        stored = read_value(Identity, folder / CONFIG)
        handed = read_value(_Handed, folder / CELL)
    except FileNotFoundError as error:
        raise ConfigError(f"no file {error.filename}: all processes of a study need its folder") from None
    for name in handed.modules:
        if name.partition(".")[0] != PACKAGE and name not in allow:
            raise ConfigError(f"{folder / CELL}: names the module {name}, which would run; --allow {name} allows it")
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ConfigError(f"module {name} cannot be imported here: {error}") from None
    config = read_run_config(stored.run)
    probes = from_json(tuple[Probe, ...], handed.probes)
    try:
        data = load_data(config.data, folder)
    except UnknownText as error:
        raise ConfigError(f"data: {config.data} is not what it was when the study began; {error}") from None
    mesh = from_json(MeshConfig, handed.mesh)
    trackers = from_json(tuple[Tracker, ...], handed.trackers)
    places = (folder.parent, Path(handed.runs))
    initial = None if stored.initial is None else _read_arrays(_initial(folder.parent, stored))
    cell = Cell(handed.title, config, replicas_of(folder), data, *places, probes, mesh, trackers, initial)
    if cell.identity.sha256 != stored.sha256:
        same = cell.identity.initial == stored.initial
        what = f"data: {data.source}" if same else f"initial: {_initial(folder.parent, stored)}"
        raise ConfigError(f"{what} is not what it was when the study began")
    return cell


def _initial(cells: Path, identity: Identity) -> Path:
    """The file of the parameters that runs begin from, which all cells share; it is named by their hash."""
    return cells / f"initial-{str(identity.initial)[:16]}.npz"


def _write_arrays(params: Params, path: Path) -> None:
    """Keep parameters in a file, by their dotted paths.

    Raises:
      ConfigError: one has a dtype that NumPy lacks, or they are more than is allowed to be read.
    """
    arrays: dict[str, Any] = {dotted(at): np.asarray(leaf) for at, leaf in jax.tree.leaves_with_path(params)}
    if wrong := [name for name, array in arrays.items() if array.dtype.kind not in "fiub"]:
        raise ConfigError(f"initial: {wrong[0]} is {arrays[wrong[0]].dtype}; other processes read float32")
    check_unpacked(sum(array.nbytes for array in arrays.values()), "initial")
    file = io.BytesIO()
    np.savez(file, **arrays)
    write_durably(path, file.getvalue())


def _read_arrays(path: Path) -> Params:
    """The parameters in a file.

    Raises:
      ConfigError: it is damaged, or holds more than is allowed.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            check_unpacked(sum(member.file_size for member in stored.zip.infolist()), str(path))
            return nest({tuple(name.split(".")): stored[name] for name in stored.files})
    except ConfigError:
        raise
    except (OSError, EOFError, ValueError, TypeError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise ConfigError(f"{path}: is damaged: {error}") from None


def _module(cls: type) -> str:
    """The module that defines a class, by a name under which another process can import it."""
    name = cls.__module__
    if name == "__main__":  # `python -m name` has a spec, a script and a notebook have none
        spec = getattr(sys.modules[name], "__spec__", None)
        name = spec.name if spec else name
    if name == "__main__" or "<locals>" in cls.__qualname__ or not _is_importable(name):
        raise ConfigError(
            f"{cls.__name__} is defined in a script, a notebook or a function, which the process of a cell cannot "
            "import; move it to a module, or use the engine local"
        )
    return name


def _is_importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
