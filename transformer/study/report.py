"""The report of a study: what its runs answer to its questions, as values, text and files."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from transformer.core.errors import ConfigError
from transformer.study import pages, plan
from transformer.study.comparison import Comparison, change
from transformer.study.record import ArmRecord, Record
from transformer.study.runs import SUMS
from transformer.study.statistics import ALPHA, UNKNOWN, Interval, unseen_share
from transformer.study.tables import tables, verdicts
from transformer.training.metrics import Curve, finite

WIDTH = 140
"""Characters in a line of text that no terminal shows."""
NAME = 16
"""Characters of a name of an arm that have to fit into a line of a table."""


@dataclass(frozen=True)
class Estimate:
    """One metric of one arm, at its learning rate."""

    value: float | None
    """Mean over the runs that did not fail; with a choice of rates, of its two readings."""
    interval: Interval
    """95 % t-interval of `value`, for this arm alone."""
    compared: Comparison | None = None
    """The arm against the baseline, in units of the metric; None for the baseline."""


@dataclass(frozen=True)
class ArmReport:
    """One row of the report."""

    name: str
    changes: str
    """The arm's changes to the base, in text form."""
    seeds: int
    learning_rate: float
    """The rate that is best over all seeds."""
    learning_rates: list[float]
    metrics: dict[str, Estimate]
    """By name; the first is the primary one."""
    failed: int
    """Failed runs at `learning_rate`, of `seeds`."""
    failed_interval: Interval
    """Exact 95 % interval of the probability to fail at `learning_rate`."""
    failed_anywhere: tuple[int, int]
    """Failed runs at all rates, and all runs."""
    by_metric: dict[str, list[list[float]]]
    """(learning rates, seeds) of each metric, the primary one first; NaN for a failed run, or an undefined value."""
    estimates: list[float]
    """(seeds,) of the primary metric at the learning rate; NaN for a failed run, or where it is not defined."""
    deviation: float | None
    """Standard deviation over the seeds that did not fail."""
    worst: float | None
    """The worst of the estimates."""
    split_error: float | None
    """Standard error of the difference of losses to the baseline over batches of the held-out part, seeds averaged."""
    parameters: int
    flops: float
    seconds: float
    cells: list[str]
    """The folders below `cells` in which its runs were trained."""
    signals: dict[str, float | None]
    doubts: list[str]
    """What a reader should know before believing the row."""

    @property
    def primary(self) -> Estimate:
        """The estimate that verdicts are made of."""
        return next(iter(self.metrics.values()))

    @property
    def values(self) -> list[list[float]]:
        """(learning rates, seeds) of the primary metric; NaN for a failed run, or where it is not defined."""
        return next(iter(self.by_metric.values()))

    @property
    def compared(self) -> Comparison | None:
        """The arm against the baseline by the primary metric."""
        return self.primary.compared

    @property
    def verdict(self) -> str:
        """The word for it; `–` for the baseline, and where the study asks other questions."""
        return self.compared.verdict if self.compared else "–"


@dataclass(frozen=True, repr=False)
class Report:
    """The results of a study; `show()` prints them, `write()` puts them in a folder."""

    record: Record
    arms: list[ArmReport]
    noise: ArmReport | None
    """The baseline under other seeds, against itself: what no difference looks like."""
    contrasts: dict[str, Comparison]
    """The answers to all questions, by name."""
    correlation: float | None
    """Mean correlation over seeds between the arms: the higher, the more pairing helps; None where undefined."""
    curves: dict[str, Curve]
    """Training loss at the chosen learning rate, by arm."""

    @property
    def name(self) -> str:
        """Title of the study."""
        return self.record.name

    @property
    def baseline(self) -> str:
        """Name of the arm that others are compared with."""
        return self.record.baseline

    @property
    def failed(self) -> dict[str, str]:
        """Errors of the arms that could not be computed."""
        return self.record.failed

    def __repr__(self) -> str:
        verdicts = "; ".join(f"{name} {compared.verdict}" for name, compared in self.contrasts.items())
        return f"Report({self.name!r}: {verdicts or 'no question is answered'}; show() prints it)"

    def _repr_html_(self) -> str:
        """The table of verdicts, as a notebook shows it."""
        return pages.table(*verdicts(self))

    def unresolved(self) -> list[str]:
        """The questions whose verdict is open."""
        return [name for name, found in self.contrasts.items() if found.verdict == "unresolved"]

    def show(self) -> None:
        """Print the results, their cost, what the arms are, and what to know before believing them."""
        console = Console()
        if not console.is_terminal:
            console.width = max(console.width, WIDTH)
        for title, columns, rows in tables(self):
            table = Table(box=SIMPLE_HEAD, title=escape(title), pad_edge=False, padding=(0, 1, 0, 0))
            widths = [max(map(len, column)) + 1 for column in zip(columns, *rows, strict=True)]
            whole = console.width - sum(widths[1:]) >= min(widths[0], NAME)  # or cells would be cut
            for number, column in enumerate(columns):
                table.add_column(escape(column), no_wrap=whole and number > 0, overflow="fold")
            for row in rows:
                table.add_row(*map(escape, row))
            console.print(table)
        arms = [f"{arm.name}: {arm.changes or 'the base'}" for arm in self.arms]
        for line in [*arms, *self.summary(), *self.warnings()]:
            console.print(line, highlight=False, markup=False)

    def summary(self) -> list[str]:
        """What the numbers are, in a few lines."""
        record, k = self.record, self.record.comparisons
        plans = [record.plan, *record.plan.get("pooled", [])]
        level = f"{ALPHA:g}" if len(record.looks) == 1 else f"{ALPHA:g} over {len(record.looks)} looks at the results"
        together = "" if self.correlation is None else f" Correlation over seeds ρ = {self.correlation:.2f}."
        lines = [
            *([f"Question: {record.question}"] if record.question else []),
            f"Baseline {record.baseline}; {k} comparison{'s' * (k != 1)}, whose intervals hold together and whose p "
            f"are corrected (error {level}). Equivalent: within {record.margin:g}.{together}",
            *(f"{name}: {_weighted(weights)}." for name, weights in record.contrasts.items()),
            *([f"The seeds of {len(plans)} studies are pooled."] if len(plans) > 1 else []),
            *map(plan.said, plans),
        ]
        seeds = max(arm.seeds for arm in self.arms)
        lines.append(
            f"With {seeds} seeds, a kind of run that is rarer than {unseen_share(seeds):.0%} may not be among them."
        )
        if any(len(arm.learning_rates) > 1 for arm in self.arms):
            lines.append(self._chosen_by)
        if record.reference:
            lines.append(f"Loss of {record.reference[0]}: {record.reference[1]:.4f}.")
        return lines

    @property
    def _chosen_by(self) -> str:
        """What learning rates are chosen by: probes are measured on one part, so their numbers choose and are shown."""
        record = self.record
        if record.chooses not in SUMS:
            return f"Learning rates are chosen by {record.chooses}."
        if not record.halves:
            return (
                f"Learning rates are chosen by {record.chooses}, on the batches that are shown: the held-out part has "
                "too few to be cut in two, or is not the same for all arms."
            )
        if record.chooses != record.metric:
            return f"Learning rates are chosen by {record.chooses}, on the even batches of the held-out part."
        return "Learning rates are chosen on the even batches of the held-out part; the odd ones are shown."

    def warnings(self) -> list[str]:
        """What should be known before a verdict is believed."""
        said = [f"{name} failed: {error}" for name, error in self.failed.items()]
        metric = self.record.metric
        unanswered = (self.record.contrasts or self.record.questions).keys() - self.contrasts.keys()
        said += [f"{name}: not answered, because an arm of it failed or has no {metric}" for name in sorted(unanswered)]
        if all(arm.failed_anywhere[0] == arm.failed_anywhere[1] for arm in self.arms):
            said.append("every run of every arm failed: nothing is compared")
        if len(same := {value for arm in self.arms for row in arm.values for value in row}) == 1:
            said.append(
                f"all runs of all arms have {metric} {same.pop():g}, which tells none from another: take the loss, "
                "other steps or another task"
            )
        answers = self.contrasts.items()
        for name, answer in answers:
            doubt = _of_few(answer) or _of_ranks(answer) or _of_failures(answer)
            said += [f"{name}: {doubt}"] if doubt else []
        doubts: dict[str, list[str]] = {}
        for arm in self.arms:
            for doubt in arm.doubts:
                doubts.setdefault(doubt, []).append(arm.name)
        return said + [f"{'; '.join(names)}: {doubt}" for doubt, names in doubts.items()]

    def beside(self, other: "Report") -> list[dict[str, Any]]:
        """The questions that both studies ask of arms of one name, such as on two texts: both answers, and their gap.

        A dict for each question, for `pandas.DataFrame`: `question`, `here` and `there` (the differences), their
        verdicts, and `change` from there to here with the ends of its interval, which hold together.

        Raises:
          ConfigError: they are judged by different metrics, or some of their runs are the same, whose differences are
            not independent.
        """
        if self.record.metric != other.record.metric:
            metrics = f"{self.record.metric} and {other.record.metric}"
            raise ConfigError(f"beside: {self.name} and {other.name} are judged by {metrics}, which have no difference")
        asked, again = self.record.questions, other.record.questions
        both = [name for name in self.contrasts if name in other.contrasts and asked[name] == again[name]]
        for arm in dict.fromkeys(arm for name in both for arm in asked[name]):
            own, others = (_files(record.arms[arm]) for record in (self.record, other.record))
            if own & others:
                raise ConfigError(f"beside: {self.name} and {other.name} share {len(own & others)} runs of arm {arm}")
        rows = []
        for name in both:
            here, there = self.contrasts[name], other.contrasts[name]
            gap, (low, high) = change(here, there, len(both))
            rows.append(
                {
                    "question": name,
                    "here": here.difference,
                    "verdict here": here.verdict,
                    "there": there.difference,
                    "verdict there": there.verdict,
                    "change": gap,
                    "low": low,
                    "high": high,
                }
            )
        return rows

    def markdown(self) -> str:
        """The text of report.md."""
        return pages.markdown(self)

    def html(self) -> str:
        """The text of report.html, which needs no other file and no network."""
        return pages.html(self)

    def frame(self) -> Any:
        """A pandas DataFrame with a row for each run: arm, learning rate, seed, metrics.

        Raises:
          ConfigError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise ConfigError("frame: needs the library pandas: pip install pandas") from None
        return pandas.DataFrame(self.rows())

    def rows(self) -> list[dict[str, Any]]:
        """A dict for each run at every learning rate, for tables of others."""
        return [
            {
                "arm": arm.name,
                "learning_rate": rate,
                "seed": seed,
                **{metric: values[i][j] for metric, values in arm.by_metric.items()},
                "chosen": rate == arm.learning_rate,
            }
            for arm in self.arms
            for i, rate in enumerate(arm.learning_rates)
            for j, seed in enumerate(self.record.arms[arm.name].seeds)
        ]

    def to_json(self) -> dict[str, Any]:
        """The report without its curves, with null for numbers that are not finite."""
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "curves"}
        arms = [asdict(arm) | {"values": arm.values} for arm in self.arms]
        return _finite_leaves({**data, "arms": arms, "warnings": self.warnings(), "summary": self.summary()})

    def write(self, workdir: Path) -> None:
        """Write report.json, .md, .html, .csv, .tex and the pictures."""
        pages.write(self, workdir)


Unresolved = Callable[[Report], Sequence[str]]
"""The names of the questions of a report that are open."""


def _files(arm: ArmRecord) -> set[str]:
    """The names of the runs of an arm, which tell them apart in any folder."""
    return {Path(name).name for row in arm.files for name in row}


def _weighted(weights: Mapping[str, float]) -> str:
    """A question as a sum of arms: [a] − 0.5 × [b] − 0.5 × [c]."""
    words = []
    for arm, weight in sorted(weights.items(), key=lambda each: each[1] < 0):
        factor = "" if abs(weight) == 1 else f"{abs(weight):.3g} × "
        words.append(f"{'− ' if weight < 0 else '+ ' if words else ''}{factor}[{arm}]")
    return " ".join(words)


def _finite_leaves(value: Any) -> Any:
    """The value as JSON data, with None for NaN and infinity, which JSON lacks."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {k: _finite_leaves(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite_leaves(v) for v in value]
    return finite(value) if isinstance(value, float) else value


def _of_few(answer: Comparison) -> str:
    """Why an answer has no interval; nothing where it has one."""
    if answer.deviation is not None or answer.interval != UNKNOWN:
        return ""
    how = " of signed ranks, which judge failed runs and equal differences" if answer.n > 1 else ""
    return f"n = {answer.n} is too few for an interval{how}"


def _of_failures(answer: Comparison) -> str:
    """What the interval says against the shares of failures; nothing where they say no opposite things."""
    low, high = answer.interval
    if answer.verdict != "unresolved" or low <= 0 <= high:
        return ""
    fails, is_then = ("less", "worse") if low > 0 else ("more", "better")
    return f"it fails {fails} often (p = {answer.p_failures:.2g}), but by its interval it is {is_then}"


def _of_ranks(answer: Comparison) -> str:
    """What signed ranks say against a sign that means tell; nothing where they tell it too."""
    low, high = answer.by_ranks
    if answer.verdict not in ("better", "worse") or low > 0 or high < 0:
        return ""
    ranks = f"those of {answer.n} seeds tell none at this level" if answer.by_ranks == UNKNOWN else ""
    return f"its sign is told by means, not by signed ranks: {ranks or f'by them it is in [{low:+.4f}, {high:+.4f}]'}"
