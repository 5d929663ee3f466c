"""The picture of all answers, in units of the margin."""

import itertools
from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.answers import Answer, Effect, effects

COLOURS = {
    "reproduced": "C2",
    "smaller": "C8",
    "opposite": "C3",
    "different": "C1",
    "not at this scale": "C0",
    "unresolved": "0.4",
}
"""Of the verdicts, in the picture."""


def forest(found: Sequence[Answer]) -> Figure:
    """All answers in units of the margin, what is better to the right, in two columns."""
    lines = []
    for family, own in itertools.groupby(effects(found), lambda effect: effect.first.claim.family):
        lines.append(family)
        lines += [(effect, question) for effect in own for question in effect.first.findings]
    half = -(-len(lines) // 2)
    columns = [lines[:half], lines[half:]] if len(lines) > 2 else [lines]
    size = (6 * len(columns), 1 + 0.19 * half)
    figure, axes = plt.subplots(1, len(columns), figsize=size, layout="constrained", sharex=True, squeeze=False)
    for own, part in zip(axes[0], columns, strict=True):
        _column(own, part, half)
    for finding, colour in COLOURS.items():
        axes[0, -1].plot([], [], "o", color=colour, label=finding)
    figure.legend(loc="outside lower center", ncols=len(COLOURS), fontsize=8)
    return figure


def _column(axes: Axes, lines: Sequence[str | tuple[Effect, str]], height: int) -> None:
    """Families and their questions from the top down, on a scale that is linear within the margin."""
    axes.axvspan(-1, 1, color="0.92")
    axes.axvline(0, color="0.5", linewidth=1)
    labels = []
    for y, line in enumerate(lines):
        if isinstance(line, str):
            labels.append(line.capitalize())
            continue
        effect, question = line
        labels.append(f"{effect.first.claim.name}, {question}")
        for each in (effect.first, effect.latest, effect.counted):
            _interval(axes, each, question, y, counted=each is effect.counted, fresh=each is effect.latest.fresh)
    axes.set_xscale("symlog", linthresh=1.0)
    axes.set_yticks(range(len(lines)), labels, fontsize=7)
    for line, label in zip(lines, axes.get_yticklabels(), strict=True):
        label.set_fontweight("bold" if isinstance(line, str) else "normal")
    axes.tick_params(axis="y", length=0)
    axes.set(xlabel="difference in units of the margin; better is to the right", ylim=(height - 0.3, -0.7))


def _interval(axes: Axes, each: Answer, question: str, y: float, *, counted: bool, fresh: bool) -> None:
    """An answer with its interval: pale where it is not counted, a full circle where it is that of fresh seeds."""
    answer, record = each.report.contrasts[question], each.report.record
    sign = 1 if record.higher_is_better[record.metric] else -1
    numbers = np.array([answer.interval.low, answer.difference, answer.interval.high]) * sign / record.margin
    low, middle, high = np.clip(np.sort(numbers) if np.isfinite(numbers).all() else numbers, -1e3, 1e3)
    colour, alpha = COLOURS[each.findings[question]], 1.0 if counted else 0.2
    axes.plot([low, high], [y, y], color=colour, linewidth=1.5, alpha=alpha)
    if counted:
        axes.plot(middle, y, "o", color=colour, markersize=4, markerfacecolor=colour if fresh else "white")
