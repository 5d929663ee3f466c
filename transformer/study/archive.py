"""A study as one small file: its plan, its record and the numbers of its runs, without checkpoints."""

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

from transformer.study.analyse import read_study
from transformer.study.plan import PLAN
from transformer.study.record import STUDY, read_record
from transformer.study.report import Report
from transformer.training.checkpoint import write_durably

SUFFIX = ".tar.xz"
RUNS = "runs"
"""The folder of the runs in an archive."""


def pack(workdir: Path, path: Path) -> None:
    """Write the study of a folder to a file, which is the same byte for byte if the study is.

    Raises:
      ConfigError: the folder holds no study.
    """
    record = read_record(workdir)
    runs = {name for arm in [*record.arms.values(), record.noise] if arm for row in arm.files for name in row}
    stored = json.loads((workdir / STUDY).read_text()) | {"runs": RUNS}
    texts = {STUDY: json.dumps(stored, indent=1), PLAN: (workdir / PLAN).read_text()}
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
    """Put the plan of an archived study back into a folder and its runs into `runs`; what is there already is kept."""
    for name, text in _texts(path):
        target = runs / Path(name).name if name.startswith(f"{RUNS}/") else workdir / name
        if name != STUDY and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            write_durably(target, text)


def read_archive(path: Path, folder: Path) -> Report:
    """The report of the study in an archive, which is unpacked into a new folder below `folder`."""
    workdir = folder / path.name.removesuffix(SUFFIX)
    (workdir / RUNS).mkdir(parents=True)
    for name, text in _texts(path):
        (workdir / name).write_text(text)
    return read_study(workdir)


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    """Name and text of each file of an archive."""
    with tarfile.open(path) as archive:
        for entry in archive:
            if (file := archive.extractfile(entry)) is not None:
                yield entry.name, file.read().decode()
