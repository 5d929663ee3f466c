"""The tables of a report, as text: verdicts, what a mean hides, other metrics, and the cost."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from transformer.study.comparison import Comparison

if TYPE_CHECKING:
    from transformer.study.report import ArmReport, Estimate, Report

COLUMNS = {
    "difference": "to the baseline, or the answer of a question, with its interval",
    "p": "two-sided, corrected for all comparisons of the table; of equal shares of failures where these decide",
    "n": "seeds, or pairs of them",
    "failed": "runs at the chosen learning rate that were not finite or ended above the bound",
    "detectable": "the difference that so many pairs detect with a probability of 80 % where each arm has one rate",
    "fails [95 %]": "failed runs with the exact interval of their share",
    "deviation": "of the runs over seeds",
    "split error": "standard error of the difference of losses over batches of the held-out part, seeds averaged",
    "at all rates": "failed runs of all learning rates",
    "sensitivity": "the mean loss over all learning rates less that at the one that was chosen",
    "exact_match": "share of sequences whose every label is right",
    "wall seconds": "of the processes that trained the runs, whatever else the machine did",
}
"""What columns of the tables mean."""


def tables(report: "Report") -> list[tuple[str, list[str], list[list[str]]]]:
    """Titles, columns and rows: the verdicts, what a mean hides, other metrics, and the cost."""
    arms = [*report.arms, *([report.noise] if report.noise else [])]
    names = list(report.arms[0].metrics)[1:]
    others = [name for name in names if _says(name, [arm.metrics[name].value for arm in report.arms])]
    beside = [[arm.name, *(_beside(arm.metrics[name]) for name in others)] for arm in arms]
    cost = [[a.name, f"{a.parameters:,}", f"{a.flops / 1e6:.2f}", f"{a.seconds:.0f}"] for a in arms]
    spread = ["arm", "fails [95 %]", "deviation", "worst seed", "split error", "learning rate", "at all rates"]
    return [
        verdicts(report),
        ("what a mean hides", spread, [_spread(arm) for arm in arms]),
        ("other metrics [difference]", ["arm", *others], beside),
        ("cost", ["arm", "parameters", "MFLOP/sequence", "wall seconds"], cost),
    ]


def _says(name: str, found: Sequence[float | None]) -> bool:
    """Whether a metric is defined; shares of right answers that are all 0 are left out, as of data without any."""
    return any(found) if name in ("accuracy", "exact_match") else any(value is not None for value in found)


def verdicts(report: "Report") -> tuple[str, list[str], list[list[str]]]:
    """Title, columns and rows of the table of verdicts: arms against the baseline, or the questions of the study."""
    columns = ["arm", report.record.metric, "difference", "p", "verdict", "n", "failed", "detectable"]
    words = {report.baseline: "baseline"}
    rows = [
        _verdict_row(arm.name, _interval(arm.primary), arm.compared, arm, words.get(arm.name, "not defined"))
        for arm in [*report.arms, *([report.noise] if report.noise else [])]
    ]
    if report.record.contrasts:
        count = len(report.arms)
        rows[:count] = [[*row[:2], "", "", "", *row[5:7], ""] for row in rows[:count]]
        rows += [_verdict_row(name, "", compared, None) for name, compared in report.contrasts.items()]
    return report.name, columns, rows


def legend(report: "Report") -> list[str]:
    """What the columns of the tables mean."""
    names = dict.fromkeys(name for _, columns, _ in tables(report) for name in columns if name in COLUMNS)
    return ["±: half of a 95 % interval of that arm alone", *(f"{name}: {COLUMNS[name]}" for name in names)]


def _spread(arm: "ArmReport") -> list[str]:
    return [
        arm.name,
        f"{arm.failed} of {arm.seeds} [{arm.failed_interval.low:.0%}, {arm.failed_interval.high:.0%}]",
        *map(_number, (arm.deviation, arm.worst, arm.split_error)),
        f"{arm.learning_rate:g}",
        f"{arm.failed_anywhere[0]} of {arm.failed_anywhere[1]} fail",
    ]


def _verdict_row(
    name: str, value: str, compared: Comparison | None, arm: "ArmReport | None", otherwise: str = ""
) -> list[str]:
    failed = "" if arm is None else str(arm.failed)
    if compared is None:
        return [name, value, "–", "–", otherwise, str(arm.seeds) if arm else "", failed, "–"]
    difference = f"{signed(compared.difference)} [{signed(compared.interval.low)}, {signed(compared.interval.high)}]"
    detectable = "–" if np.isinf(compared.detectable) else f"{compared.detectable:.4f}"
    word = "the same in all runs" if compared.same else compared.verdict
    p = min(1.0, 2 * compared.p_failures) if word.startswith("fails") else compared.p
    return [name, value, difference, f"{p:.2g}", word, str(compared.n), failed, detectable]


def _interval(estimate: "Estimate") -> str:
    return "–" if estimate.value is None else f"{estimate.value:.4f} ± {estimate.interval.half:.4f}"


def _beside(estimate: "Estimate") -> str:
    """A metric and, against the baseline, the interval of its difference."""
    if estimate.value is None:
        return "–"
    if estimate.compared is None:
        return f"{estimate.value:.4f}"
    low, high = estimate.compared.interval
    return f"{estimate.value:.4f} [{signed(low)}, {signed(high)}]"


def signed(number: float, digits: int = 4) -> str:
    """A number with its sign, and 0 with a plus."""
    if np.isnan(number):
        return "–"
    if np.isinf(number):
        return "+∞" if number > 0 else "−∞"
    return f"{round(number, digits) + 0.0:+.{digits}f}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
