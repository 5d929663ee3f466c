"""Failures of a disk as one line that says where, and how much space is free."""

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

EXIT_UNWRITABLE = 74
"""Exit code of a run that could not write; given space, the same command with --resume continues."""
_REASONS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}


class WriteError(RuntimeError):
    """Writing to the disk failed; earlier files are undamaged."""


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
