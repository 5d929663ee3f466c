"""Pictures of runs and studies, as PNG."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transformer.analysis import plots

Curves = dict[int, list[tuple[int, float]]]
"""Pairs (step, value) by replica."""


def read_curves(workdir: Path, name: str) -> Curves:
    """One quantity of metrics.jsonl by replica, without steps at which it was not finite."""
    curves: Curves = defaultdict(list)
    with (workdir / "metrics.jsonl").open(encoding="utf-8") as file:
        for line in map(json.loads, file):
            if line.get(name) is not None:
                curves[line["replica"]].append((line["step"], line[name]))
    return curves


def plot_run(workdir: Path, result: dict[str, Any]) -> None:
    """Write loss.png: training and validation losses of every replica, and the loss of the reference."""
    figure = plots.loss_curves({}, reference=result["reference"])
    (axes,) = figure.axes
    for curve in read_curves(workdir, "loss").values():
        axes.plot(*zip(*curve, strict=True), color="C0", linewidth=0.8, alpha=0.6)
    for curve in read_curves(workdir, "validation_loss").values():
        axes.plot(*zip(*curve, strict=True), "o", color="C1", markersize=4)
    axes.set_title("training (lines), validation (dots)")
    figure.savefig(workdir / "loss.png", dpi=120)


def plot_forest(path: Path, arms: Sequence[Any], baseline: str, margin: float) -> None:
    """Plot the paired difference of each arm to the baseline with its 95 % interval; the band is equivalence."""
    compared = [arm for arm in arms if arm.difference is not None]
    estimates = {arm.name: (arm.difference, *arm.difference_interval) for arm in compared}
    verdicts = {arm.name: arm.verdict for arm in compared}
    xlabel = f"validation loss minus that of {baseline}"
    plots.forest(estimates, xlabel=xlabel, margin=margin, verdicts=verdicts).savefig(path, dpi=120)


def plot_curves(
    path: Path, curves: Mapping[str, Curves], reference: tuple[str, float] | None, quantity: str = "training loss"
) -> None:
    """Plot one quantity of each arm: the mean of its runs, and the band between the lowest and the highest."""
    drawn = {name: _array(runs) for name, runs in curves.items()}
    plots.loss_curves(drawn, ylabel=quantity, reference=reference).savefig(path, dpi=120)


def _array(runs: Curves) -> tuple[list[int], np.ndarray]:
    """(steps that any run has, values (R, S)), NaN where a run has no value."""
    whole = [dict(run) for run in runs.values()]
    steps = sorted({step for run in whole for step in run})
    return steps, np.array([[run.get(step, np.nan) for step in steps] for run in whole])


def plot_learning_rates(path: Path, arms: Sequence[Any]) -> None:
    """Plot the mean validation loss of each arm against the learning rate, without rates that always diverged."""
    losses = {
        arm.name: {float(rate): [np.nan if loss is None else loss] for rate, loss in arm.loss_by_learning_rate.items()}
        for arm in arms
    }
    plots.learning_rate_curves(losses).savefig(path, dpi=120)
