"""The report of a study, which compares its arms: as JSON, Markdown, a table and pictures."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from transformer.analysis import plots
from transformer.data.dataset import Dataset, reference
from transformer.study import figures
from transformer.study.estimation import ArmRuns, mean, sensitivity
from transformer.study.statistics import (
    Interval,
    PairedComparison,
    compare_paired,
    holm,
    mean_interval,
    pooled_correlation,
    smallest_detectable_effect,
    verdict,
)
from transformer.training.checkpoint import write_durably
from transformer.training.environment import environment
from transformer.training.metrics import Curve, finite


@dataclass(frozen=True)
class ArmReport:
    """One row of the report. Losses are nats per token over the whole validation split."""

    name: str
    changes: str
    """The arm's changes to the base, in text form."""
    n_ok: int
    """Runs of the arm that did not diverge, over all learning rates and seeds."""
    n_diverged: int
    """Runs of the arm that diverged."""
    learning_rate: float
    """The learning rate selected on the selection seeds."""
    loss: float | None
    """Mean over the estimation seeds at the selected learning rate."""
    loss_interval: Interval
    """Its 95 % t-interval."""
    n_pairs: int
    """Estimation seeds on which neither the arm nor the baseline diverged."""
    difference: float | None
    """Mean paired difference to the baseline; negative is better."""
    difference_interval: Interval | None
    """Its 95 % t-interval."""
    p_corrected: float | None
    """p value of the paired t test, corrected by Holm over all arms."""
    verdict: str
    """baseline, better, worse, equivalent or unresolved."""
    parameters: int
    """Number of parameters of the model."""
    flops: float
    """Floating-point operations of a training step, per sequence."""
    seconds: float
    """Wall time of all runs of the arm."""
    loss_by_learning_rate: dict[str, float | None]
    """Mean loss over all seeds that did not diverge."""
    sensitivity: float | None
    """Sensitivity to the learning rate; None for a single one."""
    exact_match: float | None
    """Share of held-out sequences with every label right, the mean over the same runs as `loss`."""
    probes: dict[str, float | None]
    """Mean of each probe over the same runs, by label."""
    losses: list[list[float]]
    """Losses (learning rates, seeds); NaN for a diverged run."""
    estimates: list[float]
    """Losses of the estimation seeds at the selected learning rate; NaN for a diverged run."""
    deviation: float | None
    """Standard deviation of the `estimates` that did not diverge."""
    worst: float | None
    """The highest of these."""


@dataclass(frozen=True)
class Report:
    """The results of a study; `show()` prints them, `write()` puts them in a folder."""

    name: str
    baseline: str
    arms: list[ArmReport]
    correlation: float
    """Mean correlation over seeds between the arms; the higher, the more pairing helps."""
    smallest_detectable_effect: float
    """In nats per token, with 80 % power, from the measured spread and correlation, Bonferroni over the arms."""
    planned_effect: float
    """The smallest detectable effect as planned before the run, in standard deviations over seeds."""
    reference: tuple[str, float] | None
    """The name and loss of a simple model on the same split, for scale."""
    margin: float
    """Differences below this count as equivalent, in nats per token."""
    config: dict[str, Any]
    data: dict[str, Any]
    environment: dict[str, Any]
    curves: dict[str, Curve]
    """Training loss of the estimation runs at the selected learning rate, by arm."""
    failed: dict[str, str]
    """The errors of arms that could not be computed, by name."""

    def show(self) -> None:
        """Print the results and their cost."""
        console = Console()
        for columns in (FOUND, self.beside(), COST):
            table = Table(*columns, box=SIMPLE_HEAD, title=self.name if columns is FOUND else None)
            for arm in self.arms:
                table.add_row(*(_row(arm)[column] for column in columns))
            console.print(table)
        console.print(self.summary(), highlight=False)
        for name, error in self.failed.items():
            console.print(f"{name} failed: {error}", highlight=False, markup=False)

    def beside(self) -> list[str]:
        """Columns for what a mean loss hides: spread, worst seed, sensitivity, probes."""
        return ["arm", "deviation", "worst seed", "sensitivity", "exact match", *self.arms[0].probes]

    def summary(self) -> str:
        """A line on the baseline, the correlation over seeds, the detectable difference and the margin."""
        return (
            f"Baseline {self.baseline}. Correlation over seeds ρ = {self.correlation:.2f}. Smallest detectable "
            f"difference {self.smallest_detectable_effect:.4f} nats (80 % power, all comparisons). Equivalent: within "
            f"{self.margin:g} nats."
        ) + (f" {self.reference[0]}: {self.reference[1]:.4f} nats." if self.reference else "")

    def markdown(self) -> str:
        """The text of report.md."""
        columns = list(dict.fromkeys(FOUND + self.beside() + COST))
        lines = [columns, ["---"] * len(columns), *([_row(arm)[c] for c in columns] for arm in self.arms)]
        rows = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        arms = "\n".join(f"- {arm.name}: {arm.changes or 'the base'}" for arm in self.arms)
        arms += "".join(f"\n- {name}: failed: {error}" for name, error in self.failed.items())
        pictures = "\n".join(f"![{name}]({name}.png)" for name in ("forest", "curves", "learning_rates"))
        details = json.dumps({"config": self.config, "data": self.data, "environment": self.environment}, indent=1)
        return f"# {self.name}\n\n{rows}\n\n{arms}\n\n{self.summary()}\n\n{pictures}\n\n```json\n{details}\n```\n"

    def to_json(self) -> dict[str, Any]:
        """The report without its curves, with null for numbers that are not finite."""
        data = asdict(replace(self, curves={}))
        del data["curves"]
        return _finite_leaves(data)

    def write(self, workdir: Path) -> None:
        """Write report.json, report.md, forest.png, curves.png and learning_rates.png."""
        write_durably(workdir / "report.json", json.dumps(self.to_json(), indent=1))
        write_durably(workdir / "report.md", self.markdown())
        figures.plot_forest(workdir / "forest.png", self.arms, self.baseline, self.margin)
        curves = plots.loss_curves(self.curves, ylabel="training loss", reference=self.reference)
        curves.savefig(workdir / "curves.png", dpi=120)
        figures.plot_learning_rates(workdir / "learning_rates.png", self.arms)


FOUND = ["arm", "loss", "difference", "p (Holm)", "verdict"]
COST = ["arm", "learning rate", "diverged", "parameters", "MFLOP/sequence", "seconds"]


def _row(arm: ArmReport) -> dict[str, str]:
    loss, difference = "–", "–"
    if arm.loss is not None:
        loss = f"{arm.loss:.4f} ± {(arm.loss_interval.high - arm.loss_interval.low) / 2:.4f}"
    if arm.difference is not None and arm.difference_interval is not None:
        low, high = arm.difference_interval
        difference = f"{arm.difference:+.4f} ± {(high - low) / 2:.4f}"
    return {
        "arm": arm.name,
        "loss": loss,
        "difference": difference,
        "p (Holm)": "–" if arm.p_corrected is None else f"{arm.p_corrected:.2g}",
        "verdict": arm.verdict,
        "learning rate": f"{arm.learning_rate:g}",
        "diverged": f"{arm.n_diverged}/{arm.n_ok + arm.n_diverged}",
        "parameters": f"{arm.parameters:,}",
        "MFLOP/sequence": f"{arm.flops / 1e6:.2f}",
        "seconds": f"{arm.seconds:.0f}",
        "deviation": _number(arm.deviation),
        "worst seed": _number(arm.worst),
        "sensitivity": _number(arm.sensitivity),
        "exact match": _number(arm.exact_match),
    } | {label: _number(value) for label, value in arm.probes.items()}


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def analyse(
    runs: Mapping[str, ArmRuns],
    *,
    name: str,
    baseline: str,
    margin: float,
    planned_effect: float,
    config: dict[str, Any],
    data: Dataset,
    failed: Mapping[str, str],
) -> Report:
    """Compare each arm with the baseline, seed by seed."""
    estimates = {arm: run.estimates for arm, run in runs.items()}
    others = [arm for arm in runs if arm != baseline]
    comparisons = {arm: compare_paired(estimates[arm], estimates[baseline]) for arm in others}
    corrected = dict(zip(others, holm([comparisons[arm].p for arm in others]), strict=True))
    correlation = pooled_correlation(np.stack(list(estimates.values())))
    effect = smallest_detectable_effect(
        estimates[baseline].size,
        comparisons=len(others),
        correlation=float(np.nan_to_num(np.clip(correlation, 0, 0.999))),
    )
    variances = [np.nanvar(x, ddof=1) for x in estimates.values() if np.isfinite(x).sum() > 1]
    spread = np.sqrt(np.mean(variances or [np.nan]))
    return Report(
        name=name,
        baseline=baseline,
        arms=[_arm_report(arm, run, comparisons.get(arm), corrected.get(arm), margin) for arm, run in runs.items()],
        correlation=correlation,
        smallest_detectable_effect=float(effect * spread),
        planned_effect=planned_effect,
        reference=reference(runs[baseline].config, data),
        margin=margin,
        config=config,
        data={"source": data.source, "fingerprint": data.fingerprint},
        environment=environment(),
        curves={arm: run.curve for arm, run in runs.items()},
        failed=dict(failed),
    )


def _arm_report(
    name: str, run: ArmRuns, compared: PairedComparison | None, p_corrected: float | None, margin: float
) -> ArmReport:
    """The row of an arm; without a comparison it is the baseline."""
    result, losses, estimates = run.result, run.losses, run.estimates
    healthy = estimates[np.isfinite(estimates)]
    said = "baseline"
    if compared is not None and p_corrected is not None:
        said = verdict(compared, p_corrected, margin)
    return ArmReport(
        name=name,
        changes=run.changes,
        n_ok=int(np.isfinite(losses).sum()),
        n_diverged=int(np.isnan(losses).sum()),
        learning_rate=run.learning_rates[run.selected],
        loss=mean(estimates),
        loss_interval=mean_interval(healthy),
        n_pairs=len(healthy) if compared is None else compared.n,
        difference=compared.difference if compared and compared.n else None,
        difference_interval=compared.interval if compared else None,
        p_corrected=p_corrected,
        verdict=said,
        parameters=result.parameters,
        flops=result.flops,
        seconds=result.seconds,
        loss_by_learning_rate=run.loss_by_learning_rate,
        sensitivity=sensitivity(losses, run.guess),
        exact_match=run.estimate(result.exact_match),
        probes={label: run.estimate(numbers) for label, numbers in result.probes.items()},
        losses=losses.tolist(),
        estimates=estimates.tolist(),
        deviation=float(healthy.std(ddof=1)) if len(healthy) > 1 else None,
        worst=float(healthy.max()) if len(healthy) else None,
    )


def _finite_leaves(value: Any) -> Any:
    """The value with None for NaN and infinity, which JSON lacks."""
    if isinstance(value, dict):
        return {k: _finite_leaves(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite_leaves(v) for v in value]
    return finite(value) if isinstance(value, float) else value
