"""The objective of a model that predicts numbers."""

import math
from dataclasses import dataclass

import jax.numpy as jnp

from transformer.core.errors import ConfigError
from transformer.models.vectors import VectorConfig
from transformer.objectives.objective import Objective, Sums


@dataclass(frozen=True)
class Regression(Objective):
    """Squared error of the numbers predicted at each place, their mean where there are several.

    The batch holds `inputs` (B, L, features), `labels` (B, L, outputs), and may hold `weights` (B, L) of the labels.
    """

    name = "regression"
    needs = VectorConfig

    def labels(self, batch):
        return batch["labels"][..., 0]

    def limits(self, model):
        return {}

    def chance(self, model):
        return math.inf

    def __call__(self, apply, params, batch, key):
        if "valid" in batch:
            raise ConfigError("regression: a batch has no `valid`; `weights` (B, L) say which labels count")
        predicted_BLO, penalty = self.answer(apply, params, batch["inputs"], key=key)
        if batch["labels"].shape != predicted_BLO.shape:
            raise ConfigError(f"regression: labels {batch['labels'].shape} for predictions {predicted_BLO.shape}")
        # A label that does not count may be NaN, and no gradient passes a square of NaN, not even 0 times.
        weights_BL = self.weights(batch)
        labels_BLO = jnp.where(weights_BL[..., None] > 0, batch["labels"], 0)
        errors_BL = jnp.square(predicted_BLO - labels_BLO).mean(-1) + penalty
        return Sums.of(errors_BL, weights_BL, jnp.zeros_like(errors_BL))
