"""A cell as files, which another process reads and computes with `python -m transformer.study.worker FOLDER`.

Variants travel as text, so their classes have to lie in modules that both processes can import.
"""

import dataclasses
import importlib
import importlib.util
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from transformer.core.json import from_json, to_json
from transformer.core.values import ConfigError
from transformer.data.dataset import load_data, read_run
from transformer.runs.mesh import MeshConfig
from transformer.study.cell import Cell, replicas_of
from transformer.study.probes import Probe
from transformer.training.checkpoint import write_durably
from transformer.training.workdir import CONFIG, definitions

CELL = "cell.json"
"""The file of what config.json does not hold: the probes, the modules of all classes, and the mesh."""


def write(cell: Cell) -> None:
    """Write everything that computing a cell needs into its folder.

    Raises:
      ConfigError: a class is defined where only this process knows it.
    """
    modules = sorted({_module(cls) for cls in set(_classes((cell.config, *cell.probes)))})
    cell.write_config()
    for name, text in definitions(cell.data).items():
        write_durably(cell.folder / name, text)
    more = {"modules": modules, "title": cell.title, "probes": to_json(cell.probes), "mesh": to_json(cell.mesh)}
    more["runs"] = str(cell.runs)
    write_durably(cell.folder / CELL, json.dumps(more, indent=1))


def check_data(cells: Sequence[Cell]) -> None:
    """Raise `ConfigError` where the data of a cell is not what its config describes."""
    for config, cell in {cell.config.data: cell for cell in cells}.items():
        if load_data(config, cell.cells.parent).fingerprint != cell.data.fingerprint:
            raise ConfigError(
                f"data: {cell.data.source} is not what config.data describes, so another process cannot load it; "
                "use the engine local"
            )


def read(folder: Path) -> Cell:
    """The cell of a folder.

    Raises:
      ConfigError: a file or a module is missing here, or the data has changed.
    """
    try:
        stored, more = (json.loads((folder / name).read_text()) for name in (CONFIG, CELL))
    except FileNotFoundError as error:
        raise ConfigError(f"no file {error.filename}: all processes of a study need its folder") from None
    for name in more["modules"]:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ConfigError(f"module {name} cannot be imported here: {error}") from None
    config = read_run(stored["run"])
    probes = from_json(tuple[Probe, ...], more["probes"])
    data = load_data(config.data, folder)
    mesh = from_json(MeshConfig, more["mesh"])
    cell = Cell(more["title"], config, replicas_of(folder), data, folder.parent, Path(more["runs"]), probes, mesh)
    if cell.identity["sha256"] != stored["sha256"]:
        raise ConfigError(f"data: {data.source} is not what it was when the study began")
    return cell


def _classes(value: Any) -> Iterator[type]:
    """The classes of all dataclasses in a value, such as variants and configs."""
    if dataclasses.is_dataclass(value):
        yield type(value)
        value = [getattr(value, f.name) for f in dataclasses.fields(value)]
    if isinstance(value, tuple | list):
        for item in value:
            yield from _classes(item)


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
