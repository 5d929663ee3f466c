"""The learning rate of an arm, chosen by its own runs: by all seeds, and for each half of them by the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from transformer.study.comparison import Scores
from transformer.training.metrics import charged


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
    """The cost of a model that has learned nothing; infinite where that is not known."""

    @cached_property
    def _charged(self) -> np.ndarray:
        """(rates, seeds) costs with a number for a failed run."""
        return charged(self.choosing_RS, self.give_up)

    @cached_property
    def chosen(self) -> int:
        """Index of the rate that is best over all seeds."""
        return int(self._charged.mean(1).argmin())

    @cached_property
    def chosen_by_others(self) -> np.ndarray:
        """(seeds,) index of the rate of each seed: of even ones the best over the odd ones, and the other way round."""
        charged = self._charged
        if charged.shape[1] < 2:
            return np.full(charged.shape[1], self.chosen)
        halves = [int(charged[:, half::2].mean(1).argmin()) for half in (1, 0)]
        return np.array([halves[seed % 2] for seed in range(charged.shape[1])])

    @property
    def scores(self) -> Scores:
        """The costs at these rates."""
        return Scores(self.costs_RS[self.chosen], self.costs_RS[self.chosen_by_others, range(self.costs_RS.shape[1])])

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
        others = {f"{self.rates[i]:g}": None for i in self.chosen_by_others[:2]}
        if len(others) > 1:
            halves = f"the two halves of the seeds choose {' and '.join(others)}, and means count both"
            said.append(f"rate {rate:g} is not sure: {halves}")
        return said
