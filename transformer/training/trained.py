"""The replicas of a config after training."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer.core.errors import ConfigError
from transformer.core.modules import Apply, Params
from transformer.models.build import pure_model
from transformer.runs.config import Replica, RunConfig
from transformer.training import processes
from transformer.training.metrics import Curve, charged, read_curve


@dataclass(frozen=True)
class TrainedRun:
    """The trained replicas of a config; arrays have a leading replica axis R."""

    workdir: Path
    """Folder of the run."""
    config: RunConfig
    """The config, completed from the data."""
    replicas: Sequence[Replica]
    """Seeds and numbers of the replicas, in the order of the axis R."""
    all_params: Params
    """Parameters of all replicas as they are evaluated: averaged where the run averages."""
    validation_loss: np.ndarray
    """(R,) nats per token over the whole validation split; NaN where the replica diverged."""
    accuracy: np.ndarray
    """(R,) share of the labels of the validation split to which the model gives the highest probability; 0 where labels
    are numbers."""
    exact_match: np.ndarray
    """(R,) share of the validation sequences whose labels are all the likeliest, as greedy decoding gets them right."""
    diverged_at: np.ndarray
    """(R,) the step at which the replica diverged, its loss or gradient not finite; -1 where it did not."""

    def __repr__(self) -> str:
        """Where it is, and how good: the config is a page long."""
        losses = ", ".join(f"{loss:.4f}" for loss in self.validation_loss[:8])
        more = f", … {len(self.replicas)} replicas" * (len(self.replicas) > 8)
        return f"{type(self).__name__}({str(self.workdir)!r}, validation_loss=[{losses}{more}])"

    @functools.cached_property
    def apply(self) -> Apply:
        """The model as a pure function of the parameters of one replica."""
        return pure_model(self.config.model)[1]

    @property
    def healthy(self) -> np.ndarray:
        """(R,) whether a replica has a loss."""
        return np.isfinite(self.validation_loss)

    @property
    def learning_rates(self) -> np.ndarray:
        """(R,) learning rate of each replica."""
        return np.array([replica.filled(self.config.optimizer).learning_rate for replica in self.replicas])

    @property
    def losses_by_rate(self) -> dict[float, np.ndarray]:
        """The losses of the replicas of each learning rate; `transformer.learning_rate_curves` takes them by name."""
        rates = np.unique(self.learning_rates).tolist()
        return {rate: self.validation_loss[self.learning_rates == rate] for rate in rates}

    @functools.cached_property
    def best_rate(self) -> float:
        """The learning rate with the lowest mean loss; a diverged replica counts as a guess, or as the worst of all."""
        losses = charged(self.validation_loss, self.config.objective.chance(self.config.model))
        rates = np.unique(self.learning_rates)
        return float(rates[np.argmin([losses[self.learning_rates == rate].mean() for rate in rates])])

    @property
    def at_best_rate(self) -> np.ndarray:
        """(R,) whether a replica is healthy and has the best learning rate."""
        return self.healthy & (self.learning_rates == self.best_rate)

    def rows(self) -> list[dict[str, Any]]:
        """A dict for each replica, for `pandas.DataFrame`: seed, learning rate and what was measured at the end."""
        numbers = {"seed": np.array([replica.seed for replica in self.replicas]), "learning_rate": self.learning_rates}
        numbers |= {name: getattr(self, name) for name in ("validation_loss", "accuracy", "exact_match", "diverged_at")}
        return [{name: of[i].item() for name, of in numbers.items()} for i in range(len(self.replicas))]

    def params(self, replica: int | None = None) -> Params:
        """The parameters of a replica; None: of the one with the lowest loss, or of the first where none has a loss.

        Raises:
          ConfigError: there is no such replica.
        """
        if replica is None:
            replica = int(np.nan_to_num(self.validation_loss, nan=np.inf).argmin())
        if not 0 <= replica < len(self.replicas):
            raise ConfigError(f"replica: {replica} of {self.workdir}, which has 0 to {len(self.replicas) - 1}")
        return jax.tree.map(lambda a: jnp.asarray(a[replica]), processes.fetch(self.all_params))

    def curve(self, name: str) -> Curve:
        """A quantity of metrics.jsonl over the steps, such as "loss", "validation_loss" or "grad_norm".

        `transformer.loss_curves` takes it.

        Raises:
          ConfigError: nothing of that name was measured.
        """
        return read_curve(self.workdir, name, len(self.replicas))
