"""The replicas of a config after their training."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from transformer.config.run import Replica, RunConfig
from transformer.config.variant import ConfigError
from transformer.models.build import pure_model
from transformer.models.pure import Apply, Params
from transformer.training import hosts


@dataclass(frozen=True)
class TrainedRun:
    """What to look into or go on with; arrays have a leading axis R."""

    workdir: Path
    config: RunConfig
    replicas: Sequence[Replica]
    all_params: Params = field(repr=False)
    """As they are evaluated: averaged where the run averages."""
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

    @functools.cached_property
    def at_best_rate(self) -> np.ndarray:
        """(R,) whether a replica is healthy and has the best learning rate: fewest diverged, then lowest mean loss."""
        rates = np.array([replica.filled(self.config.optimizer).learning_rate for replica in self.replicas])

        def rank(rate):
            losses = self.validation_loss[rates == rate]
            healthy = losses[np.isfinite(losses)]
            return len(losses) - len(healthy), healthy.mean() if len(healthy) else np.inf

        return self.healthy & (rates == min(np.unique(rates), key=rank))

    def params(self, replica: int | None = None) -> Params:
        """Of a replica; None is the one with the lowest loss, or the first where none has one.

        Raises:
          ConfigError: there are not so many replicas.
        """
        if replica is None:
            replica = int(np.nan_to_num(self.validation_loss, nan=np.inf).argmin())
        if not 0 <= replica < len(self.replicas):
            raise ConfigError(f"replica: {replica} of {self.workdir}, which has 0 to {len(self.replicas) - 1}")
        return jax.tree.map(lambda a: jnp.asarray(a[replica]), hosts.fetch(self.all_params))
