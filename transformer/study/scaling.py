"""Laws of scale from a ladder of sizes, with intervals over seeds.

Every number here is a function of mean losses; its interval is that of its jackknife pseudo-values over seeds (Tukey
1958), which are paired between arms that have the same seeds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from transformer.core.errors import ConfigError
from transformer.study.designs import IsoFlop, Ladder
from transformer.study.report import ArmReport, Report
from transformer.study.statistics import UNKNOWN, Interval, mean_interval

SIZES_FOR_A_FLOOR = 5
"""Sizes from which on a loss that no size gets below can be told from the exponent."""


@dataclass(frozen=True)
class Estimated:
    """A number with its 95 % interval over seeds."""

    value: float
    interval: Interval


@dataclass(frozen=True)
class PowerLaw:
    """loss = floor + coefficient · size^(-exponent) (Hestness et al. 2017; Kaplan et al. 2020, equation 1.1)."""

    floor: float
    coefficient: float
    exponent: float

    def __call__(self, size: float) -> float:
        """The loss at a size."""
        return self.floor + self.coefficient * size**-self.exponent


def fit_power_law(sizes: Sequence[float], losses: Sequence[float], floor: bool | None = None) -> PowerLaw:
    """The law nearest to the losses in logarithms.

    Args:
      sizes: numbers of parameters, or operations.
      losses: a mean loss for each.
      floor: whether there is a loss that no size gets below; None: with at least five different sizes.

    Raises:
      ConfigError: fewer different sizes than numbers to find, or a size or loss that is not positive.
    """
    if unfit := [number for number in (*sizes, *losses) if not number > 0]:
        raise ConfigError(f"fit_power_law: {unfit[0]:g} has no logarithm; sizes and losses are positive")
    x, y = np.log(np.asarray(sizes, np.float64)), np.asarray(losses, np.float64)
    different = len(set(sizes))
    floor = different >= SIZES_FOR_A_FLOOR if floor is None else floor
    if different < 2 + floor:
        raise ConfigError(f"fit_power_law: {different} different sizes cannot tell {2 + floor} numbers")

    slope, intercept = np.polyfit(x, np.log(y), 1)
    if not floor:
        return PowerLaw(0.0, float(np.exp(intercept)), -float(slope))

    def apart(numbers: np.ndarray) -> np.ndarray:
        at, intercept, slope = numbers
        return np.log(y) - np.log(at + np.exp(intercept + slope * x))

    # The squares may have several minima: the best of those found from floors that are dense near the lowest loss.
    starts = [(at, *np.polyfit(x, np.log(y - at), 1)[::-1]) for at in y.min() * -np.expm1(-np.linspace(0.0, 9.0, 7))]
    bounds = ((0.0, -np.inf, -np.inf), np.inf)
    found = [
        optimize.least_squares(apart, start, bounds=bounds, x_scale="jac", xtol=1e-12, ftol=1e-12) for start in starts
    ]
    at, intercept, slope = min(found, key=lambda one: one.cost).x
    return PowerLaw(float(at), float(np.exp(intercept)), -float(slope))


def best_size(sizes: Sequence[float], losses: Sequence[float]) -> float:
    """The size with the lowest loss, by a parabola in log size (Hoffmann et al. 2022, approach 2).

    Infinite, or 0, where the losses have no minimum between or near the sizes.
    """
    a, b, _ = np.polyfit(np.log(np.asarray(sizes, np.float64)), np.asarray(losses, np.float64), 2)
    with np.errstate(over="ignore"):
        return float(np.exp(-b / (2 * a))) if a > 0 else float("inf")


def jackknife(measure: Callable[[np.ndarray], float], losses_NS: np.ndarray) -> np.ndarray:
    """(S,) pseudo-values of a function of mean losses (N,); their mean is the estimate, their spread its error."""
    count = losses_NS.shape[1]
    whole = measure(losses_NS.mean(1))
    without = [measure(np.delete(losses_NS, seed, 1).mean(1)) for seed in range(count)]
    return count * whole - (count - 1) * np.array(without)


def estimated(measure: Callable[[np.ndarray], float], losses_NS: np.ndarray) -> Estimated:
    """The function of the mean losses with its interval, all real numbers where some seeds alone have none."""
    values = jackknife(measure, losses_NS)
    return Estimated(measure(losses_NS.mean(1)), mean_interval(values) if np.isfinite(values).all() else UNKNOWN)


@dataclass(frozen=True)
class ArmScaling:
    """How the loss of one arm falls with its number of parameters."""

    sizes: list[int]
    """Numbers of parameters, embeddings included."""
    losses: list[float]
    law: PowerLaw
    exponent: Estimated
    against_baseline: Estimated | None
    """The exponent minus that of the baseline, paired by seed."""


def ladder_laws(report: Report, ladder: Ladder) -> dict[str, ArmScaling]:
    """The power law of each arm of a ladder, by name; an arm with a failed run at some size has none.

    Raises:
      ConfigError: the study compares something else than losses, or its sizes do not differ in parameters.
    """
    _check_falls(report, "ladder_laws")
    rows = {arm.name: arm for arm in report.arms}
    found: dict[str, ArmScaling] = {}
    first, baseline = None, next(iter(ladder.arms))
    for name in ladder.arms:
        own = [rows[ladder.name(name, size)] for size in ladder.sizes if ladder.name(name, size) in rows]
        losses_NS, sizes = _losses(own), [arm.parameters for arm in own]
        if losses_NS is None or len(own) < len(ladder.sizes):
            continue

        def exponent(losses: np.ndarray, sizes: list[int] = sizes) -> float:
            return fit_power_law(sizes, list(losses)).exponent

        pseudo = jackknife(exponent, losses_NS)
        gap = None
        if name == baseline:
            first = pseudo
        elif first is not None and pseudo.size == first.size:
            gap = Estimated(float((pseudo - first).mean()), mean_interval(pseudo - first))
        means = losses_NS.mean(1).tolist()
        law = fit_power_law(sizes, means)
        found[name] = ArmScaling(sizes, means, law, Estimated(law.exponent, mean_interval(pseudo)), gap)
    return found


def best_sizes(report: Report, slices: IsoFlop) -> dict[float, Estimated]:
    """The number of parameters with the lowest loss at each number of operations, with an interval on a log scale.

    Raises:
      ConfigError: the study compares something else than losses.
    """
    _check_falls(report, "best_sizes")
    rows = {arm.name: arm for arm in report.arms}
    found = {}
    for budget in slices.budgets:
        own = [rows[name] for size in slices.sizes if (name := slices.name(size, budget)) in rows]
        losses_NS, sizes = _losses(own), [arm.parameters for arm in own]
        if losses_NS is None or len(own) < 3:
            continue
        of_log = estimated(lambda losses, n=sizes: float(np.log(best_size(n, list(losses)))), losses_NS)
        low, high = np.exp(of_log.interval)
        found[budget] = Estimated(float(np.exp(of_log.value)), Interval(float(low), float(high)))
    return found


def _check_falls(report: Report, caller: str) -> None:
    """Raise `ConfigError` where the study compares what is better when it is higher."""
    if report.record.higher_is_better[metric := report.record.metric]:
        raise ConfigError(f"{caller}: {report.record.name} compares {metric}, which is no loss; use metric='loss'")


def _losses(arms: Sequence[ArmReport]) -> np.ndarray | None:
    """(sizes, seeds) losses at the chosen rates of the seeds that all have; None where one failed."""
    if not arms:
        return None
    count = min(arm.seeds for arm in arms)
    losses = np.array([arm.estimates[:count] for arm in arms])
    return losses if np.isfinite(losses).all() else None
