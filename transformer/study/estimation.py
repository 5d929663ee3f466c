"""Estimates from the runs of an arm: its learning rate is selected on some seeds, its loss estimated on the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from transformer.runs.config import RunConfig
from transformer.study.cell import Result
from transformer.training.metrics import Curve, read_curve


@dataclass(frozen=True)
class ArmRuns:
    """An arm with the results of its runs, every learning rate with every seed."""

    changes: str
    """The arm's changes to the base, in text form."""
    config: RunConfig
    result: Result
    folder: Path
    learning_rates: Sequence[float]
    num_selection_seeds: int
    """Number of first seeds, which are used for selection and not for estimates."""

    @property
    def guess(self) -> float:
        """The loss of a uniform guess, in nats."""
        return self.config.objective.chance(self.config.model)

    @cached_property
    def losses(self) -> np.ndarray:
        """(learning rates, seeds) final validation losses; NaN for a diverged run.

        A run has diverged if it stopped being finite or ends worse than a uniform guess.
        """
        final = self._by_rate(self.result.validation_loss)
        final[final > self.guess] = np.nan
        return final

    @cached_property
    def selected(self) -> int:
        """The index of the learning rate that is best on the selection seeds."""
        return select_learning_rate(self.losses[:, : self.num_selection_seeds])

    @property
    def estimates(self) -> np.ndarray:
        """(estimation seeds,) losses at the selected learning rate; NaN for a diverged run."""
        return self.losses[self.selected, self.num_selection_seeds :]

    @property
    def loss_by_learning_rate(self) -> dict[str, float | None]:
        """The mean loss over all seeds that did not diverge, by learning rate."""
        return {f"{rate:g}": mean(row) for rate, row in zip(self.learning_rates, self.losses, strict=True)}

    @property
    def curve(self) -> Curve:
        """Training loss of the estimation runs at the selected learning rate."""
        steps_S, values_RS = read_curve(self.folder, "loss", self.losses.size)
        return Curve(steps_S, values_RS.reshape(*self.losses.shape, -1)[self.selected, self.num_selection_seeds :])

    def estimate(self, numbers: Sequence[float | None]) -> float | None:
        """The mean of a number of each run, over the estimation runs that did not diverge."""
        return mean(self._by_rate(numbers)[self.selected, self.num_selection_seeds :][np.isfinite(self.estimates)])

    def _by_rate(self, numbers: Sequence[float | None]) -> np.ndarray:
        return np.array(numbers, np.float64).reshape(len(self.learning_rates), -1)


def mean(numbers: np.ndarray) -> float | None:
    """The mean of the finite numbers; None without any."""
    finite = numbers[np.isfinite(numbers)]
    return float(finite.mean()) if finite.size else None


def select_learning_rate(losses: np.ndarray) -> int:
    """The row of (learning rates, selection seeds) with the fewest diverged runs, among equals the lowest mean."""
    if len(losses) == 1:
        return 0
    diverged = np.isnan(losses).sum(1)
    means = [np.inf if (average := mean(row)) is None else average for row in losses]
    return min(range(len(losses)), key=lambda i: (diverged[i], means[i]))


def sensitivity(losses: np.ndarray, guess: float) -> float | None:
    """Sensitivity of (learning rates, seeds) losses to the learning rate, in nats; None for a single rate.

    It is the mean over learning rates of min(loss, guess), less the lowest (Wortsman et al. 2023, section 2.3). A
    diverged run (NaN) counts as the guess.
    """
    if len(losses) == 1:
        return None
    capped = np.nan_to_num(np.minimum(losses, guess), nan=guess).mean(1)
    return float(capped.mean() - capped.min())
