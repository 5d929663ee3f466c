"""From the record and the runs of a study to its report."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from transformer.core.errors import ConfigError
from transformer.core.files import Damaged
from transformer.study.comparison import Comparison, Scores, compare
from transformer.study.record import NOISE, ArmRecord, Record, noise_name, pooled, read_record, read_runs
from transformer.study.report import ArmReport, Estimate, Report
from transformer.study.runs import Run, read_run
from transformer.study.statistics import (
    ABNORMAL,
    ALPHA,
    Interval,
    mean_correlation,
    mean_interval,
    normality_p,
    share_interval,
)
from transformer.study.tuning import Tuning
from transformer.training.metrics import Curve

FEW = 6
"""Seeds below which normal theory has nothing to stand on."""
BATCHES_TO_HALVE = 4
"""Batches of the held-out part from which on it can be cut in two."""
EVEN, ODD, ALL = slice(0, None, 2), slice(1, None, 2), slice(None)
"""Batches of the held-out part."""
SENSITIVITY = "sensitivity"
"""The metric that is made of losses at all learning rates."""


@dataclass(frozen=True)
class _Runs:
    """The runs of an arm, and what they say by metric."""

    arm: ArmRecord
    record: Record
    runs: list[list[Run]]

    def values(self, name: str, batches: slice = ALL) -> np.ndarray:
        """(learning rates, seeds) of a metric; NaN for a failed run, or where a probe is not defined."""
        return np.array(
            [[np.nan if self.fails(run) else run.metric(name, batches) for run in row] for row in self.runs]
        )

    def defines(self, name: str) -> bool:
        """Whether the arm has a metric at all, unless all of its runs failed."""
        if name == SENSITIVITY:
            return True
        all_failed = not np.isfinite(self.values("loss")).any()
        return all_failed or bool(np.isfinite(self.values(name)).any())

    def fails(self, run: Run) -> bool:
        """Whether a run is not finite, or ends above the bound of the study."""
        limit = np.inf if self.record.fails_above is None else self.record.fails_above
        return not run.metric("loss") <= limit

    @cached_property
    def failed(self) -> np.ndarray:
        """(learning rates, seeds) whether each run has failed."""
        return np.array([[self.fails(run) for run in row] for row in self.runs])

    def costs(self, name: str, batches: slice = ALL) -> np.ndarray:
        """`values` as costs: with the other sign where higher is better, infinite for a failed run, and NaN for one in
        which a probe is not defined."""
        return np.where(self.failed, np.inf, _sign(self.record, name) * self.values(name, batches))

    @property
    def shown(self) -> slice:
        """The batches that are reported: of every arm the same, though some have no rate to choose."""
        tuned = any(len(arm.learning_rates) > 1 for arm in self.record.arms.values())
        return ODD if self.record.halves and tuned else ALL

    @cached_property
    def tuning(self) -> Tuning:
        """The choice of the learning rate."""
        metric = self.record.chooses
        chosen_on = EVEN if self.shown == ODD else ALL
        give_up = {"loss": self.arm.guess, "accuracy": 0.0, "exact_match": 0.0}.get(metric, -np.inf)
        rates = self.arm.learning_rates
        return Tuning(rates, self.costs(metric, chosen_on), self.costs(metric, self.shown), give_up)

    def scores(self, name: str, count: int) -> Scores:
        """The costs by a metric of the first `count` seeds, at the rates they choose."""
        if name == SENSITIVITY:
            return self._sensitivity(count)
        tuning = self.tuning.first(count)
        costs = self.costs(name, self.shown)[:, :count]
        return dataclasses.replace(tuning, costs_RS=costs).scores

    def _sensitivity(self, count: int) -> Scores:
        """The mean loss over all rates less that at the chosen one, a failed or hopeless run counting as a guess.

        Where there is no guess, it counts as the worst run that has not failed. Infinite where all runs at the chosen
        rate failed.
        """
        tuning, losses = self.tuning.first(count), self.costs("loss", self.shown)[:, :count]
        worst = losses[np.isfinite(losses)].max(initial=-np.inf)
        limit = self.arm.guess if np.isfinite(self.arm.guess) else worst
        if not (np.isfinite(limit) and np.isfinite(losses[tuning.chosen]).any()):
            return Scores(np.full(count, np.inf), np.full(count, np.inf))
        capped = np.minimum(losses, limit)
        mean, of_all = capped.mean(0), range(count)
        return Scores(mean - capped[tuning.chosen], mean - capped[tuning.chosen_by_others, of_all])


def read_study(*workdirs: str | Path) -> Report:
    """The report of the study in a folder, or of several studies of the same arms with the seeds of all.

    Raises:
      ConfigError: a folder holds no study, or the studies do not answer the same question about the same arms.
    """
    if not workdirs:
        raise ConfigError("read_study: give the folder of a study")
    folders = [Path(workdir) for workdir in workdirs]
    return analyse(folders[0], read_record(folders[0]) if len(folders) == 1 else pooled(folders))


def analyse(workdir: Path, record: Record) -> Report:
    """The report of a record, whose runs are named from `workdir` on.

    Raises:
      Damaged: a run of the baseline is not what was written.
    """
    return report_of(record, lambda name: read_run(workdir / record.runs / name))


def report_of(record: Record, read: Callable[[str], Run]) -> Report:
    """The report of a record, whose runs are read by their names.

    An arm with a damaged run has failed, which the report says; the others are compared.

    Raises:
      Damaged: a run of the baseline is not what was written.
    """
    record, found = _undamaged(record, read)
    if min(len(run.loss) for rows in found.values() for row in rows for run in row) < BATCHES_TO_HALVE:
        record = dataclasses.replace(record, halves=False)
    arms = {name: _Runs(arm, record, found[name]) for name, arm in record.arms.items()}
    noise = None if record.noise is None else _Runs(record.noise, record, found[NOISE])
    base = record.baseline
    asked = record.questions
    level = {"comparisons": record.comparisons, "alpha": ALPHA / len(record.looks)}

    def answer(weights: Mapping[str, float], metric: str) -> Comparison:
        return _contrast([(w, arms[name]) for name, w in weights.items()], metric, record, level)

    defined = {name for name, runs in arms.items() if runs.defines(record.metric)}
    contrasts = {n: answer(weights, record.metric) for n, weights in asked.items() if weights.keys() <= defined}
    against = {} if record.contrasts else asked
    names = _metric_names(arms, record)
    rows = []
    for name, runs in arms.items():
        both = [metric for metric in names if runs.defines(metric) and arms[base].defines(metric)]
        compared = {metric: answer(against[name], metric) for metric in both} if name in against else {}
        rows.append(_arm_report(name, runs, names, compared, arms[base]))
    own = None
    if noise is not None:
        pair = [(1.0, noise), (-1.0, arms[base])]
        compared = {metric: _contrast(pair, metric, record, level) for metric in names if noise.defines(metric)}
        own = _arm_report(noise_name(base), noise, names, compared, arms[base])
    estimates = [np.array(row.estimates) for row in rows]
    shortest = min(map(len, estimates))
    return Report(
        record=record,
        arms=rows,
        noise=own,
        contrasts=contrasts,
        correlation=mean_correlation([each[:shortest] for each in estimates]),
        curves={name: _curve(runs) for name, runs in arms.items()},
    )


def _undamaged(record: Record, read: Callable[[str], Run]) -> tuple[Record, dict[str, list[list[Run]]]]:
    """The record without arms that have a damaged run, and the runs of the others by arm."""
    found, failed = {}, {}
    for name, arm in {**record.arms, **({NOISE: record.noise} if record.noise else {})}.items():
        try:
            runs = read_runs(arm, read)
            lengths = {len(run.loss) for row in runs for run in row}
            if len(lengths) != 1:
                raise Damaged(f"{name}: its runs have {sorted(lengths)} batches")
            found[name] = runs
        except Damaged as error:
            failed[name] = f"{error}; the command of the study with --resume computes it again"
            if name == record.baseline:
                raise Damaged(failed[name]) from None
    arms = {name: arm for name, arm in record.arms.items() if name in found}
    noise = record.noise if NOISE in found else None
    return dataclasses.replace(record, arms=arms, noise=noise, failed={**record.failed, **failed}), found


def _sign(record: Record, metric: str) -> int:
    """-1 for a metric whose costs are its negative."""
    return -1 if record.higher_is_better.get(metric, False) else 1


def _metric_names(arms: Mapping[str, _Runs], record: Record) -> list[str]:
    """The primary metric, and all others of the study; its runs may hold probes of other studies too."""
    several = all(len(runs.runs) > 1 for runs in arms.values())
    names = [record.metric, *record.higher_is_better, *([SENSITIVITY] if several else [])]
    return list(dict.fromkeys(names))


def _contrast(parts: list[tuple[float, _Runs]], metric: str, record: Record, level: dict[str, Any]) -> Comparison:
    """The comparison of weighted arms by a metric, in units of the metric, over the seeds that all of them have."""
    count = min(len(runs.arm.seeds) for _, runs in parts)
    # Of another metric nobody has said which differences matter: it is equivalent where it is equal.
    margin = record.margin if metric == record.metric else np.nextafter(0.0, 1.0)
    found = compare([(weight, runs.scores(metric, count)) for weight, runs in parts], margin, **level)
    if _sign(record, metric) == 1:
        return found
    return dataclasses.replace(found, difference=-found.difference, interval=-found.interval, by_ranks=-found.by_ranks)


def _arm_report(
    name: str, runs: _Runs, names: list[str], compared: Mapping[str, Comparison], baseline: _Runs
) -> ArmReport:
    """The row of an arm, compared by metric; without comparisons it is the baseline."""
    record, arm, tuning = runs.record, runs.arm, runs.tuning
    count = len(arm.seeds)
    metrics, undefined = {}, []
    for metric in names:
        scores, sign = runs.scores(metric, count), _sign(record, metric)
        metrics[metric] = _estimate(sign * scores.best, sign * scores.held, compared.get(metric))
        if (lacking := np.isnan(scores).any(0).sum()) and runs.defines(metric):
            undefined.append(f"{metric} is undefined in {lacking} of {count} runs, whose pairs are left out")
    values = {metric: runs.values(metric, runs.shown) for metric in names if metric != SENSITIVITY}
    estimates = values[record.metric][tuning.chosen]
    healthy = estimates[np.isfinite(estimates)]
    failed = runs.failed
    higher = record.higher_is_better[record.metric]
    return ArmReport(
        name=name,
        changes=arm.changes,
        seeds=count,
        learning_rate=tuning.rates[tuning.chosen],
        learning_rates=list(tuning.rates),
        metrics=metrics,
        failed=int(failed[tuning.chosen].sum()),
        failed_interval=share_interval(int(failed[tuning.chosen].sum()), count),
        failed_anywhere=(int(failed.sum()), failed.size),
        by_metric={metric: found.tolist() for metric, found in values.items()},
        estimates=estimates.tolist(),
        deviation=float(healthy.std(ddof=1)) if len(healthy) > 1 else None,
        worst=float(healthy.min() if higher else healthy.max()) if len(healthy) else None,
        split_error=None if baseline is runs else _split_error(runs, baseline),
        parameters=arm.parameters,
        flops=arm.flops,
        seconds=sum(run.seconds for row in runs.runs for run in row),
        cells=sorted({run.cell for row in runs.runs for run in row}),
        signals=arm.signals,
        doubts=arm.warnings
        + ([] if runs.defines(record.metric) else [f"it has no {record.metric}, and is not compared"])
        + undefined
        + tuning.doubts()
        + _doubts(values[record.metric], count),
    )


def _estimate(best: np.ndarray, held: np.ndarray, compared: Comparison | None) -> Estimate:
    """The middle of both readings of one metric, over the runs that have one and did not fail."""
    kind, unkind = (x[np.isfinite(x)] for x in (best, held))
    if not kind.size or not unkind.size:
        return Estimate(None, Interval(-np.inf, np.inf), compared)
    ends = [*mean_interval(kind), *mean_interval(unkind)]
    return Estimate(float(kind.mean() + unkind.mean()) / 2, Interval(min(ends), max(ends)), compared)


def _doubts(values_RS: np.ndarray, count: int) -> list[str]:
    """What the numbers themselves say against intervals from normal theory."""
    said = []
    if count < FEW:
        said.append(f"{count} seeds: intervals stand on normal theory alone")
    if (p := normality_p(values_RS)) < ABNORMAL:
        said.append(f"runs of one learning rate are not normally distributed (p = {p:.1g}): intervals may be too short")
    return said


def _split_error(runs: _Runs, baseline: _Runs) -> float | None:
    """Standard error over batches of the held-out part of the mean difference of losses; None with few batches."""
    count = min(len(runs.arm.seeds), len(baseline.arm.seeds))

    def by_batch(one: _Runs) -> np.ndarray:
        row = one.runs[one.tuning.first(count).chosen][:count]
        return np.array([run.by_batch() * np.nan if one.fails(run) else run.by_batch() for run in row])

    own, other = by_batch(runs), by_batch(baseline)
    if own.shape != other.shape:
        return None
    with np.errstate(invalid="ignore"):
        seeds = np.isfinite(own).all(1) & np.isfinite(other).all(1)
    if not seeds.any():
        return None
    batches = (own - other)[seeds].mean(0)[runs.shown]
    return float(batches.std(ddof=1) / np.sqrt(batches.size)) if batches.size > 4 else None


def _curve(runs: _Runs) -> Curve:
    """Training loss of an arm at its learning rate."""
    row = runs.runs[runs.tuning.chosen]
    steps = sorted({step for run in row for step in run.curve["step"] if step is not None})
    found = [dict(zip(run.curve["step"], run.curve["loss"], strict=True)) for run in row]
    return Curve(np.array(steps), np.array([[each.get(step) for step in steps] for each in found], np.float64))
