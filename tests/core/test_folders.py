"""Folders are held by one process, and what is in them is named."""

import fcntl
import resource
import threading

import pytest

from transformer.core.errors import ConfigError
from transformer.core.files import WriteError
from transformer.core.folders import LOCK, file_names, locked


def test_hidden_files_and_unfinished_ones_of_others_count(tmp_path):
    for name in (LOCK, ".result.json.partial", ".notes", "thesis.partial"):
        (tmp_path / name).touch()
    assert file_names(tmp_path) == {".notes", "thesis.partial"}


def test_a_folder_that_another_holds_is_refused_or_waited_for(tmp_path, capsys):
    """It is named with what its holder wrote, or else as another process."""
    with (tmp_path / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        late = threading.Timer(20, fcntl.flock, (file, fcntl.LOCK_UN))  # so that nothing waits for ever
        late.start()
        with pytest.raises(ConfigError, match="is in use by another process; end it first"), locked(tmp_path):
            pass
        print("process 5 on there", end="", file=file, flush=True)
        with pytest.raises(ConfigError, match="is in use by process 5 on there; end it first"), locked(tmp_path):
            pass
        late.cancel()
        threading.Timer(0.1, fcntl.flock, (file, fcntl.LOCK_UN)).start()
        with locked(tmp_path, wait=True):
            assert capsys.readouterr().err == f"waiting for process 5 on there, which holds {tmp_path}\n"


def test_a_disk_without_room_for_the_lock_is_said(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(WriteError, match=r"\.lock: .*bytes are free there"), locked(tmp_path / "run"):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with locked(tmp_path / "run"):
        assert (tmp_path / "run" / LOCK).read_text().startswith("process ")
