"""Objectives of classifiers."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import jax.numpy as jnp

from transformer.core.checks import check_fields
from transformer.core.errors import ConfigError
from transformer.core.json import later
from transformer.models.classifier import ClassifierConfig
from transformer.objectives.objective import Smoothed


@dataclass(frozen=True)
class Classification(Smoothed):
    """Cross-entropy of a class. The batch holds `inputs`, `labels` (B,), and may hold `valid` (B, L)."""

    name = "classification"
    causal = None
    needs = ClassifierConfig
    per_token: ClassVar[bool] = False
    """Whether every token has a class."""
    class_weights: tuple[float, ...] = later(())
    """Factor on the loss of each class in training, in the order of the data's classes; empty: 1 for all."""

    def __post_init__(self):
        super().__post_init__()
        check_fields(self, f"{self.name}.")
        if any(not 0 <= weight < math.inf for weight in self.class_weights):
            raise ConfigError(f"{self.name}.class_weights: {self.class_weights} are not finite and at least 0")

    def losses(self, logits_BLV, labels_BL):
        losses_BL = super().losses(logits_BLV, labels_BL)
        return losses_BL * jnp.asarray(self.class_weights, jnp.float32)[labels_BL] if self.class_weights else losses_BL

    def plain(self):
        return replace(super().plain(), class_weights=())

    def check(self, model):
        super().check(model)
        if self.class_weights and model.num_classes not in (None, len(self.class_weights)):
            raise ConfigError(
                f"{self.name}.class_weights: {len(self.class_weights)} of them, and the model has {model.num_classes} "
                "classes"
            )
        if model.pooling.per_token != self.per_token:
            raise ConfigError(
                f"model.pooling: {model.pooling} does not fit the objective {self}; token_classification takes none"
            )

    def limits(self, model):
        inputs = {} if model.vocab_size is None else {"inputs": model.vocab_size}
        return {"labels": model.num_classes, **inputs}

    def chance(self, model):
        return math.log(model.num_classes)

    def labels(self, batch):
        return batch["labels"][..., None]

    def __call__(self, apply, params, batch, key):
        valid = {"valid_BL": batch["valid"]} if "valid" in batch else {}
        logits, penalty = self.answer(apply, params, batch["inputs"], key=key, **valid)
        logits_BLC = logits if self.per_token else logits[:, None]
        return self.sums(logits_BLC, self.labels(batch), self.weights(batch), penalty)


@dataclass(frozen=True)
class TokenClassification(Classification):
    """Cross-entropy of the class of each token: sequence labelling.

    The batch holds `inputs`, `labels` (B, L), and may hold `valid` (B, L) and `weights` (B, L) of the labels.
    """

    name = "token_classification"
    per_token = True

    def labels(self, batch):
        return batch["labels"]

    def weights(self, batch):
        if "weights" in batch or "valid" not in batch:
            return super().weights(batch)
        return batch["valid"].astype(jnp.float32)
