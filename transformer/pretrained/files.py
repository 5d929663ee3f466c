"""Tensors by name in the safetensors files of a folder; no other files are read, and nothing pickled."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from transformer.core.errors import ConfigError
from transformer.core.files import read_json

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.msgpack", "*.h5")
POINTER = b"version https://git-lfs"
FLOATS = ("F16", "BF16", "F32", "F64")
SHARD = 5 * 10**9
"""Largest size of a written file, in bytes."""


@dataclass(frozen=True)
class Stored:
    """A tensor in a file, not yet read."""

    file: Any
    name: str
    shape: tuple[int, ...]
    dtype: str
    """As the file names it."""

    def read(self) -> np.ndarray:
        """The array, copied from the mapped file, in its stored dtype.

        Raises:
          ConfigError: it does not hold floats of at least 16 bits: parameters in fewer come with scales.
        """
        if self.dtype not in FLOATS:
            raise ConfigError(f"{self.name}: its numbers are {self.dtype}, and {', '.join(FLOATS)} can be read")
        return self.file.get_tensor(self.name)


class TensorFiles(ExitStack):
    """All tensors of a folder, in one file or in several that an index lists; a context manager.

    Raises:
      ConfigError: there are no tensors, or a file is missing, damaged or not in safetensors format.
    """

    def __init__(self, folder: Path):
        super().__init__()
        self.tensors: dict[str, Stored] = {}
        for path in _paths(folder):
            file = self.enter_context(_opened(path))
            for name in file.keys():  # noqa: SIM118 (no mapping)
                about = file.get_slice(name)
                self.tensors[name] = Stored(file, name, tuple(about.get_shape()), about.get_dtype())


def _paths(folder: Path) -> list[Path]:
    if (folder / INDEX).is_file():
        weight_map = read_json(folder / INDEX).get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
            raise ConfigError(f"{folder / INDEX}: no index of files")
        names = sorted(set(weight_map.values()))
        present = {path.name for path in folder.iterdir() if path.is_file()}
        if missing := [name for name in names if name not in present]:
            raise ConfigError(f"{folder}: missing {', '.join(name[:80] for name in missing)}, which {INDEX} names")
        return [folder / name for name in names]
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if pickled := sorted(path.name for pattern in PICKLES for path in folder.glob(pattern)):
        raise ConfigError(f"{folder}: {', '.join(pickled)} could run any code when read; only safetensors are")
    raise ConfigError(f"{folder}: no {SINGLE} and no {INDEX}")


def _opened(path: Path) -> Any:
    safetensors = _library()
    try:
        return safetensors.safe_open(path, framework="np")
    except safetensors.SafetensorError as error:
        with path.open("rb") as file:
            if file.read(len(POINTER)) == POINTER:
                raise ConfigError(f"{path}: a pointer of Git LFS; git lfs pull brings the file") from None
        raise ConfigError(f"{path}: damaged, or no safetensors: {error}") from None


def write_tensors(folder: Path, tensors: Iterator[tuple[str, np.ndarray]], shard_bytes: int = SHARD) -> None:
    """Write tensors one after another, into several files with an index where one would be too large."""
    paths: list[Path] = []
    weights: list[list[str]] = []
    total = 0
    for part in _parts(tensors, shard_bytes):
        paths.append(folder / f"part-{len(paths):05d}.safetensors")
        weights.append(list(part))
        total += sum(tensor.nbytes for tensor in part.values())
        _library().numpy.save_file(part, paths[-1], metadata={"format": "pt"})
    if len(paths) == 1:
        paths[0].rename(folder / SINGLE)
        return
    finals = [f"model-{i:05d}-of-{len(paths):05d}.safetensors" for i in range(1, len(paths) + 1)]
    for path, final in zip(paths, finals, strict=True):
        path.rename(folder / final)
    weight_map = {name: final for names, final in zip(weights, finals, strict=True) for name in names}
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True), encoding="utf-8")


def _parts(tensors: Iterator[tuple[str, np.ndarray]], most: int) -> Iterator[dict[str, np.ndarray]]:
    """Groups of tensors of up to `most` bytes together, or of one larger tensor."""
    part: dict[str, np.ndarray] = {}
    for name, tensor in tensors:
        if part and sum(other.nbytes for other in part.values()) + tensor.nbytes > most:
            yield part
            part = {}
        part[name] = np.asarray(tensor, order="C")
    yield part


def _library() -> Any:
    try:
        import safetensors.numpy
    except ImportError:
        raise ConfigError("pretrained: needs the library safetensors: pip install 'transformer[pretrained]'") from None
    return safetensors
