"""A comparison of arms as a statistical experiment."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer.core.json import to_json
from transformer.core.values import ConfigError, check_type, nearest, to_text
from transformer.data.dataset import Dataset, fingerprint_arrays, load_data
from transformer.runs.config import Replica, RunConfig, grid
from transformer.runs.mesh import AUTOMATIC, MeshConfig
from transformer.study import budget as budgets
from transformer.study.cell import Cell, Result
from transformer.study.engines import LOCAL, Engine
from transformer.study.estimation import ArmRuns
from transformer.study.probes import Probe
from transformer.study.report import Report, analyse
from transformer.study.statistics import smallest_detectable_effect
from transformer.training.workdir import locked


class StudyError(RuntimeError):
    """Too many arms failed for a comparison."""


@dataclass(frozen=True)
class Study:
    """Arms against a baseline: the same seeds for all, learning rates tuned for each.

    Every arm is one compiled program of `seeds` × `learning_rates` replicas. An arm's learning rate is
    chosen by its mean loss over the first `selection_seeds` seeds, and its loss is estimated on the
    others only, paired by seed with the baseline's.
    """

    name: str
    """Title of the study in its report."""
    base: RunConfig
    """The config that arms change."""
    arms: Mapping[str, Mapping[str, Any]]
    """Changes of each arm to the base, by name and dotted path: `{"rms": {"model.norm": RMSNorm()}}`."""
    seeds: int = 8
    """Number of seeds per arm and learning rate."""
    learning_rates: tuple[float, ...] = ()
    """Learning rates that each arm is tuned over; empty: the config's, and all seeds are estimation seeds."""
    selection_seeds: int | None = None
    """Number of seeds that select the learning rate; None: a third of them, or without a choice of rates none."""
    baseline: str | None = None
    """Name of the arm that all others are compared with; None: the first."""
    margin: float = 0.01
    """Differences below this, in nats per token, count as equivalent."""
    match: budgets.Budget | None = None
    """The cost in which every arm is made to match the baseline; None: arms may differ."""
    match_by: budgets.Knob = "d_ff"
    """The number that is changed for this."""
    match_multiple: int = 1
    """It is a multiple of this, such as a width that fits the hardware."""
    first_seed: int = 0
    """The seeds are this one and those after it."""
    probes: tuple[Probe, ...] = ()
    """Numbers measured on the trained parameters, besides the loss."""

    def __post_init__(self):
        if len(self.arms) < 2:
            raise ConfigError(f"study {self.name}: {len(self.arms)} arms; a comparison needs two")
        if self.baseline is not None and self.baseline not in self.arms:
            raise ConfigError(f"study {self.name}: no arm {self.baseline!r}{nearest(self.baseline, self.arms)}")
        tuned = len(self.learning_rates) > 1
        if self.num_selection_seeds < tuned:
            raise ConfigError(
                f"study {self.name}: selection_seeds {self.num_selection_seeds}; "
                + ("a choice of learning rates needs one" if tuned else "it is a number of seeds")
            )
        if self.seeds - self.num_selection_seeds < 2:
            raise ConfigError(
                f"study {self.name}: {self.seeds} seeds leave {self.seeds - self.num_selection_seeds} to estimate "
                "with; an interval needs two"
            )
        check_type(self.match, budgets.Budget | None, f"study {self.name}: match")
        check_type(self.match_by, budgets.Knob, f"study {self.name}: match_by")
        if self.match_multiple < 1:
            raise ConfigError(f"study {self.name}: match_multiple {self.match_multiple} is not a positive number")
        labels = [probe.label for probe in self.probes]
        if same := [label for label in labels if labels.count(label) > 1]:
            raise ConfigError(f"study {self.name}: two probes are called {same[0]!r}")
        if self.margin <= 0:
            raise ConfigError(f"study {self.name}: margin {self.margin} is not positive")

    @property
    def num_selection_seeds(self) -> int:
        """Number of first seeds that select the learning rate and enter no estimate."""
        if self.selection_seeds is not None:
            return self.selection_seeds
        return max(1, self.seeds // 3) if len(self.learning_rates) > 1 else 0

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """Every learning rate with every seed, all seeds of the first learning rate first."""
        return grid(range(self.first_seed, self.first_seed + self.seeds), self.learning_rates)

    def configs(self, data: Dataset) -> dict[str, RunConfig]:
        """The config of each arm, completed from the data and matched to the budget.

        Raises:
          ConfigError: an arm is impossible, or sets a learning rate although `learning_rates` are given.
        """
        base = data.complete(self.base)
        arms = {n: self.base.replace({"data": base.data, **changes}) for n, changes in self.arms.items()}
        loaded = {base.data: data} | {arm.data: load_data(arm.data) for arm in arms.values() if arm.data != base.data}
        configs = {name: loaded[arm.data].complete(arm) for name, arm in arms.items()}
        for name, config in configs.items():
            rate = config.optimizer.learning_rate
            own = rate != base.optimizer.learning_rate or "optimizer.learning_rate" in self.arms[name]
            if self.learning_rates and own:
                raise ConfigError(
                    f"study {self.name}: arm {name} has a learning rate of its own, {rate:g}, but every arm runs at "
                    "all of learning_rates; leave one of them out"
                )
        if self.match is None:
            return configs
        baseline, budget = configs[self.baseline_name], self.match

        def matched(config: RunConfig) -> RunConfig:
            return budgets.match(config, baseline, budget, self.match_by, self.match_multiple)

        return {n: config if n == self.baseline_name else matched(config) for n, config in configs.items()}

    @property
    def baseline_name(self) -> str:
        """Name of the arm that all others are compared with."""
        return self.baseline or next(iter(self.arms))

    def planned_effect(self) -> float:
        """The smallest difference detected with 80 % power at a correlation of ½, in standard deviations over seeds."""
        n = self.seeds - self.num_selection_seeds
        return smallest_detectable_effect(n, comparisons=len(self.arms) - 1, correlation=0.5)

    def cells(self, workdir: Path, data: Dataset, mesh: MeshConfig = AUTOMATIC) -> dict[str, Cell]:
        """The cell of each arm; arms with equal configs share one."""
        configs = self.configs(data)
        cells = {}
        for i, (name, config) in enumerate(configs.items(), 1):
            own, title = self._data(name, configs, data), f"{name} ({i}/{len(configs)})"
            cells[name] = Cell(title, config, self.replicas, own, workdir / "cells", self.probes, mesh)
        return cells

    def _data(self, name: str, configs: Mapping[str, RunConfig], data: Dataset) -> Dataset:
        """The data of an arm: its own where it changes some of it, with the same held-out part as all."""
        baseline, config = configs[self.baseline_name], configs[name]
        if config.data == baseline.data:
            return data
        own = load_data(config.data)
        held_out = [fingerprint_arrays(each.validation_batches(baseline, 1)) for each in (own, data)]
        if held_out[0] != held_out[1]:
            raise ConfigError(
                f"study {self.name}: arm {name} changes the held-out part of {data.source}, so its losses are not "
                "comparable; change the training data only"
            )
        return own

    def run(
        self,
        workdir: str | Path,
        *,
        data: Dataset | None = None,
        engine: Engine = LOCAL,
        mesh: MeshConfig = AUTOMATIC,
        say: Callable[[str], None] = print,
    ) -> Report:
        """Run what is not computed yet; write report.json, report.md and the pictures.

        Finished arms are read, interrupted ones continue where they stopped, and an arm that fails does
        not stop the others: the report names it with its error.

        Args:
          workdir: the folder of the study, made where there is none.
          data: None: loaded as the base says.
          engine: computes the arms, in this process or in others.
          mesh: how the devices of each process share the work.
          say: called with each line of progress.

        Raises:
          ConfigError: an arm is impossible, the engine is not available, or another process runs this study.
          StudyError: the baseline or all other arms could not be computed.
          Interrupted: a signal asked to stop; the states are saved.
        """
        workdir = Path(workdir)
        data = load_data(self.base.data, workdir) if data is None else data
        cells = self.cells(workdir, data, mesh)
        say(
            f"{self.name}: {len(cells)} arms × {len(self.replicas)} runs on {data.source}; smallest detectable "
            f"difference {self.planned_effect():.2f} standard deviations over seeds (80 % power, ρ = 0.5 assumed)"
        )
        with locked(workdir):
            failed = self._compute(cells, engine, say)
            report = self._analyse(cells, failed, data)
            report.write(workdir)
        return report

    def _compute(self, cells: Mapping[str, Cell], engine: Engine, say: Callable[[str], None]) -> dict[str, str]:
        """Compute the cells without a result; returns the errors of the arms that failed."""
        arms: dict[Path, list[str]] = {}
        for name, cell in cells.items():
            arms.setdefault(cell.folder, []).append(name)
        missing = {cell.folder: cell for cell in cells.values() if cell.result() is None}
        for folder in arms.keys() - missing.keys():
            say(f"  {', '.join(arms[folder])}: there already")
        failed = {}
        for cell, error in engine.run(list(missing.values())) if missing else ():
            names = arms[cell.folder]
            failed |= dict.fromkeys(names, error) if error else {}
            say(f"  {', '.join(names)}: {f'failed: {error}' if error else _said(cell.result())}")
        say(f"{len(cells) - len(failed)} of {len(cells)} arms are computed, {len(failed)} failed")
        return failed

    def _analyse(self, cells: Mapping[str, Cell], failed: Mapping[str, str], data: Dataset) -> Report:
        runs = {
            name: ArmRuns(
                changes=changes_text(self.arms[name]),
                config=cell.config,
                result=result,
                folder=cell.folder,
                learning_rates=self.learning_rates or (cell.config.optimizer.learning_rate,),
                num_selection_seeds=self.num_selection_seeds,
            )
            for name, cell in cells.items()
            if name not in failed and (result := cell.result()) is not None
        }
        if self.baseline_name in failed or len(runs) < 2:
            errors = "; ".join(f"{name}: {error}" for name, error in failed.items())
            raise StudyError(f"{self.name}: nothing to compare with the baseline {self.baseline_name} ({errors})")
        return analyse(
            runs,
            name=self.name,
            baseline=self.baseline_name,
            margin=self.margin,
            planned_effect=self.planned_effect(),
            config=self.to_json(),
            data=data,
            failed=failed,
        )

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON data."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        arms = {name: {k: to_json(v) for k, v in changes.items()} for name, changes in self.arms.items()}
        return {**{k: to_json(v) for k, v in fields.items()}, "arms": arms}


def changes_text(changes: Mapping[str, Any]) -> str:
    """Changes in text form: `model.norm=rmsnorm, model.d_ff=64`."""
    return ", ".join(f"{path}={value if isinstance(value, str) else to_text(value)}" for path, value in changes.items())


def _said(result: Result | None) -> str:
    assert result is not None
    count = sum(at is not None for at in result.diverged_at)
    return f"{result.seconds:.0f} s" + (f", {count} of {len(result.diverged_at)} runs diverged" if count else "")
