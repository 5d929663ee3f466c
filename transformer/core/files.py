"""Files of a folder: written durably, read within limits, and sealed by a hash of what they say.

A folder is data: whatever is in it, reading it ends in the value or in one line that names the file.
"""

import contextlib
import errno
import json
import lzma
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from transformer.core.errors import ConfigError, OneLine
from transformer.core.json import fingerprint, from_json

EXIT_UNWRITABLE = 74
"""Exit code of a run that could not write; given space, the same command with --resume continues."""
LARGEST = 256 * 2**20
"""Bytes of the largest JSON file that is read."""
DEEPEST = 64
"""Objects and lists within each other in one that is read."""
UNPACKED = "TRANSFORMER_UNPACKED"
"""The environment variable with the most bytes that a compressed file of data may become; otherwise 1 GiB."""
SEAL = "sha256"
"""The field with the hash of all other fields."""
_REASONS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}


class WriteError(OneLine, RuntimeError):
    """Writing to the disk failed; earlier files are undamaged."""


class Damaged(ConfigError):
    """A file is not what was written."""


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn failures of the disk inside `with` into errors that name the path and the free bytes.

    Raises:
      WriteError: there is no space, a quota or a limit on file sizes is reached, or the disk is broken or read-only.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        number = _number(error)
        if number not in _REASONS:
            raise
        folder = next(parent for parent in path.absolute().parents if parent.is_dir())
        free = shutil.disk_usage(folder).free
        raise WriteError(f"{path}: {os.strerror(number)}; {free:,} bytes are free there") from error


def _number(error: OSError | ValueError) -> int | None:
    """The errno of an error, which TensorStore, and so orbax, hides in the text of a ValueError."""
    if isinstance(error, OSError):
        return error.errno
    found = re.search(r"os_error_code='(\d+)'", str(error))
    return int(found[1]) if found else None


def write_durably(path: Path, content: str | bytes) -> None:
    """Write a small file atomically, and wait until it is on the disk.

    Raises:
      Damaged: a folder has its name.
      WriteError: the disk is full, or takes no file.
    """
    check_place(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")  # another process may write it too
    with writing(path), partial.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    sync(path.parent)


def check_place(path: Path) -> None:
    """Raise `Damaged` where a folder has the name of a file that is to be written."""
    if path.is_dir():
        raise Damaged(f"{path}: is a folder, in place of a file")


def sync(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def write_sealed(path: Path, body: Mapping[str, Any]) -> None:
    """Write JSON with its hash, which `read_sealed` checks."""
    write_durably(path, sealed(body))


def sealed(body: Mapping[str, Any]) -> str:
    """JSON with its hash, as text."""
    return json.dumps({SEAL: fingerprint(body), **body}, indent=1)


def read_sealed(path: Path) -> dict[str, Any]:
    """What `write_sealed` wrote.

    Raises:
      FileNotFoundError: there is no file.
      Damaged: it is not what was written.
    """
    return unsealed(read_json(path), str(path))


def unsealed(stored: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What `sealed` was given, from its JSON.

    Raises:
      Damaged: it is something else.
    """
    body = {name: value for name, value in stored.items() if name != SEAL}
    if stored.get(SEAL) != fingerprint(body):
        raise Damaged(f"{where}: {'is not what was written, by its hash' if SEAL in stored else 'has no hash'}")
    return body


def write_compressed(path: Path, body: Mapping[str, Any]) -> None:
    """Write JSON with its hash, by xz; the same body is the same file."""
    write_durably(path, lzma.compress(sealed(body).encode(), preset=9))


def read_compressed(path: Path) -> dict[str, Any]:
    """The JSON of a file that `write_compressed` wrote.

    Raises:
      FileNotFoundError: there is no file.
      Damaged: it is not what was written, or becomes more than `LARGEST` bytes.
    """
    reader = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=LARGEST)
    try:
        text = reader.decompress(read_bytes(path), LARGEST).decode()
    except (lzma.LZMAError, UnicodeDecodeError) as error:
        raise Damaged(f"{path}: is damaged, or not compressed by xz: {error}") from None
    if not reader.eof:
        raise Damaged(f"{path}: is cut off, or becomes more than {LARGEST:,} bytes")
    return unsealed(_object(parsed(text, str(path)), path), str(path))


def read_value(cls: Any, path: Path) -> Any:
    """The value of a type, such as a dataclass, whose JSON form `write_sealed` wrote.

    Raises:
      FileNotFoundError: there is no file.
      Damaged: it is not what was written, or holds something else.
    """
    return value_of(cls, read_sealed(path), str(path))


def value_of(cls: Any, data: Any, where: str) -> Any:
    """The value of a type from JSON data of a file.

    Raises:
      Damaged: the data are of something else.
    """
    try:
        return from_json(cls, data, where)
    except Damaged:
        raise
    except ConfigError as error:
        raise Damaged(str(error)) from None


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
      FileNotFoundError: there is no file.
      Damaged: it cannot be read, is larger than `LARGEST` bytes, or is no JSON object.
    """
    return _object(parsed(read_text(path), str(path)), path)


def _object(found: Any, path: Path) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise Damaged(f"{path}: holds no object with fields")
    return found


def read_text(path: Path) -> str:
    """The text in a file.

    Raises:
      FileNotFoundError: there is no file.
      Damaged: it cannot be read, is larger than `LARGEST` bytes, or is not UTF-8.
    """
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError:
        raise Damaged(f"{path}: is not UTF-8") from None


def read_bytes(path: Path) -> bytes:
    """What is in a file.

    Raises:
      FileNotFoundError: there is no file.
      Damaged: it cannot be read, or is larger than `LARGEST` bytes.
    """
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise Damaged(f"{path}: has {size:,} bytes, more than {LARGEST:,}")
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Damaged(f"{path}: cannot be read: {error.strerror}") from None


def parsed(text: str, where: str) -> Any:
    """JSON data of a text.

    Raises:
      Damaged: it is no JSON, or nested more than `DEEPEST` times.
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        raise Damaged(f"{where}: is no JSON: {error}") from None
    except RecursionError:
        raise Damaged(f"{where}: is nested more than {DEEPEST} times") from None
    level = [found]
    for _ in range(DEEPEST):
        level = [inner for each in level if isinstance(each, dict | list) for inner in _inside(each)]
    if level:
        raise Damaged(f"{where}: is nested more than {DEEPEST} times")
    return found


def _inside(value: dict[str, Any] | list[Any]) -> Iterator[Any]:
    return iter(value.values() if isinstance(value, dict) else value)


def check_unpacked(size: int, where: str) -> None:
    """Refuse data that a compressed file would become.

    Raises:
      ConfigError: it is larger than is allowed.
    """
    text = os.environ.get(UNPACKED, str(2**30))
    if not text.isdecimal():
        raise ConfigError(f"{UNPACKED}: {text!r} is not a number of bytes")
    if size > int(text):
        raise ConfigError(f"{where} becomes more than {int(text):,} bytes; {UNPACKED}=BYTES allows more")
