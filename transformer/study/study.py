"""A comparison of arms as a statistical experiment."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer.config.run import Replica, RunConfig, grid, to_json
from transformer.config.variant import ConfigError, nearest, to_text
from transformer.data.dataset import Dataset, load_data
from transformer.study import budget as budgets
from transformer.study.cell import Cell, cell_folder, run_cell
from transformer.study.probes import Probe
from transformer.study.report import ArmRuns, Report, analyse
from transformer.study.statistics import smallest_detectable_effect


@dataclass(frozen=True)
class Study:
    """Arms against a baseline: the same seeds for all, learning rates tuned for each.

    Every arm is one compiled program of `seeds` × `learning_rates` replicas. An arm's learning rate is
    chosen by its mean loss over the first `selection_seeds` seeds, and its loss is estimated on the
    others only, paired by seed with the baseline's.
    """

    name: str
    base: RunConfig
    arms: Mapping[str, Mapping[str, Any]]
    """Changes to the base by name of the arm, by dotted path: `{"rms": {"model.norm": RMSNorm()}}`."""
    seeds: int = 8
    learning_rates: tuple[float, ...] = ()
    """None: the base's only, and all seeds are estimation seeds."""
    selection_seeds: int | None = None
    """None: a third of the seeds, where there is a choice of learning rates."""
    baseline: str | None = None
    """None: the first arm."""
    margin: float = 0.01
    """Differences below this, in nats per token, count as equivalent."""
    match: budgets.Budget | None = None
    """What every arm shall have as much of as the baseline."""
    match_by: budgets.Knob = "d_ff"
    """What is solved for."""
    first_seed: int = 0
    probes: tuple[Probe, ...] = ()
    """What is measured on the trained parameters beside the loss."""

    def __post_init__(self):
        if len(self.arms) < 2:
            raise ConfigError(f"study {self.name}: {len(self.arms)} arms; a comparison needs two")
        if self.baseline is not None and self.baseline not in self.arms:
            raise ConfigError(f"study {self.name}: no arm {self.baseline!r}{nearest(self.baseline, self.arms)}")
        if self.seeds - self.num_selection_seeds < 2:
            raise ConfigError(
                f"study {self.name}: {self.seeds} seeds leave {self.seeds - self.num_selection_seeds} to estimate "
                "with; an interval needs two"
            )
        if self.margin <= 0:
            raise ConfigError(f"study {self.name}: margin {self.margin} is not positive")

    @property
    def num_selection_seeds(self) -> int:
        if self.selection_seeds is not None:
            return self.selection_seeds
        return max(1, self.seeds // 3) if len(self.learning_rates) > 1 else 0

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """Learning rate by learning rate, each with every seed."""
        return grid(range(self.first_seed, self.first_seed + self.seeds), self.learning_rates)

    def configs(self, data: Dataset) -> dict[str, RunConfig]:
        """The config of each arm, with what it takes from the data and the matched budget."""
        base = data.complete(self.base)
        configs = {name: data.complete(base.replace(dict(changes))) for name, changes in self.arms.items()}
        if self.match is None:
            return configs
        baseline = configs[self.baseline_name]
        return {
            name: config if name == self.baseline_name else budgets.match(config, baseline, self.match, self.match_by)
            for name, config in configs.items()
        }

    @property
    def baseline_name(self) -> str:
        return self.baseline or next(iter(self.arms))

    def planned_effect(self) -> float:
        """The smallest difference found with 80 % power, in standard deviations over seeds, at a correlation of ½."""
        n = self.seeds - self.num_selection_seeds
        return smallest_detectable_effect(n, comparisons=len(self.arms) - 1, correlation=0.5)

    def run(self, workdir: str | Path, *, data: Dataset | None = None, say: Callable[[str], None] = print) -> Report:
        """Run what is not there yet, write report.json, report.md and the pictures.

        Finished arms are read, interrupted ones go on where they stopped.
        """
        workdir = Path(workdir)
        data = load_data(self.base.data, workdir) if data is None else data
        configs = self.configs(data)
        say(
            f"{self.name}: {len(configs)} arms × {len(self.replicas)} runs on {data.source}; smallest detectable "
            f"difference {self.planned_effect():.2f} standard deviations over seeds (80 % power, ρ = 0.5 assumed)"
        )
        runs = {}
        for number, (name, config) in enumerate(configs.items(), 1):
            folder = cell_folder(workdir, config, self.replicas, data)
            cell = run_cell(config, self.replicas, data, workdir, f"{name} ({number}/{len(configs)})", self.probes)
            say(f"  {name}: {cell.seconds:.0f} s{_diverged(cell)}")
            runs[name] = ArmRuns(changes_text(self.arms[name]), config, cell, folder)
        report = analyse(
            runs,
            name=self.name,
            baseline=self.baseline_name,
            learning_rates=self.learning_rates or (self.base.optimizer.learning_rate,),
            num_selection_seeds=self.num_selection_seeds,
            margin=self.margin,
            planned_effect=self.planned_effect(),
            config=self.to_json(),
            data=data,
        )
        report.write(workdir)
        return report

    def to_json(self) -> dict[str, Any]:
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        arms = {name: {k: to_json(v) for k, v in changes.items()} for name, changes in self.arms.items()}
        return {**{k: to_json(v) for k, v in fields.items()}, "arms": arms}


def changes_text(changes: Mapping[str, Any]) -> str:
    """`model.norm=rmsnorm, model.d_ff=64`."""
    return ", ".join(f"{path}={value if isinstance(value, str) else to_text(value)}" for path, value in changes.items())


def _diverged(cell: Cell) -> str:
    count = sum(at is not None for at in cell.diverged_at)
    return f", {count} of {len(cell.diverged_at)} runs diverged" if count else ""
