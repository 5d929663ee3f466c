"""Pictures of runs and studies, as PNG."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transformer.analysis import plots
from transformer.training.trained import TrainedRun


def plot_run(run: TrainedRun, reference: tuple[str, float] | None) -> None:
    """Write loss.png: training and validation losses of every replica, and the loss of the reference."""
    figure = plots.loss_curves({}, reference=reference)
    (axes,) = figure.axes
    steps_S, losses_RS = run.curve("loss")
    axes.plot(steps_S, losses_RS.T, color="C0", linewidth=0.8, alpha=0.6)
    steps_S, losses_RS = run.curve("validation_loss")
    axes.plot(steps_S, losses_RS.T, "o", color="C1", markersize=4)
    axes.set_title("training (lines), validation (dots)")
    figure.savefig(run.workdir / "loss.png", dpi=120)


def plot_forest(path: Path, arms: Sequence[Any], baseline: str, margin: float) -> None:
    """Plot the paired difference of each arm to the baseline with its 95 % interval; the band is equivalence."""
    compared = [arm for arm in arms if arm.difference is not None]
    estimates = {arm.name: (arm.difference, *arm.difference_interval) for arm in compared}
    verdicts = {arm.name: arm.verdict for arm in compared}
    xlabel = f"validation loss minus that of {baseline}"
    plots.forest(estimates, xlabel=xlabel, margin=margin, verdicts=verdicts).savefig(path, dpi=120)


def plot_learning_rates(path: Path, arms: Sequence[Any]) -> None:
    """Plot the mean validation loss of each arm against the learning rate, without rates that always diverged."""
    losses = {
        arm.name: {float(rate): [np.nan if loss is None else loss] for rate, loss in arm.loss_by_learning_rate.items()}
        for arm in arms
    }
    plots.learning_rate_curves(losses).savefig(path, dpi=120)
