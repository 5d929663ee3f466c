"""A study that runs: its arms with their data, the runs that are missing, and the looks at its results."""

import contextlib
import dataclasses
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer.core.errors import ConfigError, OneLine
from transformer.core.files import Damaged
from transformer.data.dataset import Dataset, reference
from transformer.data.order import ORDER
from transformer.runs.config import Replica
from transformer.runs.mesh import MeshConfig
from transformer.study import plan
from transformer.study.analyse import analyse
from transformer.study.arms import Arm
from transformer.study.cell import RESULT, Cell, replicas_of
from transformer.study.engines import Engine
from transformer.study.record import NOISE, ArmRecord, Record, read_record
from transformer.study.report import Report, Unresolved
from transformer.study.runs import HIGHER_IS_BETTER, SUMS
from transformer.training.environment import environment
from transformer.training.metrics import finite
from transformer.training.trackers import Tracker
from transformer.training.workdir import CONFIG, RUN_FILES

if TYPE_CHECKING:
    from transformer.study.study import Study

STUDY_FILES = (
    r"(plan|study|step_seconds|report|result)\.json",
    r"report\.(md|html|csv|tex)",
    r"\w+\.png",
    r"tensorboard(/[^/]+){0,3}/events\.out\.tfevents\.[0-9a-f.]+",
    r"runs(/[0-9a-f]{20}\.json)?",
    r"cells/initial-[0-9a-f]{16}\.npz",
    rf"cells(/[0-9a-f]{{16}}(/({'|'.join(RUN_FILES)}|cell\.json|log\.txt|error\.txt))?)?",
)
"""What a study writes into its folder, as regular expressions."""
OTHER_RATES = "the difference may be one of rates"
"""End of what is said of an arm with other learning rates than the baseline."""


class StudyError(OneLine, RuntimeError):
    """Too many arms failed for a comparison."""


@dataclass
class Running:
    """A study that runs: where, on what, and what is computed so far."""

    study: "Study"
    workdir: Path
    runs: Path
    """The folder of finished runs."""
    data: Dataset
    arms: dict[str, Arm]
    engine: Engine
    mesh: MeshConfig
    say: Callable[[str], None]
    trackers: Sequence[Tracker]
    unresolved: Unresolved
    """The questions that get more seeds."""
    failed: dict[str, str] = dataclasses.field(default_factory=dict)
    seeds: dict[str, int] = dataclasses.field(default_factory=dict)
    """How many seeds each arm has."""

    def run(self, looks: int | None = None) -> Report:
        """All that is missing, or as much as the first planned `looks` need."""
        study, started = self.study, time.monotonic()
        self.say(
            f"{study.name}: {len(study.arms)} arms, {' or '.join(map(str, study.looks))} seeds, on {self.data.source}; "
            f"{study.planned_effect_text()}"
        )
        kept = plan.kept(self.workdir, study.plan(self.arms), self._there(), self.say)
        self._say_signals()
        wanted, report = list(self.arms), None
        for look in study.looks[:looks]:
            self.seeds |= dict.fromkeys(wanted, look)
            self._compute(dict.fromkeys(wanted, look))
            report = self._report(kept)
            wanted = self._open(report)
            spent = (time.monotonic() - started) / 60
            if not wanted or (study.minutes is not None and spent > study.minutes):
                break
            if look != study.looks[:looks][-1]:
                self.say(f"open after {look} seeds: {', '.join(wanted)}")
        assert report is not None
        report.write(self.workdir)
        return report

    def _there(self) -> int:
        """How many runs of the study are computed already, those of arms that it had before too."""
        last = self.study.looks[-1]
        stored = [(arm, arm.runs(self.runs)) for arm in self.arms.values()]
        paths = [runs.path(seed, rate) for arm, runs in stored for rate in arm.rates for seed in arm.seeds(last)]
        with contextlib.suppress(ConfigError, Damaged):  # there is no record yet, or one that this run writes again
            before = read_record(self.workdir).arms.values()
            paths += [self.runs / name for arm in before for row in arm.files for name in row]
        return sum(path.exists() for path in set(paths))

    def _say_signals(self) -> None:
        """What the models look like before training."""
        for name, arm in self.arms.items():
            if name == NOISE:
                continue
            sizes, warnings = arm.signals
            if sizes:
                self.say(f"  {name}: before training {', '.join(f'{n} {size:.2g}' for n, size in sizes.items())}")
            for warning in warnings:
                self.say(f"  {name}: warning: {warning}")

    def _open(self, report: Report) -> list[str]:
        """The arms that an open question is about."""
        about = {arm for question in self.unresolved(report) for arm in report.record.questions[question]}
        return [name for name in self.arms if name in about]

    def _compute(self, wanted: Mapping[str, int]) -> None:
        """Compute the runs that are missing, of each arm so many seeds; `failed` gets the errors.

        Arms of one config, such as the baseline under other seeds, are trained together.
        """
        groups: dict[str, list[str]] = {}
        for name in wanted:
            groups.setdefault(self.arms[name].sha256, []).append(name)
        cells: dict[Path, Cell] = {}
        arms: dict[Path, list[str]] = {}
        for number, names in enumerate(groups.values(), 1):
            replicas = {one: None for name in names for one in self.arms[name].replicas(wanted[name])}
            missing = self._missing(self.arms[names[0]], list(replicas), f"{names[0]} ({number}/{len(groups)})")
            cells |= {cell.folder: cell for cell in missing}
            arms |= {cell.folder: names for cell in missing}
            if not missing:
                self.say(f"  {', '.join(names)}: there already")
        for cell, error in self.engine.run(list(cells.values())) if cells else ():
            names = arms[cell.folder]
            self.failed |= dict.fromkeys(names, error) if error else {}
            self.say(f"  {', '.join(names)}: {f'failed: {error}; more in {cell.folder}' if error else _said(cell)}")
        done = sum(name not in self.failed for name in self.study.arms)
        self.say(f"{done} of {len(self.study.arms)} arms are computed, {len(self.study.arms) - done} failed")

    def _missing(self, arm: Arm, replicas: Sequence[Replica], title: str) -> list[Cell]:
        """The cells of a config: one for the runs that are missing, and those whose runs lack a probe."""
        cells = self.workdir / "cells"
        shown = [tracker.within(self.study.name, arm.name, self.workdir) for tracker in self.trackers]
        wanted = Cell(
            title,
            arm.config,
            replicas,
            arm.data,
            cells,
            self.runs,
            probes=self.study.probes,
            mesh=self.mesh,
            trackers=shown,
            initial=arm.initial,
        )
        missing, again, stopped = [], {}, {}
        for replica, run in zip(replicas, wanted.found(), strict=True):
            if run is None or not (wanted.measured(run) or (cells / run.cell).exists()):
                missing.append(replica)
            elif not wanted.measured(run):
                again[run.cell] = replicas_of(cells / run.cell)
            elif _is_unwritten(cells / run.cell):
                stopped[run.cell] = replicas_of(cells / run.cell)
        again |= {cell: group for cell, group in stopped.items() if any(one in group for one in missing)}
        missing = [one for one in missing if not any(one in group for group in again.values())]
        groups = [*again.values(), *([missing] if missing else [])]
        return [dataclasses.replace(wanted, replicas=group) for group in groups]

    def _report(self, kept: dict[str, Any]) -> Report:
        study, base = self.study, self.arms[self.study.baseline_name]
        failed = {name: error for name, error in self.failed.items() if name in study.arms}
        names = [name for name in study.arms if name not in failed]
        if study.baseline_name in failed or len(names) < 2:
            errors = "; ".join(f"{name}: {error}" for name, error in failed.items())
            raise StudyError(f"{study.name}: nothing to compare with the baseline {study.baseline_name} ({errors})")
        shown = [self.arms[name] for name in names]
        record = Record(
            name=study.name,
            question=study.question,
            baseline=study.baseline_name,
            metric=study.metric,
            tuned_by=study.tuned_by,
            higher_is_better={name: name in HIGHER_IS_BETTER for name in SUMS}
            | {probe.label: probe.higher_is_better for probe in study.probes},
            margin=study.margin,
            fails_above=study.fails_above,
            contrasts={name: dict(weights) for name, weights in study.contrasts.items()},
            looks=list(study.looks),
            halves=len({arm.held_out for arm in shown}) == 1,
            arms={arm.name: self._arm_record(arm) for arm in shown},
            noise=self._arm_record(self.arms[NOISE]) if NOISE in self.arms and NOISE not in self.failed else None,
            failed=failed,
            reference=reference(base.config, self.data),
            plan=kept,
            config=study.to_json(),
            data={
                "source": self.data.source,
                "fingerprint": self.data.fingerprint,
                "order": getattr(self.data, "order_version", ORDER),
            },
            environment={"command": shlex.join(["python", *sys.orig_argv[1:]]), **environment()},
            runs=os.path.relpath(self.runs, self.workdir),
        )
        record.write(self.workdir)
        return analyse(self.workdir, record)

    def _arm_record(self, arm: Arm) -> ArmRecord:
        stored, seeds = arm.runs(self.runs), arm.seeds(self.seeds[arm.name])
        parameters, flops = arm.costs
        sizes, warnings = arm.signals
        return ArmRecord(
            changes=arm.changes,
            config=arm.sha256,
            learning_rates=list(arm.rates),
            seeds=list(seeds),
            files=[[stored.path(seed, rate).name for seed in seeds] for rate in arm.rates],
            parameters=parameters,
            flops=flops,
            guess=arm.config.objective.chance(arm.config.model),
            signals={name: finite(size) for name, size in sizes.items()},
            warnings=[*warnings, *self._doubts(arm)],
        )

    def _doubts(self, arm: Arm) -> Iterable[str]:
        """What a reader should know of an arm: that it is another one under a second name, or has other rates or data
        in another order."""
        base = self.arms[self.study.baseline_name]
        if arm.name == NOISE:
            return
        twins = {name: other for name, other in self.arms.items() if name not in (arm.name, NOISE)}
        if others := [n for n, other in twins.items() if (other.sha256, other.rates) == (arm.sha256, arm.rates)]:
            yield f"its runs are those of {', '.join(others)}: the config is the same"
        if arm.rates != base.rates:
            own, others = (", ".join(f"{rate:g}" for rate in each.rates) for each in (arm, base))
            yield f"its learning rates are {own}, those of {base.name} {others}: {OTHER_RATES}"
        if arm.config.data == base.config.data and arm.order != base.order:
            yield f"it sees its training data in another order than {base.name}, which the difference includes"
        elif arm.held_out != base.held_out:
            yield f"its held-out part has other tokens, or other batches, than that of {base.name}"


def _is_unwritten(cell: Path) -> bool:
    """Whether a cell was stopped while its runs were stored."""
    return (cell / CONFIG).exists() and not (cell / RESULT).exists()


def _said(cell: Cell) -> str:
    runs = [run for run in cell.found() if run is not None]
    count = sum(run.diverged_at is not None for run in runs)
    return f"{sum(run.seconds for run in runs):.0f} s" + (f", {count} of {len(runs)} runs diverged" if count else "")
