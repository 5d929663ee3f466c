"""Texts: a file, or a text that comes with Python."""

import difflib
import gzip
import hashlib
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from transformer.core.errors import ConfigError
from transformer.core.files import check_unpacked
from transformer.data.hub import PREFIX, hub_lines


@dataclass(frozen=True)
class Text:
    """A text, where it came from, and the sha256 of its UTF-8 bytes."""

    content: str
    source: str
    fingerprint: str
    rows: tuple[str, ...] | None = None
    """Those of a data set of the hub, of which the text has one on a line; None: it is of a file."""

    def documents(self, separator: str) -> list[str]:
        """The documents that are not empty: rows of the hub, or what the separator stands between."""
        return [each for each in (self.content.split(separator) if self.rows is None else self.rows) if each]


def load_text(path: str | None, embedded: Literal["topics", "sources"] = "topics", where: str = "data.path") -> Text:
    """The text of a file or of a data set of the hub; without a path, one that comes with Python.

    A file whose name ends in .gz is decompressed. Lines end with a line feed, before which a carriage return is left
    out.

    Raises:
      ConfigError: the file is missing, unreadable, empty, or not UTF-8; it names the field `where`.
    """
    rows = None
    if path is None:
        content, source = _embedded(embedded), f"python:{embedded}"
    elif path.startswith(PREFIX):
        rows = tuple(row.replace("\r\n", "\n") for row in hub_lines(path))
        content, source = _not_empty("\n".join(rows), path, where), path
    else:
        content, source = _read(path, where), path
    return Text(content, source, hashlib.sha256(content.encode()).hexdigest(), rows)


def load_lines(path: str, where: str = "data.path") -> list[str]:
    """The lines of a file, or the rows of a data set of the hub, whose cells may hold line breaks.

    Raises:
      ConfigError: as `load_text`, or lines end with carriage returns alone.
    """
    return hub_lines(path) if path.startswith(PREFIX) else lines_of(_read(path, where).removesuffix("\n"), path, where)


def lines_of(content: str, path: str, where: str) -> list[str]:
    """The lines of what a file holds; raises `ConfigError` where they end with carriage returns alone."""
    if "\r" in content and "\n" not in content:
        raise ConfigError(f"{where}: {path} has carriage returns and no line feeds, which are what ends a line")
    return content.split("\n")


def _read(name: str, where: str) -> str:
    return _not_empty(_content(Path(name), where), name, where)


def _not_empty(text: str, name: str, where: str) -> str:
    if not text:
        raise ConfigError(f"{where}: {name} is empty")
    return text


def _content(path: Path, where: str) -> str:
    try:
        content = _unpacked(path, where) if path.suffix == ".gz" else path.read_bytes()
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{where}: line {line} of {path} is not UTF-8") from None
    except FileNotFoundError:
        raise ConfigError(f"{where}: no file {path}{near(path)}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{where}: cannot read {path}: {error}") from None


def _unpacked(path: Path, where: str) -> bytes:
    """What a compressed file becomes, of which no more is unpacked than is allowed."""
    parts, size = [], 0
    with gzip.open(path) as file:
        while part := file.read(2**24):
            size += len(part)
            check_unpacked(size, f"{where}: {path}")
            parts.append(part)
    return b"".join(parts)


def near(path: Path) -> str:
    names = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"; did you mean {path.parent / close[0]}?" if close else ""


def _embedded(name: str) -> str:
    if name == "topics":
        from pydoc_data.topics import topics

        paragraphs = "\n\n".join(topics[key] for key in sorted(topics)).split("\n\n")
        # Some topics stand within others: what is held out must not be in the part for training.
        return "\n\n".join(dict.fromkeys(paragraphs))
    import statistics  # any module of the standard library: its folder holds the sources

    folder = Path(statistics.__file__).parent
    return "\n\n".join(p.read_text(encoding="utf-8") for p in sorted(folder.glob("*.py")))
