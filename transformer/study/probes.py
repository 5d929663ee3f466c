"""What a loss hides: numbers measured on the trained parameters of every run of an arm."""

import abc
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer.config.run import RunConfig
from transformer.config.variant import ConfigError, Variant
from transformer.data.dataset import Dataset
from transformer.models import pure
from transformer.models.build import build


class Probe(Variant, abc.ABC):
    """A number for each run, beside its loss."""

    @property
    @abc.abstractmethod
    def label(self) -> str:
        """The head of its column."""

    @abc.abstractmethod
    def __call__(self, config: RunConfig, params: Any, data: Dataset) -> np.ndarray:
        """(R,) from parameters with a leading axis of runs; NaN where it has no meaning."""


@dataclass(frozen=True)
class LongerText(Probe):
    """The loss on text `factor` times as long as in training, of the tokens past the length of training.

    (Press et al. 2021, section 3, without overlap.) NaN for a position that does not extrapolate.
    """

    factor: int = 2
    tokens: int = 32_768
    """Of the validation part, from its beginning; whole batches."""

    def __post_init__(self):
        if self.factor < 2 or self.tokens < 1:
            raise ConfigError(f"longertext: {self} is no longer text")

    @property
    def label(self):
        return f"loss at {self.factor}x length"

    def __call__(self, config, params, data):
        count = len(jax.tree.leaves(params)[0])
        if not config.model.position.extrapolates:
            return np.full(count, np.nan)
        length = config.model.max_length
        longer = config.replace({"model.max_length": self.factor * length})
        whole = data.validation_batches(longer, 1)
        num_batches = max(1, self.tokens // config.objective.labels(whole)[0].size)
        batches = {name: array[:num_batches] for name, array in whole.items()}
        _, apply = pure.split(pure.abstract(lambda key: build(config.model, key=key)))
        objective = config.objective.plain()

        @jax.jit
        def loss(params, batches):
            sums = jax.lax.map(lambda batch: objective(apply, params, batch, None), batches)
            return sums.loss.sum(0)[length:].sum() / jnp.maximum(sums.weight.sum(0)[length:].sum(), 1.0)

        runs = [jax.tree.map(lambda a, i=i: jnp.asarray(a[i]), jax.device_get(params)) for i in range(count)]
        return np.array([float(loss(run, batches)) for run in runs])
