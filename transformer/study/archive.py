"""A study as one small file: its plan, its record and the numbers of its runs, without checkpoints."""

import dataclasses
import io
import lzma
import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

from transformer.core.files import LARGEST, Damaged, parsed, sealed, unsealed, write_durably, write_sealed
from transformer.study.analyse import read_study
from transformer.study.plan import PLAN
from transformer.study.record import STUDY, read_record
from transformer.study.report import Report

SUFFIX = ".tar.xz"
RUNS = "runs"
"""The folder of the runs in an archive."""
_NAMES = rf"{re.escape(STUDY)}|{re.escape(PLAN)}|{RUNS}/[\w-]+\.json"


def pack(workdir: Path, path: Path) -> None:
    """Write the study of a folder to a file, which is the same byte for byte if the study is.

    Raises:
      ConfigError: the folder holds no study.
    """
    record = read_record(workdir)
    runs = {name for arm in [*record.arms.values(), record.noise] if arm for row in arm.files for name in row}
    stored = dataclasses.asdict(dataclasses.replace(record, runs=RUNS))
    texts = {STUDY: sealed(stored), PLAN: (workdir / PLAN).read_text()}
    texts |= {f"{RUNS}/{name}": (workdir / record.runs / name).read_text() for name in sorted(runs)}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with tarfile.open(partial, "w:xz", preset=9) as archive:
        for name, text in texts.items():
            entry, data = tarfile.TarInfo(name), text.encode()  # without a date
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    partial.replace(path)


def unpack(path: Path, workdir: Path, runs: Path) -> None:
    """Put an archived study back into a folder and its runs into `runs`; what is there already is kept.

    Raises:
      Damaged: it is no such archive.
    """
    texts = dict(_texts(path))
    record = unsealed(parsed(texts.pop(STUDY, "{}"), f"{path}: {STUDY}"), f"{path}: {STUDY}")
    for name, text in texts.items():
        target = runs / Path(name).name if name.startswith(f"{RUNS}/") else workdir / name
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            write_durably(target, text)
    # Last, as it speaks of the runs.
    if not (workdir / STUDY).exists():
        write_sealed(workdir / STUDY, {**record, "runs": os.path.relpath(runs, workdir)})


def read_archive(path: Path, folder: Path) -> Report:
    """The report of the study in an archive, which is unpacked into a new folder below `folder`.

    Raises:
      Damaged: it is no such archive.
    """
    workdir = folder / path.name.removesuffix(SUFFIX)
    (workdir / RUNS).mkdir(parents=True)
    for name, text in _texts(path):
        (workdir / name).write_text(text)
    return read_study(workdir)


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    """Name and text of each file of an archive."""
    try:
        with tarfile.open(path, "r:xz") as archive:
            left = LARGEST
            for entry in archive:
                left -= entry.size
                if not entry.isfile() or not re.fullmatch(_NAMES, entry.name):
                    raise Damaged(f"{path}: holds {entry.name!r}, which is no file of a study")
                if left < 0:
                    raise Damaged(f"{path}: holds more than {LARGEST:,} bytes")
                file = archive.extractfile(entry)
                assert file is not None
                yield entry.name, file.read().decode()
    except (tarfile.TarError, EOFError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise Damaged(f"{path}: is damaged, or no archive of a study: {error}") from None
