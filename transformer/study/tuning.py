"""The learning rate of an arm, chosen by its own runs: with all seeds, and without each of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from transformer.study.statistics import Scores


@dataclass(frozen=True)
class Tuning:
    """What an arm's runs cost at every rate, and which rate they choose.

    The rate with the lowest mean cost is chosen, of equal ones the lowest. For the choice alone, a failed run costs as
    much as the worst run of the arm or as much as `give_up`, whichever is more: a rate that fails now and then can be
    chosen, where it is better by enough.
    """

    rates: Sequence[float]
    """Learning rates, ascending."""
    choosing_RS: np.ndarray
    """(rates, seeds) costs that the choice is made by; infinite for a failed run."""
    costs_RS: np.ndarray
    """(rates, seeds) costs that are reported, of data that choose nothing where there are such."""
    give_up: float = -np.inf
    """The cost of a model that has learned nothing."""

    @cached_property
    def _charged(self) -> np.ndarray:
        """(rates, seeds) costs with a number for a failed run."""
        finite = self.choosing_RS[np.isfinite(self.choosing_RS)]
        worst = max(finite.max(initial=-np.inf), self.give_up)
        return np.where(np.isfinite(self.choosing_RS), self.choosing_RS, worst if np.isfinite(worst) else 0.0)

    @cached_property
    def chosen(self) -> int:
        """Index of the rate that is best over all seeds."""
        return int(self._charged.mean(1).argmin())

    @cached_property
    def chosen_without(self) -> np.ndarray:
        """(seeds,) index of the rate that is best over all other seeds; of a single seed, that of all."""
        count = self._charged.shape[1]
        if count < 2:
            return np.full(count, self.chosen)
        others = (self._charged.sum(1, keepdims=True) - self._charged) / (count - 1)
        return others.argmin(0)

    @property
    def scores(self) -> Scores:
        """The costs at these rates."""
        return Scores(self.costs_RS[self.chosen], self.costs_RS[self.chosen_without, range(self.costs_RS.shape[1])])

    def first(self, count: int) -> "Tuning":
        """The tuning of the first `count` seeds alone."""
        return Tuning(self.rates, self.choosing_RS[:, :count], self.costs_RS[:, :count], self.give_up)

    def doubts(self) -> list[str]:
        """What a reader should know of the choice: an edge of the grid, a tie, seeds that disagree."""
        if len(self.rates) == 1:
            return []
        said, rate = [], self.rates[self.chosen]
        if self.chosen in (0, len(self.rates) - 1):
            said.append(f"best rate {rate:g} is the {'highest' if self.chosen else 'lowest'} tried")
        means = self._charged.mean(1)
        if tied := [f"{self.rates[i]:g}" for i in map(int, np.flatnonzero(means == means.min())) if i != self.chosen]:
            said.append(f"rates tie: {rate:g} and {', '.join(tied)}")
        agree = int((self.chosen_without == self.chosen).sum())
        if agree < len(self.chosen_without):
            said.append(f"rate {rate:g} is best without {agree} of {len(self.chosen_without)} seeds")
        return said
