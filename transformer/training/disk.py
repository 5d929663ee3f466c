"""A disk that takes no more: one line that says where, and how much is free."""

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

EXIT_UNWRITABLE = 74
"""Exit code of a run that could not write; with space, the same command with --resume goes on."""
_REASONS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}


class WriteError(RuntimeError):
    """The disk did not take what was written; what was there before is whole."""


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the failure of a disk, within, into one that names the path and the free bytes.

    Raises:
      WriteError: no space, a quota, a limit on the size of files, or a broken or read-only disk.
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
    """The system's number of an error, which TensorStore, and so orbax, hides in the text of a ValueError."""
    if isinstance(error, OSError):
        return error.errno
    found = re.search(r"os_error_code='(\d+)'", str(error))
    return int(found[1]) if found else None
