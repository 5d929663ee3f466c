"""Effects beside those of their papers in two units that do not depend on tokens: shares of the loss, and speed."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.answers import Effect
from experiments.evidence_bases import gains, speed
from transformer.study.report import Report

WORDS = """
## How large

A loss of subwords is larger than one of characters, and so are its differences. What has no such unit: the difference
as a share of the loss, and as a factor of speed, how many times as many steps the model without the change needs for
the loss of the one with it. Ours are of the answers that are counted. A factor is read off what a base gains between
500 and 2,000 steps, as if each such factor gained the same; later ones gain less, so that it is rather too near
to 1, on either side. Those of papers are theirs for steps, tokens, operations or minutes, and often their best case.
Listed is what has such a number in its source: {counts}.

![effects here and in their papers](evidence/sizes.png)
""".strip()
LOSS, SPEED = "% of the loss", "times as fast"
FORMS = {LOSS: "{:+.1f}", SPEED: "{:.2f}"}
NEUTRAL = {LOSS: 0.0, SPEED: 1.0}
"""What says that nothing changes."""
COLOURS = {"plain": "C0", "modern": "C1"}
"""Of the bases."""


class Size(NamedTuple):
    """One effect in one unit: by its paper, and here with the interval of its study."""

    name: str
    base: str
    published: float
    low: float
    ours: float
    high: float


def sizes(asked: Sequence[Effect], unit: str) -> Iterator[Size]:
    """Of all questions about a base whose claim has a number in the unit."""
    worth = gains(asked)
    for effect in asked:
        claim, report = effect.latest.claim, effect.counted.report
        for base in (base for base in COLOURS if base in effect.counted.findings):
            interval, difference = report.contrasts[base].interval, report.contrasts[base].difference
            numbers = (interval.low, difference, interval.high)
            if unit == LOSS and claim.losses:
                with_it, without = claim.losses
                scale = 100 / _loss_without(report, report.record.questions[base])
                yield Size(claim.name, base, 100 * (with_it / without - 1), *(scale * number for number in numbers))
            if unit == SPEED and claim.speed and base in worth:
                yield Size(claim.name, base, claim.speed, *sorted(speed(-number, worth[base]) for number in numbers))


def _loss_without(report: Report, weights: Mapping[str, float]) -> float:
    """The loss of the second arm of a question."""
    (without,) = (name for name, weight in weights.items() if weight < 0)
    (value,) = (arm.metrics["loss"].value for arm in report.arms if arm.name == without)
    assert value is not None
    return value


def section(asked: Sequence[Effect]) -> list[str]:
    """The part of the page of evidence; nothing where no answer has a number in its paper."""
    counts, rows = [], [["effect", "unit", "paper", *COLOURS], ["---"] * (3 + len(COLOURS))]
    for unit, form in FORMS.items():
        found = list(sizes(asked, unit))
        same_sign = sum((each.published > NEUTRAL[unit]) == (each.ours > NEUTRAL[unit]) for each in found)
        within = sum(each.low <= each.published <= each.high for each in found)
        counts.append(
            f"{unit} for {len(found)} questions, {same_sign} with the paper's sign and {within} with its number within "
            "our interval"
        )
        for name, group in itertools.groupby(found, lambda each: each.name):
            own = {each.base: each for each in group}
            published = form.format(next(iter(own.values())).published)
            here = {base: "{} [{}, {}]".format(*map(form.format, (e.ours, e.low, e.high))) for base, e in own.items()}
            rows.append([f"[{name}](evidence/{name}.md)", unit, published, *(here.get(base, "") for base in COLOURS)])
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return [WORDS.format(counts="; ".join(counts)), table] if rows[2:] else []


def picture(asked: Sequence[Effect]) -> Figure:
    """Ours against the paper's, a panel for each unit; on the dotted line they are the same."""
    figure, axes = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    for own, (unit, neutral) in zip(axes, NEUTRAL.items(), strict=True):
        for each in sizes(asked, unit):
            _point(own, each)
        own.axhline(neutral, color="0.8", linewidth=1)
        own.axvline(neutral, color="0.8", linewidth=1)
        own.axline((neutral, neutral), slope=1, color="0.6", linewidth=1, linestyle=":")
        own.set(xlabel="in the paper", ylabel="here", title=unit)
    axes[0].set_xscale("symlog", linthresh=1.0)
    axes[0].set_yscale("symlog", linthresh=1.0)
    for base, colour in COLOURS.items():
        axes[1].plot([], [], "o", color=colour, label=base)
    axes[1].legend(loc="upper left")
    return figure


def _point(axes: Axes, each: Size) -> None:
    colour, name = COLOURS[each.base], each.name.removesuffix("_2000")
    axes.plot([each.published] * 2, [each.low, each.high], color=colour, linewidth=1, alpha=0.5)
    axes.plot(each.published, each.ours, "o", color=colour, markersize=4)
    if each.base == "plain":
        axes.annotate(name, (each.published, each.ours), (4, 3), textcoords="offset points", fontsize=7, color="0.3")
