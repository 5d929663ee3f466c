"""What the runs of two arms say about their difference: one interval, one p and one verdict for each question.

All numbers here are *costs*: lower is better, a failed run costs infinity, and one in which the metric is not defined
NaN. How the pieces fit together is on two pages in `docs/statistics.md`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

from transformer.study.statistics import (
    ALPHA,
    UNKNOWN,
    Interval,
    Location,
    correlation,
    detectable_difference,
    ranks,
    student,
)

Verdict = Literal["better", "worse", "equivalent", "unresolved", "fails more often", "fails less often"]

ROUNDING = 1e-9
"""Share of differences within which they are equal."""
CANCELLED = 2e-15
"""Share of the sum of sizes within which a weighted sum is 0: thirds of equal costs add up to 1e-16 and not to 0."""


class Scores(NamedTuple):
    """The costs of one arm by seed, (S,): two readings of runs that also chose the arm's learning rate."""

    best: np.ndarray
    """At the rate that is best over all seeds: too kind, because the seed helped to choose it."""
    held: np.ndarray
    """At the rate that is best over the half of the seeds that this one is not in: unkind, because fewer chose it."""


@dataclass(frozen=True)
class Comparison:
    """The answer to one question of a study: a weighted sum of arms, such as an arm minus the baseline."""

    n: int
    """Seeds that give a difference: all but those under which both sides failed, or one is not defined."""
    difference: float
    """The middle of its two readings: of paired differences their mean, or their pseudo-median where ranks decide; NaN
    without any, and between infinities of both signs."""
    interval: Interval
    """Together with those of all other comparisons it covers the truth with probability 1 - α."""
    p: float
    """Corrected for the number of comparisons; below α exactly where the interval leaves out 0."""
    verdict: Verdict
    """What the interval says, or the failures."""
    deviation: float | None
    """Standard deviation of the differences; None where ranks decide, or of fewer than two seeds."""
    correlation: float | None
    """Pearson's ρ of arm and baseline over seeds: how much pairing helps; None where undefined."""
    detectable: float
    """The difference that these seeds detect with 80 % power; infinite without a deviation."""
    failures: tuple[int, int] = (0, 0)
    """Failed runs of the arm and of the baseline among these seeds."""
    p_failures: float = 1.0
    """Corrected p of equal shares of failures; below α/2 it decides the verdict."""
    by_ranks: Interval = UNKNOWN
    """The interval that signed ranks give, which stands on symmetry alone; `interval` itself where they decide."""

    @property
    def same(self) -> bool:
        """Whether the arms have the same value in every pair of runs, as where a task is too hard or too easy."""
        return self.deviation == 0 and self.difference == 0


def compare(
    parts: Sequence[tuple[float, Scores]], margin: float, comparisons: int = 1, alpha: float = ALPHA
) -> Comparison:
    """The comparison Σ weight · cost over arms, seed by seed.

    Every end of the interval takes the reading that is unkind to the claim it limits: the upper end of an arm minus the
    baseline has the arm at the rate that other seeds chose and the baseline at the rate that all chose, the lower end
    the reverse. Without failures each is a paired t-interval (Student 1908) at level α over the number of comparisons
    (Dunn 1961). With failures it is that of the signed-rank test (Wilcoxon 1945; Hodges and Lehmann 1963), a failure
    being worse than any other run; then α is halved, and the other half tests the shares of failures in both readings
    (Fisher's exact test, which has too large a p where failures of a pair go together). A seed under which arms of both
    signs failed says nothing about their difference and has none, as one under which a cost is not defined. Where all
    differences are equal and not 0 they show no spread to judge them by, and ranks decide, too.

    Args:
      parts: weight and scores of each arm, in any order, all over the same seeds in the same order.
      margin: differences of less than this do not matter, in units of the cost.
      comparisons: how many a study makes.
      alpha: probability of any false verdict over all of them.

    Raises:
      ValueError: scores are not vectors of one length, or the margin is not positive.
    """
    parts = sorted(parts, key=lambda part: -part[0])  # of a pair the arm first, then what it is compared with
    lengths = {array.shape for _, scores in parts for array in scores}
    if len(lengths) != 1 or len(next(iter(lengths))) != 1:
        raise ValueError(f"compare: scores {sorted(lengths)} are not vectors of one length")
    if not margin > 0:
        raise ValueError(f"compare: margin {margin} is not positive")
    kind, unkind = readings(parts)
    n = kind.size
    failed = any(np.isinf(array).any() for _, scores in parts for array in scores)
    level, corrections = (alpha / 2 if failed else alpha) / comparisons, comparisons * (ALPHA / alpha)
    by_ranks = failed or _equal(kind) or _equal(unkind)
    ranked = ranks(kind, level), ranks(unkind, level)
    low, high = ranked if by_ranks else (student(kind, level), student(unkind, level))
    interval = _hull(low, high)
    p = max(low.p, high.p) if low.estimate * high.estimate > 0 else 1.0
    failures, p_failures = (0, 0), 1.0
    if failed and [weight for weight, _ in parts] == [1, -1]:
        failures, p_equal = _shares_of_failures(parts[0][1], parts[1][1])
        p_failures = min(1.0, corrections * p_equal)
    pair = [scores.best for _, scores in parts] if len(parts) == 2 else None
    deviation = None if by_ranks or n < 2 else max(float(x.std(ddof=1)) for x in (kind, unkind))
    return Comparison(
        n=n,
        difference=(low.estimate + high.estimate) / 2,
        interval=interval,
        p=min(1.0, p * corrections * (2 if failed else 1)),
        verdict=_verdict(interval, margin, failed, failures, p_failures < ALPHA / 2),
        deviation=deviation,
        correlation=None if pair is None else correlation(*pair),
        detectable=math.inf if deviation is None else detectable_difference(deviation, n, comparisons, alpha=alpha),
        failures=failures,
        p_failures=p_failures,
        by_ranks=_hull(*ranked),
    )


def _hull(first: "Location", second: "Location") -> Interval:
    """The smallest interval that holds those of both readings."""
    ends = (*first.interval, *second.interval)
    return Interval(float(min(ends)), float(max(ends)))


def _equal(differences: np.ndarray) -> bool:
    """Whether all are the same number to rounding, and not 0."""
    largest = np.abs(differences).max(initial=0.0)
    return 0 < largest < math.inf and bool(np.ptp(differences) <= ROUNDING * largest)


def _shares_of_failures(arm: Scores, other: Scores) -> tuple[tuple[int, int], float]:
    """(Failed runs of both at their rates, p of equal shares): the larger p of both readings, as with intervals."""

    def count(costs: np.ndarray) -> int:
        return int(np.isinf(costs).sum())

    seeds = len(arm.best)
    both = [(count(arm.best), count(other.held)), (count(arm.held), count(other.best))]
    p = [float(np.asarray(stats.fisher_exact([[f, seeds - f] for f in counts])[1])) for counts in both]
    failures = count(arm.best), count(other.best)
    agree = len({np.sign(one - two) for one, two in [*both, failures]}) == 1
    return failures, max(p) if agree else 1.0


def _verdict(interval: Interval, margin: float, failed: bool, failures: tuple[int, int], differ: bool) -> Verdict:
    if differ:
        more = failures[0] > failures[1]
        if interval.high < 0 if more else interval.low > 0:
            return "unresolved"  # it fails more often, and is better where it does not, or the reverse
        return "fails more often" if more else "fails less often"
    if interval.high < 0:
        return "better"
    if interval.low > 0:
        return "worse"
    within = -margin < interval.low and interval.high < margin
    return "equivalent" if within and not failed else "unresolved"


def change(first: Comparison, second: Comparison, comparisons: int = 1) -> tuple[float, Interval]:
    """A difference minus the same difference in another study, of other runs, with its interval (Welch 1947).

    The whole line where ranks decided, or a study has fewer than two seeds. It is corrected for the questions, and not
    for looks: a study that stopped by its verdicts shows its difference a little too large.
    """
    gap = first.difference - second.difference
    parts = [one.deviation**2 / one.n for one in (first, second) if one.deviation is not None]
    if len(parts) < 2:
        return gap, UNKNOWN
    error = math.sqrt(sum(parts))
    if error == 0:
        return gap, Interval(gap, gap)
    freedom = sum(parts) ** 2 / sum(part**2 / (one.n - 1) for part, one in zip(parts, (first, second), strict=True))
    half = error * float(stats.t.isf(ALPHA / comparisons / 2, freedom))
    return gap, Interval(gap - half, gap + half)


def readings(parts: Sequence[tuple[float, Scores]]) -> tuple[np.ndarray, np.ndarray]:
    """Σ weight · cost by seed, (S,) each: as kind and as unkind as possible to arms with positive weight.

    Without the seeds under which arms of both signs failed, or a cost is not defined.
    """

    def added(kind: bool) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            terms = np.array([w * (scores.best if (w > 0) == kind else scores.held) for w, scores in parts])
            total = terms.sum(0)
        rounded = np.isfinite(total) & (np.abs(total) <= CANCELLED * np.abs(terms).sum(0))
        return np.where(rounded, 0.0, total)

    kind, unkind = added(True), added(False)
    there = ~(np.isnan(kind) | np.isnan(unkind))
    return kind[there], unkind[there]
