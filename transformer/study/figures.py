"""Pictures of runs and studies, as PNG."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt

matplotlib.use("Agg")

Curves = dict[int, list[tuple[int, float]]]
"""(step, value) by replica."""


def read_curves(workdir: Path, name: str) -> Curves:
    """One quantity of metrics.jsonl by replica; steps at which it was not finite are left out."""
    curves: Curves = defaultdict(list)
    with (workdir / "metrics.jsonl").open(encoding="utf-8") as file:
        for line in map(json.loads, file):
            if line.get(name) is not None:
                curves[line["replica"]].append((line["step"], line[name]))
    return curves


def plot_run(workdir: Path, result: dict[str, Any]) -> None:
    """loss.png: training loss of every replica, its validation losses, and that of the reference."""
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for curve in read_curves(workdir, "loss").values():
        axes.plot(*zip(*curve, strict=True), color="C0", linewidth=0.8, alpha=0.6)
    for curve in read_curves(workdir, "validation_loss").values():
        axes.plot(*zip(*curve, strict=True), "o", color="C1", markersize=4)
    _draw_reference(axes, result["reference"])
    axes.set(xlabel="step", ylabel="loss", title="training (lines), validation (dots)")
    figure.savefig(workdir / "loss.png", dpi=120)
    plt.close(figure)


def _draw_reference(axes, reference: Sequence[Any] | None) -> None:
    """A dashed line at the validation loss of a simple model."""
    if reference is not None:
        name, loss = reference
        axes.axhline(loss, color="grey", linestyle="--", linewidth=1, label=f"{name} (validation)")
        axes.legend()


def plot_forest(path: Path, arms: Sequence[Any], baseline: str, margin: float) -> None:
    """The paired difference of each arm to the baseline with its 95 % interval; the band is equivalence."""
    compared = [arm for arm in arms if arm.difference is not None]
    figure, axes = plt.subplots(figsize=(7, 1.2 + 0.45 * len(compared)), layout="constrained")
    axes.axvspan(-margin, margin, color="0.9")
    axes.axvline(0, color="0.5", linewidth=1)
    for y, arm in enumerate(reversed(compared)):
        pairs = arm.difference - arm.difference_interval.low, arm.difference_interval.high - arm.difference
        axes.errorbar(arm.difference, y, xerr=[[pairs[0]], [pairs[1]]], fmt="o", color=COLORS[arm.verdict], capsize=3)
    axes.set_yticks(range(len(compared)), [f"{arm.name}: {arm.verdict}" for arm in reversed(compared)])
    axes.set(xlabel=f"validation loss minus that of {baseline}", ylim=(-0.6, len(compared) - 0.4))
    figure.savefig(path, dpi=120)
    plt.close(figure)


COLORS = {"better": "C2", "worse": "C3", "equivalent": "C0", "unresolved": "0.4"}


def plot_curves(
    path: Path, curves: Mapping[str, Curves], reference: tuple[str, float] | None, quantity: str = "training loss"
) -> None:
    """One quantity of each arm: the mean of its runs, and the band between the lowest and the highest."""
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for i, (name, runs) in enumerate(curves.items()):
        whole = [dict(run) for run in runs.values()]
        steps = sorted(set.intersection(*map(set, whole))) if whole else []
        values = [[run[step] for run in whole] for step in steps]
        if values:
            axes.plot(steps, [sum(v) / len(v) for v in values], color=f"C{i}", label=name, linewidth=1.2)
            axes.fill_between(
                steps, [min(v) for v in values], [max(v) for v in values], color=f"C{i}", alpha=0.2, linewidth=0
            )
    _draw_reference(axes, reference)
    axes.set(xlabel="step", ylabel=quantity)
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def plot_learning_rates(path: Path, arms: Sequence[Any]) -> None:
    """Mean validation loss of each arm against the learning rate; a learning rate that always diverged has no point."""
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for arm in arms:
        points = [(float(rate), loss) for rate, loss in arm.loss_by_learning_rate.items() if loss is not None]
        axes.plot(*zip(*points, strict=True), "o-", label=arm.name) if points else None
    axes.set(xlabel="peak learning rate", ylabel="validation loss", xscale="log")
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
