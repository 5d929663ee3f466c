"""Studies as small files, without checkpoints: what was asked, and beside it the runs, which studies share."""

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from transformer.core.errors import ConfigError
from transformer.core.files import (
    Damaged,
    read_compressed,
    read_sealed,
    value_of,
    write_compressed,
    write_sealed,
)
from transformer.core.folders import locked
from transformer.study.analyse import report_of
from transformer.study.plan import PLAN
from transformer.study.record import STUDY, Record, read_record
from transformer.study.report import Report
from transformer.study.runs import Run, read_run

SUFFIX = ".json.xz"
RUNS = "runs"
"""The folder beside the archives with the runs: a file for each config, whatever studies have it as an arm."""
SUM_DIGITS = 6
"""Significant digits kept of a sum of losses, whose last would be a fifth of all archives and tell nothing."""
CURVE_DIGITS, CURVE_POINTS = 3, 20
"""What is kept of a curve of training losses: decimals, and as many of its points as a picture needs."""


@dataclass(frozen=True)
class _Archived:
    """A study in a file."""

    record: Record
    plan: dict[str, Any]

    def __post_init__(self):
        for config, names in _names(self.record).items():
            if unfit := [name for name in (f"{config}.json", *names) if not re.fullmatch(r"[\w-]+\.json", name)]:
                raise ConfigError(f"archive: {unfit[0]!r} is not the name of a file of runs")


@dataclass(frozen=True)
class _Runs:
    """The runs of a config in a file, as columns, which are smaller than rows."""

    names: list[str]
    """Of their files."""
    columns: dict[str, list[Any]]
    """Their values by field."""

    def __post_init__(self):
        if {len(column) for column in self.columns.values()} != {len(self.names)}:
            raise ConfigError("archive: its columns are not of the same runs")


def pack(workdir: Path, path: Path) -> None:
    """Write the study of a folder to a file, and its runs to files beside it.

    Runs that are there already are replaced, and keep what probes of other studies found. The same studies are the same
    files byte for byte. Sums of losses are kept to six digits; of training losses, of which no verdict is made, some
    are kept, rounded.

    Raises:
      ConfigError: the folder holds no study, or the file's cannot be written.
      Damaged: a file of the study, or one beside the archive, is not what was written.
    """
    record = read_record(workdir)
    archived = _Archived(replace(record, runs=RUNS), read_sealed(workdir / PLAN))
    with locked(path.parent / RUNS, wait=True):  # of two studies that share an arm each adds its runs
        for config, names in _names(record).items():
            kept = _kept(path, config)
            there = _read(kept) if kept.exists() else {}
            found = {name: read_run(workdir / record.runs / name) for name in names}
            _write(kept, there | {n: run.with_probes_of(there[n]) if n in there else run for n, run in found.items()})
        write_compressed(path, asdict(archived))


def unpack(path: Path, workdir: Path, runs: Path) -> None:
    """Put an archived study back into a folder and its runs into `runs`; what is there already is kept, and gets what
    other probes found.

    Raises:
      FileNotFoundError: there is no archive.
      Damaged: it, or a file with its runs, is missing or not what was written.
    """
    archived: _Archived = value_of(_Archived, read_compressed(path), str(path))
    for folder in (workdir, runs):
        folder.mkdir(parents=True, exist_ok=True)
    for config, names in _names(archived.record).items():
        missing, kept = [name for name in names if not (runs / name).exists()], _kept(path, config)
        there = _read(kept) if missing or kept.exists() else {}
        for name, run in _those(missing, there, path, config).items():
            write_sealed(runs / name, asdict(run))
        for name in names:
            if name in there and name not in missing:
                _complete(runs / name, there[name])
    record = replace(archived.record, runs=os.path.relpath(runs, workdir))
    # The record last, as it speaks of the runs.
    for name, body in ((PLAN, archived.plan), (STUDY, asdict(record))):
        if not (workdir / name).exists():
            write_sealed(workdir / name, body)


def archived(path: Path) -> Record:
    """What an archive says of its study.

    Raises:
      FileNotFoundError: there is no archive.
      Damaged: it is not what was written.
    """
    return value_of(_Archived, read_compressed(path), str(path)).record


@dataclass
class Archives:
    """A folder of archives, in which each file of runs is read once, whatever studies have it."""

    folder: Path
    _runs: dict[str, dict[str, Run]] = field(default_factory=dict)
    """By config and the name of their file."""

    def names(self) -> list[str]:
        """Of all studies."""
        return sorted(path.name.removesuffix(SUFFIX) for path in self.folder.glob(f"*{SUFFIX}"))

    def report(self, name: str) -> Report:
        """The report of a study.

        Raises:
          FileNotFoundError: there is no archive of it.
          Damaged: it, or a file with its runs, is missing or not what was written.
        """
        path, runs = self.folder / f"{name}{SUFFIX}", {}
        archived: _Archived = value_of(_Archived, read_compressed(path), str(path))
        for config, names in _names(archived.record).items():
            if config not in self._runs:
                self._runs[config] = _read(_kept(path, config))
            runs |= _those(names, self._runs[config], path, config)
        return report_of(archived.record, runs.__getitem__)


def _those(names: Iterable[str], there: Mapping[str, Run], path: Path, config: str) -> dict[str, Run]:
    """The runs of these names of a study in an archive."""
    if lacking := [name for name in names if name not in there]:
        raise Damaged(f"{_kept(path, config)}: lacks the run {lacking[0]} of {path.name}")
    return {name: there[name] for name in names}


def _complete(path: Path, other: Run) -> None:
    """Add to a run what probes found of it elsewhere; a file that is no run stays, and is named where it is read."""
    with contextlib.suppress(Damaged):
        run = read_run(path)
        if other.probes.keys() - run.probes.keys():
            write_sealed(path, asdict(run.with_probes_of(other)))


def _names(record: Record) -> dict[str, list[str]]:
    """The files of the runs of a study by config; the baseline under other seeds has that of the baseline."""
    found: dict[str, list[str]] = {}
    for arm in (*record.arms.values(), *([record.noise] if record.noise else [])):
        found.setdefault(arm.config, []).extend(name for row in arm.files for name in row)
    return found


def _kept(path: Path, config: str) -> Path:
    """The file beside an archive with the runs of a config."""
    return path.parent / RUNS / f"{config[:20]}{SUFFIX}"


def _write(path: Path, runs: Mapping[str, Run]) -> None:
    names, runs = sorted(runs), {name: _rounded(run) for name, run in runs.items()}
    columns = {field.name: [getattr(runs[name], field.name) for name in names] for field in fields(Run)}
    write_compressed(path, asdict(_Runs(names, columns)))


def _rounded(run: Run) -> Run:
    loss = [one if one is None else float(f"{one:.{SUM_DIGITS}g}") for one in run.loss]
    return replace(run, loss=loss, curve=_drawn(run.curve))


def _drawn(curve: dict[str, list[float | None]]) -> dict[str, list[float | None]]:
    """A curve as a picture shows it: its losses would be half of an archive."""
    count = len(curve["loss"])
    some = sorted({-(-count * (i + 1) // CURVE_POINTS) - 1 for i in range(CURVE_POINTS)} - {-1})
    kept = {name: [values[i] for i in some] for name, values in curve.items()}
    return kept | {"loss": [loss if loss is None else round(loss, CURVE_DIGITS) for loss in kept["loss"]]}


def _read(path: Path) -> dict[str, Run]:
    try:
        found: _Runs = value_of(_Runs, read_compressed(path), str(path))
    except FileNotFoundError:
        raise Damaged(f"{path}: is missing") from None
    rows = (dict(zip(found.columns, row, strict=True)) for row in zip(*found.columns.values(), strict=True))
    return {name: value_of(Run, row, f"{path}: {name}") for name, row in zip(found.names, rows, strict=True)}
