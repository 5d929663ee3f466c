"""Pictures of runs and studies."""

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from transformer.analysis import plots
from transformer.core.files import check_place
from transformer.training.trained import TrainedRun

if TYPE_CHECKING:
    from transformer.study.report import Report


def plot_run(run: TrainedRun, reference: tuple[str, float] | None) -> None:
    """Write loss.png: training and validation losses of every replica, and the loss of the reference."""
    figure = plots.loss_curves({}, reference=reference)
    (axes,) = figure.axes
    steps_S, losses_RS = run.curve("loss")
    axes.plot(steps_S, losses_RS.T, color="C0", linewidth=0.8, alpha=0.6)
    steps_S, losses_RS = run.curve("validation_loss")
    axes.plot(steps_S, losses_RS.T, "o", color="C1", markersize=4)
    axes.set_title("training (lines), validation (dots)")
    check_place(path := run.workdir / "loss.png")
    figure.savefig(path, dpi=120)


def of_study(report: "Report") -> dict[str, Figure]:
    """All pictures of a study, by the name of their file."""
    record = report.record
    return {
        "forest": _forest(report),
        "seeds": plots.dots({arm.name: arm.estimates for arm in report.arms}, xlabel=record.metric),
        "curves": plots.loss_curves(report.curves, ylabel="training loss", reference=record.reference),
        "learning_rates": plots.learning_rate_curves(
            {arm.name: dict(zip(arm.learning_rates, arm.values, strict=True)) for arm in report.arms},
            ylabel=record.metric,
        ),
    }


def _forest(report: "Report") -> Figure:
    """The answer to every question with its interval, and the baseline against itself; the band is equivalence."""
    answers = dict(report.contrasts)
    if report.noise is not None and report.noise.compared is not None:
        answers[report.noise.name] = report.noise.compared
    return plots.forest(
        {name: (found.difference, found.interval.low, found.interval.high) for name, found in answers.items()},
        xlabel=f"{report.record.metric}, difference",
        margin=report.record.margin,
        verdicts={name: found.verdict for name, found in answers.items()},
    )
