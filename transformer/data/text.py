"""Texts: a file, or a text that comes with Python."""

import difflib
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from transformer.core.errors import ConfigError
from transformer.data.hub import PREFIX, hub_lines


@dataclass(frozen=True)
class Text:
    """A text, where it came from, and the sha256 of its UTF-8 bytes."""

    content: str
    source: str
    fingerprint: str


def load_text(path: str | None, embedded: Literal["topics", "sources"] = "topics") -> Text:
    """The text of a file or of a data set of the hub; without a path, one that comes with Python.

    Raises:
      ConfigError: the file is missing, empty, or not UTF-8.
    """
    content, source = (_embedded(embedded), f"python:{embedded}") if path is None else (_read(path), path)
    if not content:
        raise ConfigError(f"data.path: {source} is empty")
    return Text(content, source, hashlib.sha256(content.encode()).hexdigest())


def load_lines(path: str) -> list[str]:
    """The lines of a file, or the rows of a data set of the hub, whose cells may hold line breaks.

    Raises:
      ConfigError: as `load_text`.
    """
    return hub_lines(path) if path.startswith(PREFIX) else load_text(path).content.removesuffix("\n").split("\n")


def _read(name: str) -> str:
    if name.startswith(PREFIX):
        return "\n".join(hub_lines(name))
    path = Path(name)
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"data.path: {path} is not UTF-8 at byte {error.start}") from None
    except FileNotFoundError:
        raise ConfigError(f"data.path: no file {path}{near(path)}") from None
    except OSError as error:
        raise ConfigError(f"data.path: cannot read {path}: {error.strerror}") from None


def near(path: Path) -> str:
    names = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"; did you mean {path.parent / close[0]}?" if close else ""


def _embedded(name: str) -> str:
    if name == "topics":
        from pydoc_data.topics import topics

        return "\n\n".join(topics[key] for key in sorted(topics))
    import statistics  # any module of the standard library: its folder holds the sources

    folder = Path(statistics.__file__).parent
    return "\n\n".join(p.read_text(encoding="utf-8") for p in sorted(folder.glob("*.py")))
