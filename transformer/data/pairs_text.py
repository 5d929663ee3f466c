"""Parallel texts: a line and its translation."""

import gzip
import zlib
from pathlib import Path

from transformer.core.errors import ConfigError
from transformer.core.files import check_unpacked
from transformer.data.hub import PREFIX, hub_lines
from transformer.data.text import near


def load_parallel(source: str, target: str | None) -> tuple[list[str], list[str]]:
    """The lines of two UTF-8 files, or without `target` the two columns of one file of tab-separated values.

    Either may be a data set of the hub, as in `hub_lines`.

    A file whose name ends in .gz is decompressed. Empty lines count like any other.

    Raises:
      ConfigError: a file is missing, unreadable, empty, or not UTF-8; one is longer than the other; a
        line of the single file has not exactly one tab.
    """
    if target is None:
        pairs = [_columns(line, number, source) for number, line in enumerate(_lines(source), 1)]
        return [s for s, _ in pairs], [t for _, t in pairs]
    sources, targets = _lines(source), _lines(target)
    if len(sources) != len(targets):
        counts = f"{len(sources)} lines in {source}, {len(targets)} in {target}"
        raise ConfigError(f"data: {counts}: line {min(len(sources), len(targets)) + 1} has no counterpart")
    return sources, targets


def _columns(line: str, number: int, path: str) -> tuple[str, str]:
    columns = line.split("\t")
    if len(columns) != 2:
        raise ConfigError(f"data: line {number} of {path} has {len(columns)} columns, not source<TAB>target")
    return columns[0], columns[1]


def _lines(name: str) -> list[str]:
    if name.startswith(PREFIX):
        return hub_lines(name)
    path = Path(name)
    content = _bytes(path)
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"data: line {line} of {path} is not UTF-8") from None
    if not text:
        raise ConfigError(f"data: {path} is empty")
    return text.removesuffix("\n").split("\n")


def _unpacked(path: Path) -> bytes:
    """What a compressed file becomes, of which no more is unpacked than is allowed."""
    parts, size = [], 0
    with gzip.open(path) as file:
        while part := file.read(2**24):
            size += len(part)
            check_unpacked(size, f"data: {path}")
            parts.append(part)
    return b"".join(parts)


def _bytes(path: Path) -> bytes:
    try:
        return _unpacked(path) if path.suffix == ".gz" else path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"data: no file {path}{near(path)}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"data: cannot read {path}: {error}") from None
