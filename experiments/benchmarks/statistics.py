"""Whether the verdicts of a study hold: whole studies, simulated, whose truth is known.

    python -m experiments.benchmarks.statistics [--studies 1000] [--only TEXT] [--out FILE.json]

The goal, in every case with enough seeds: at most 5.5 % of the studies make a false claim, and at least 94.5 % cover
all true differences at once; where that fails, the studies that do so carry a warning.
"""

import argparse
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from scipy import stats

from transformer.study.analyse import FEW
from transformer.study.comparison import Comparison, compare
from transformer.study.statistics import ABNORMAL, ALPHA, normality_p
from transformer.study.tuning import Tuning

GOAL = 0.055
"""Most studies with an error, as a share."""

RATES = {
    "one": ((0.0,), (0.0,)),
    "near": ((0.0, 0.5, 1.0), (0.0, 0.5, 1.0)),
    "tied": ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0)),
    "separated": ((0.0, 2.0, 2.0), (0.0, 2.0, 2.0)),
    "asymmetric": ((0.0, 3.0, 3.0), (0.0, 0.5, 1.0)),
    "lopsided": ((0.0, 3.0, 3.0), (0.0, 0.0, 0.0)),
    "many": ((0.0, *[3.0] * 7), (0.0,) * 8),
}
"""Mean cost at each learning rate, in standard deviations: of the baseline, of every other arm."""

SPREADS = {"equal": (1.0, 1.0), "rising": (0.3, 3.0), "falling": (3.0, 0.3)}
"""Standard deviation of the costs of the baseline and of the last arm; those between are in geometric steps."""

SIGNS = {"better": -1, "worse": 1, "fails less often": -1, "fails more often": 1}


@dataclass(frozen=True)
class Case:
    """Studies of one kind. The later half of the arms other than the baseline may differ from it."""

    arms: int = 8
    """The first is the baseline."""
    seeds: int = 8
    rates: str = "one"
    family: str = "normal"
    correlation: float = 0.5
    """Of the arms over seeds, at equal rates."""
    spread: str = "equal"
    shift: float = 0.0
    """What the later arms cost more than the baseline."""
    fails: float = 0.0
    """Probability that a run fails."""
    fails_more: float = 0.0
    """What the later arms have more of it."""
    margin: float = 0.5
    looks: int = 1
    """How often verdicts are read while seeds are doubled, for the arms that are open; `seeds` is the last number."""

    @property
    def name(self) -> str:
        """The size, the rates, and whatever is not as usual; also the seed of the sample."""
        usual = asdict(Case(self.arms, self.seeds, self.rates))
        unusual = [f"{key} {value}" for key, value in asdict(self).items() if value != usual[key]]
        return ", ".join([f"{self.arms} arms", f"{self.seeds} seeds", f"rates {self.rates}", *unusual])

    @property
    def differs(self) -> np.ndarray:
        """(arms,) which are not like the baseline, where any are."""
        return np.arange(self.arms) > (self.arms - 1) // 2

    @property
    def covers(self) -> bool:
        """Whether a true difference is defined: with failures it is where symmetry makes any location 0."""
        skewed = self.family in ("lognormal", "bimodal") and self.spread != "equal"
        return not (self.fails_more or (self.fails and (self.shift or skewed)))


Judge = Callable[[Case, np.ndarray], tuple[Sequence[Comparison], bool]]
"""From costs_ARS to every arm minus the baseline, and whether the study warns."""


@dataclass(frozen=True)
class Row:
    """Shares of the studies of a case; None where undefined."""

    case: str
    studies: int
    error: float
    """Any false claim that an arm is better, worse or fails more or less often."""
    coverage: float | None
    """All intervals cover the true differences of means at the best rates; of pseudo-medians where runs failed."""
    equivalent: float | None
    """Any arm at the margin or beyond called equivalent."""
    power: float | None
    """Share of the truly different arms that are called worse, or, where they fail more often, that."""
    half: float | None
    """Mean half width of the finite intervals."""
    warned: float
    error_unwarned: float | None
    """The error among the studies that do not warn."""
    outcome: str
    """ok; MISSED; or warned, where the goal is missed but not by the studies that do not warn."""

    def text(self) -> str:
        numbers = (self.error, self.coverage, self.equivalent, self.power, self.half, self.warned, self.error_unwarned)
        return f"{self.case:64}" + "".join("     –" if x is None else f"{x:6.3f}" for x in numbers) + f" {self.outcome}"


HEADER = f"{'case':64}" + "".join(f"{x:>6}" for x in ("error", "cover", "f.eq.", "power", "half", "warn", "quiet"))


def noise(family: str, z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Standard normal values made into ones of a family with mean 0 and standard deviation 1 (bimodal: 1.005)."""
    match family:
        case "normal":
            return z
        case "t3":
            return stats.t.ppf(stats.norm.cdf(z), 3) / np.sqrt(3)
        case "lognormal":
            return (np.exp(z) - np.exp(0.5)) / np.sqrt((np.e - 1) * np.e)
        case "bimodal":
            return 2.5 * (z > stats.norm.ppf(0.8)) - 0.5 + 0.1 * rng.normal(size=z.shape)
    raise ValueError(f"noise: no family {family}")


def draw(case: Case, rng: np.random.Generator) -> np.ndarray:
    """costs_ARS of one study; infinite for failed runs."""
    baseline, other = RATES[case.rates]
    means_AR = np.array([baseline] + [other] * (case.arms - 1)) + case.shift * case.differs[:, None]
    spread_A = np.geomspace(*SPREADS[case.spread], case.arms)
    root = np.linalg.cholesky(case.correlation + (1 - case.correlation) * np.eye(case.arms))
    z_ARS = np.einsum("ab,brs->ars", root, rng.normal(size=(*means_AR.shape, case.seeds)))
    costs_ARS = means_AR[:, :, None] + spread_A[:, None, None] * noise(case.family, z_ARS, rng)
    fails_A = case.fails + case.fails_more * case.differs
    return np.where(rng.random(costs_ARS.shape) < fails_A[:, None, None], np.inf, costs_ARS)


def library(case: Case, costs_ARS: np.ndarray) -> tuple[Sequence[Comparison], bool]:
    """The comparisons of `transformer.study`, and whether its report warns."""
    tunings = [Tuning(range(len(x)), x, x) for x in costs_ARS]
    sizes = [case.seeds // 2**halvings for halvings in reversed(range(case.looks))]

    def answer(arm: Tuning) -> Comparison:
        for size in sizes:
            pair = [(1, arm.first(size).scores), (-1, tunings[0].first(size).scores)]
            found = compare(pair, case.margin, case.arms - 1, ALPHA / case.looks)
            if found.verdict != "unresolved":
                break
        return found

    found = [answer(arm) for arm in tunings[1:]]
    warned = case.seeds < FEW or any(normality_p(costs_RS) < ABNORMAL for costs_RS in costs_ARS)
    return found, warned


def wrongs(case: Case, said: Sequence[Comparison]) -> tuple[bool, bool, bool]:
    """Of one study: a false claim, a true difference not covered, an arm falsely called equivalent."""
    shift_A, more_A = case.shift * case.differs[1:], case.fails_more * case.differs[1:]
    false = uncovered = equivalent = False
    for x, shift, more in zip(said, shift_A, more_A, strict=True):
        truth = more if x.verdict.startswith("fails") else shift or more
        false |= x.verdict in SIGNS and SIGNS[x.verdict] != np.sign(truth)
        uncovered |= case.covers and not x.interval.low <= shift <= x.interval.high
        equivalent |= x.verdict == "equivalent" and abs(shift) >= case.margin
    return bool(false), bool(uncovered), bool(equivalent)


def reached(wrong_XS: np.ndarray) -> bool:
    """Whether no kind of error (X) is in more studies than the goal and two standard errors of chance allow."""
    return bool((stats.binom.sf(wrong_XS.sum(1) - 1, wrong_XS.shape[1], GOAL) > stats.norm.sf(2)).all())


def simulate(case: Case, studies: int, judge: Judge = library) -> Row:
    """How often the studies of a case are right."""
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    right = "fails more often" if case.fails_more else "worse"
    wrong, warnings, powers, halves = [], [], [], []
    for _ in range(studies):
        said, warned = judge(case, draw(case, rng))
        wrong.append(wrongs(case, said))
        warnings.append(warned)
        powers.append(np.mean([said[i - 1].verdict == right for i in np.flatnonzero(case.differs)]))
        halves += [x.interval.half for x in said if np.isfinite(x.interval.half)]
    wrong_XS, warned_S = np.array(wrong).T, np.array(warnings)
    error, uncovered, equivalent = (float(x) for x in wrong_XS.mean(1))
    return Row(
        case=case.name,
        studies=studies,
        error=error,
        coverage=1 - uncovered if case.covers else None,
        equivalent=equivalent if abs(case.shift) >= case.margin else None,
        power=float(np.mean(powers)) if case.shift or case.fails_more else None,
        half=float(np.mean(halves)) if halves else None,
        warned=float(warned_S.mean()),
        error_unwarned=None if warned_S.all() else float(wrong_XS[0, ~warned_S].mean()),
        outcome="ok" if reached(wrong_XS) else "warned" if reached(wrong_XS[:, ~warned_S]) else "MISSED",
    )


def cases() -> list[Case]:
    """Normal values over arms, seeds and rates; then what else may matter, around three sizes."""
    few, most = (6, 32), (4, 6, 8, 12, 32)
    found = [Case(a, n, r) for a in (2, 4, 8, 16) for n in (most if a in (2, 8) else few) for r in ("one", "near")]
    families = ("t3", "lognormal", "bimodal")
    for usual in (Case(2, 6), Case(8, 8)):
        found += [replace(usual, rates=r) for r in RATES if r not in ("one", "near")]
        found += [replace(usual, correlation=rho) for rho in (0.0, 0.9)]
        found += [replace(usual, family=f, rates=r) for f in families for r in ("one", "near")]
        found += [replace(usual, spread=s) for s in ("rising", "falling")]
        found += [replace(usual, family=f, spread="falling") for f in families]
        found += [replace(usual, rates="near", spread="falling"), replace(usual, rates="near", correlation=0.9)]
        found += [replace(usual, shift=1.0, rates=r) for r in ("one", "near", "asymmetric")]
    for usual in (Case(2, 12), Case(8, 32)):  # with fewer seeds ranks decide nothing
        found += [replace(usual, fails=p) for p in (0.05, 0.2, 0.5)]
        found += [replace(usual, fails=0.2, rates="near"), replace(usual, fails=0.2, spread="falling")]
        found += [replace(usual, fails_more=0.5)]
    found += [Case(a, n, "many", spread="rising") for a, n in ((2, 6), (2, 12), (2, 32), (8, 8))]
    found += [Case(a, 6, correlation=-0.3) for a in (2, 4)]
    found += [Case(a, 24, r, looks=3, shift=shift) for a in (2, 8) for r in ("one", "near") for shift in (0.0, 1.0)]
    found += [Case(a, 32, r, shift=1.0, margin=1.0) for a in (2, 8) for r in ("one", "near")]
    found += [Case(2, 32, family="lognormal", spread="falling"), Case(8, 32, family="lognormal", spread="falling")]
    return found


CASES = cases()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=1000, help="of each case")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--out", type=Path, help="a JSON file for the rows")
    parsed = parser.parse_args(arguments)
    print(HEADER)
    rows = []
    for case in CASES:
        if parsed.only in case.name:
            rows.append(simulate(case, parsed.studies))
            print(rows[-1].text(), flush=True)
    for outcome in ("warned", "MISSED"):
        names = [row.case for row in rows if row.outcome == outcome]
        print(f"\n{outcome}: {len(names)} of {len(rows)}", *names, sep="\n  ")
    if parsed.out:
        parsed.out.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
