"""A study as one small file: its plan, its record and the numbers of its runs, without checkpoints."""

import json
import zipfile
from pathlib import Path

from transformer.study.analyse import read_study
from transformer.study.plan import PLAN
from transformer.study.record import STUDY, read_record
from transformer.study.report import Report
from transformer.training.checkpoint import write_durably

RUNS = "runs"
"""The folder of the runs in an archive."""
_DATE = (1980, 1, 1, 0, 0, 0)
"""A fixed date, so that the same study is the same file."""


def pack(workdir: Path, path: Path) -> None:
    """Write the study of a folder to a zip file, which is the same byte for byte if the study is.

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
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, text in texts.items():
            archive.writestr(zipfile.ZipInfo(name, _DATE), text, zipfile.ZIP_DEFLATED, 9)
    partial.replace(path)


def unpack(path: Path, workdir: Path, runs: Path) -> None:
    """Put the study of a zip file back into a folder and its runs into `runs`; what is there already is kept."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            target = runs / Path(name).name if name.startswith(f"{RUNS}/") else workdir / name
            if name != STUDY and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                write_durably(target, archive.read(name).decode())


def read_archive(path: Path, folder: Path) -> Report:
    """The report of the study in a zip file, which is unpacked into a new folder below `folder`."""
    workdir = folder / path.stem
    with zipfile.ZipFile(path) as archive:
        archive.extractall(workdir)
    return read_study(workdir)
