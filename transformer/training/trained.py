"""The replicas of a config after training."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from transformer.core.modules import Apply, Params
from transformer.core.values import ConfigError
from transformer.models.build import pure_model
from transformer.runs.config import Replica, RunConfig
from transformer.training import hosts
from transformer.training.metrics import Curve, read_curve


@dataclass(frozen=True)
class TrainedRun:
    """The trained replicas of a config; arrays have a leading replica axis R."""

    workdir: Path
    """Folder of the run."""
    config: RunConfig
    """The config, completed from the data."""
    replicas: Sequence[Replica]
    """Seeds and numbers of the replicas, in the order of the axis R."""
    all_params: Params = field(repr=False)
    """Parameters of all replicas as they are evaluated: averaged where the run averages."""
    validation_loss: np.ndarray
    """(R,) nats per token over the whole validation split; NaN where the replica diverged."""

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

    @functools.cached_property
    def best_rate(self) -> float:
        """The learning rate with the lowest mean loss, a diverged replica counting as a guess or the worst of all."""
        losses, guess = self.validation_loss, self.config.objective.chance(self.config.model)
        charged = np.where(np.isfinite(losses), losses, losses[np.isfinite(losses)].max(initial=guess))
        rates = np.unique(self.learning_rates)
        return float(rates[np.argmin([charged[self.learning_rates == rate].mean() for rate in rates])])

    @property
    def at_best_rate(self) -> np.ndarray:
        """(R,) whether a replica is healthy and has the best learning rate."""
        return self.healthy & (self.learning_rates == self.best_rate)

    def params(self, replica: int | None = None) -> Params:
        """The parameters of a replica; None: of the one with the lowest loss, or of the first where none has a loss.

        Raises:
          ConfigError: there is no such replica.
        """
        if replica is None:
            replica = int(np.nan_to_num(self.validation_loss, nan=np.inf).argmin())
        if not 0 <= replica < len(self.replicas):
            raise ConfigError(f"replica: {replica} of {self.workdir}, which has 0 to {len(self.replicas) - 1}")
        return jax.tree.map(lambda a: jnp.asarray(a[replica]), hosts.fetch(self.all_params))

    def curve(self, name: str) -> Curve:
        """A quantity of metrics.jsonl over the steps, such as "loss", "validation_loss" or "grad_norm".

        `transformer.loss_curves` takes it.

        Raises:
          ConfigError: nothing of that name was measured.
        """
        return read_curve(self.workdir, name, len(self.replicas))
