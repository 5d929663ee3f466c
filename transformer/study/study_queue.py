"""Runs several studies, the least resolved first; each is kept as an archive that a later call continues."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from transformer.core.errors import ConfigError
from transformer.core.files import Damaged
from transformer.study.analyse import read_study
from transformer.study.archive import SUFFIX, archived, pack, unpack
from transformer.study.engines import LOCAL, Engine
from transformer.study.record import STUDY, Record, read_record
from transformer.study.report import Report, Unresolved
from transformer.study.running import StudyError
from transformer.study.study import Study
from transformer.training.signals import Interrupted


@dataclass
class StudyQueue:
    """Studies that share their runs, and the folder of their archives."""

    studies: Mapping[str, Study]
    """By name, in the order in which they are begun."""
    folder: Path
    """Where they are computed: a folder for each, and `runs`."""
    archives: Path | None = None
    """Where each is kept as `NAME.json.xz`; None: nowhere."""
    looks: int | None = None
    """Most looks of a study at its results; None: as many as it plans."""
    engine: Engine = LOCAL
    """Where arms are computed."""
    unresolved: Mapping[str, Unresolved] = field(default_factory=dict)
    """The questions of each study that get more seeds; of one that is not here those whose verdict is open."""
    say: Callable[[str], None] = print
    failed: dict[str, str] = field(default_factory=dict)
    """Studies that could not be computed, with the error."""

    def __post_init__(self):
        if self.looks is not None and self.looks < 1:
            raise ConfigError(f"looks: {self.looks} is not a positive number")

    def restore(self, archives: Path) -> None:
        """Put what is in archives into the folder, where it is not there already."""
        for name in self.studies:
            if (path := archives / f"{name}{SUFFIX}").exists():
                unpack(path, self.folder / name, self.folder / "runs")

    def run(self, minutes: float | None = None) -> None:
        """Look at one study after another, until nothing is open or the time is over.

        Args:
          minutes: time after which no look is begun; None: no limit.

        Raises:
          Interrupted: a signal asked to stop; what was computed is kept.
        """
        if minutes is not None and not minutes >= 0:
            raise ConfigError(f"minutes: {minutes} is not a time")
        ends = float("inf") if minutes is None else time.monotonic() + 60 * minutes
        self.failed.clear()
        again = {name for name in self.studies if self.looked(name) and not self._keep(name)}
        urgencies = {name: float("inf") if name in again else self.urgency(name) for name in self.studies}
        while time.monotonic() < ends and any(urgencies.values()):
            name = max(urgencies, key=lambda each: urgencies[each])
            try:
                self.look(name, again=name in again)
                urgencies[name] = self.urgency(name)
            except Interrupted:
                raise Interrupted(f"{name}: what is computed is kept; the same command goes on") from None
            except (StudyError, ConfigError) as error:
                urgencies[name], self.failed[name] = 0.0, str(error)
                self.say(f"{name}: {error}")
            again.discard(name)

    def look(self, name: str, *, again: bool = False) -> None:
        """One more look at a study, or the last one `again`."""
        workdir, looks = self.folder / name, self.looked(name) + (not again)
        self.say(f"{time.strftime('%H:%M:%S')} {name}, look {looks}")
        report = self.studies[name].run(
            workdir,
            looks=looks,
            say=self.say,
            engine=self.engine,
            runs=self.folder / "runs",
            unresolved=self._unresolved(name),
        )
        if self.archives:
            pack(workdir, self.archives / f"{name}{SUFFIX}")
        if report.failed:
            self.failed[name] = "; ".join(f"{arm}: {error}" for arm, error in report.failed.items())

    def _keep(self, name: str) -> bool:
        """Write the archive of a study that a killed call did not write; whether that is possible, and no arm failed in
        the last look."""
        record = read_record(self.folder / name)
        if self.archives and self._knows_more(name, record, path := self.archives / f"{name}{SUFFIX}"):
            try:
                pack(self.folder / name, path)
            except Damaged:
                return False
        return not record.failed

    def _knows_more(self, name: str, record: Record, archive: Path) -> bool:
        """Whether a record has more runs than its archive, or that is missing, damaged or of another study."""
        try:
            kept = archived(archive)
        except (FileNotFoundError, Damaged):
            return True
        return _num_runs(record) > _num_runs(kept) or not self.studies[name].asked_in(kept)

    def looked(self, name: str) -> int:
        """How often a study has looked at its results; not at all where it asks something else by now, or its record
        is damaged, which a look writes again."""
        if not (self.folder / name / STUDY).exists():
            return 0
        try:
            study, record = self.studies[name], read_record(self.folder / name)
        except Damaged:
            return 0
        if not study.asked_in(record):
            return 0
        return sum(look <= max(len(arm.seeds) for arm in record.arms.values()) for look in study.looks)

    def urgency(self, name: str) -> float:
        """How much a study is in want of seeds: infinite before its first, 0 where nothing is open or no look is left;
        infinite also where runs are damaged, which a look computes again.

        Between these it is the width of its widest open interval, in units of the margin.
        """
        study, looked = self.studies[name], self.looked(name)
        if not looked:
            return float("inf")
        if looked >= min(len(study.looks), self.looks or len(study.looks)):
            return 0.0
        try:
            report = read_study(self.folder / name)
        except Damaged:
            return float("inf")
        intervals = [report.contrasts[question].interval for question in self._unresolved(name)(report)]
        return max(((high - low) / study.margin for low, high in intervals), default=0.0)

    def _unresolved(self, name: str) -> Unresolved:
        return self.unresolved.get(name, Report.unresolved)


def _num_runs(record: Record) -> int:
    return sum(len(row) for arm in record.arms.values() for row in arm.files)
