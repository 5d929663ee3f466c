"""Properties of objectives, and of what a classifier reads off its tokens, with a model and a batch for each.

Each raises AssertionError with one line where it does not hold.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from transformer.core.errors import ConfigError
from transformer.core.modules import Params
from transformer.core.sources import Code, code_of
from transformer.models.build import pure_model
from transformer.models.classifier import ClassifierConfig
from transformer.models.config import ModelConfig
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.models.images import PatchConfig, VisionConfig
from transformer.models.pooling import PerToken, Pooling
from transformer.models.vectors import VectorConfig
from transformer.objectives.classes import Classification, TokenClassification
from transformer.objectives.objective import Batch, Objective, Sums
from transformer.testing.comparing import applies, close
from transformer.testing.evaluation import Evaluated
from transformer.testing.subject import LENGTH, SMALL, VOCAB, initial_values, shaken, tokens_of
from transformer.training.gradient import draws

BATCH = 4
TOKENS = tokens_of(BATCH, LENGTH + 1)
IMAGES = np.random.default_rng(0).normal(size=(BATCH, 4, 4, 1)).astype(np.float32)
LABELS = np.arange(BATCH, dtype=np.int32) % 3
PATCHES = {"image_size": (4, 4, 1), "patch_size": 2}
FEATURES = {"features": 3, "outputs": 2}
VECTORS = {
    "inputs": np.random.default_rng(1).normal(size=(BATCH, LENGTH, 3)).astype(np.float32),
    "labels": np.random.default_rng(2).normal(size=(BATCH, LENGTH, 2)).astype(np.float32),
}
PAIRS = {"source": TOKENS[:, :5], "source_valid": np.ones((BATCH, 5), bool), "target": TOKENS[::-1].copy()}
CASES: Sequence[tuple[type[ModelConfig], Mapping[str, Any], Batch]] = (
    (VisionConfig, {"num_classes": 3, **PATCHES}, {"inputs": IMAGES, "labels": LABELS}),
    (PatchConfig, PATCHES, {"inputs": IMAGES}),
    (VectorConfig, FEATURES, VECTORS),
    (VectorConfig, {**FEATURES, "causal": False}, VECTORS),
    (EncoderDecoderConfig, {"source_vocab_size": VOCAB, "max_source_length": LENGTH}, PAIRS),
    (ClassifierConfig, {"num_classes": 3}, {"inputs": TOKENS, "labels": LABELS}),
    (ClassifierConfig, {"num_classes": 3, "pooling": PerToken()}, {"inputs": TOKENS, "labels": TOKENS % 3}),
    (ModelConfig, {}, {"tokens": TOKENS}),
    (ModelConfig, {"causal": False}, {"tokens": TOKENS}),
    (ModelConfig, {"predict_ahead": 2}, {"tokens": TOKENS}),
)
"""Kinds of model, the most special first, with a batch of each."""


class Task(NamedTuple):
    """An objective with a model that fits it, and a batch."""

    objective: Objective
    config: ModelConfig
    params: Params
    batch: Batch

    def sums(self, batch: Batch | None = None, key: jax.Array | None = None, **choices: Any) -> Sums:
        """The sums of a batch, of the model with some choices changed."""
        config = self.config.replace(choices)
        run = _sums(self.objective, config, code_of(self.objective, config))
        return run(self.params, self.batch if batch is None else batch, key)


@functools.cache
def _sums(objective: Objective, config: ModelConfig, code: Code) -> Evaluated:
    return Evaluated(functools.partial(objective, pure_model(config)[1]))


def task_of(objective: Objective, choices: Mapping[str, Any]) -> Task:
    """The objective with the first model that it takes.

    Raises:
      ConfigError: it takes none of them.
    """
    reason = ConfigError(f"{objective}: no batch is known for the model of a {objective.needs.__name__}")
    for kind, fields, batch in CASES:
        if not issubclass(objective.needs, kind):
            continue
        try:
            config = objective.needs(**{**SMALL, **fields})
            objective.check(config)  # before choices, which may make another case of it
            config = config.replace(dict(choices))
            objective.check(config)
        except ConfigError as error:
            reason = error
            continue
        return Task(objective, config, shaken(initial_values(config)), batch)
    raise reason


def counted(task: Task) -> None:
    """A loss and a weight at each position, finite, with no more labels than there are."""
    sums, labels = task.sums(), np.asarray(task.objective.labels(task.batch))
    assert isinstance(sums, Sums), f"it returns {type(sums).__name__}, and Sums is needed"
    shapes = [np.shape(each) for each in (sums.loss, sums.weight)]
    assert shapes[0] == shapes[1], f"losses have the shape {shapes[0]}, weights {shapes[1]}"
    assert all(np.isfinite(each).all() for each in sums), "sums are not finite"
    weight = float(np.sum(sums.weight))
    assert 0 < weight <= labels.size, f"{weight:g} of {labels.size} labels are counted"
    assert 0 <= sums.correct <= weight, f"{sums.correct:g} of {weight:g} labels are right"
    assert 0 <= sums.exact <= sums.sequences, f"{sums.exact:g} of {sums.sequences:g} sequences are right"


def added(task: Task) -> None:
    """The sums of a batch are those of its pieces together, however it is cut."""
    run = functools.partial(task.objective, pure_model(task.config)[1])
    applies(not draws(jax.make_jaxpr(run)(task.params, task.batch, None).jaxpr))  # of labels, chosen by their place
    pieces = [{name: a[rows] for name, a in task.batch.items()} for rows in (slice(0, 2), slice(2, BATCH))]
    whole, parts = task.sums(), [task.sums(piece) for piece in pieces]
    for name, found, *own in zip(Sums._fields, whole, *parts, strict=True):
        close(sum(own), found, f"{name} of a batch is not that of its pieces together", 1e-5)


def unweighted(task: Task) -> None:
    """What has no weight counts for nothing, whatever it is."""
    applies("tokens" in task.batch)
    tokens, weights = task.batch["tokens"], np.ones((BATCH, LENGTH), np.float32)
    weights[1:3] = 0
    others = tokens.copy()
    others[1:3] = (tokens[1:3] + 1) % VOCAB
    first, second = (task.sums({"tokens": each, "weights": weights}) for each in (tokens, others))
    for name, one, other in zip(Sums._fields, first, second, strict=True):
        close(one, other, f"{name} depends on labels of weight 0", 1e-5)
    assert first.sequences <= BATCH - 2, f"{first.sequences:g} sequences are counted, and {BATCH - 2} have a label"


def evaluated(task: Task) -> None:
    """Without a key nothing is dropped: the sums are those of the model without dropout, each time."""
    expected = task.sums(dropout=0.0)
    for _ in range(2):
        for name, found, wanted in zip(Sums._fields, task.sums(dropout=0.5), expected, strict=True):
            close(found, wanted, f"{name} without a key is not that of the model without dropout", 1e-5)


def dropped(task: Task) -> None:
    """A key turns dropout on, and decides what is dropped."""
    losses = [float(task.sums(key=jax.random.key(seed), dropout=0.5).loss.sum()) for seed in (0, 1, 0)]
    assert losses[0] == losses[2], "two losses under one key are not the same"
    assert losses[0] != losses[1], "two keys drop the same, or nothing: is the key given to the model?"


def trains(task: Task) -> None:
    """The gradient is finite, and not zero everywhere."""
    apply = pure_model(task.config)[1]
    run = Evaluated(jax.grad(lambda params: task.objective(apply, params, task.batch, None).loss.sum()))
    leaves = jax.tree.leaves(run(task.params))
    assert all(np.isfinite(leaf).all() for leaf in leaves), "the gradient is not finite"
    assert any(leaf.any() for leaf in leaves), "the gradient is zero"


def blind_to_padding(task: Task) -> None:
    """What a classifier says does not depend on padding."""
    apply = pure_model(task.config)[1]
    run = Evaluated(lambda tokens_BL, valid_BL: apply(task.params, tokens_BL, valid_BL=valid_BL))
    tokens, valid = task.batch["inputs"], np.arange(LENGTH + 1)[None] < np.array([[LENGTH + 1], [5], [3], [1]])
    others = np.where(valid, tokens, (tokens + 1) % VOCAB)
    first, second = run(tokens, valid), run(others, valid)
    where = valid if first.ndim == 3 else np.s_[:]
    close(first[where], second[where], "logits depend on padding", 1e-5)


def task_with(pooling: Pooling, choices: Mapping[str, Any]) -> Task:
    """Classification by a model with this pooling, of each token where it reads each."""
    objective = TokenClassification() if pooling.per_token else Classification()
    return task_of(objective, {"pooling": pooling, **choices})


OBJECTIVE = (counted, added, unweighted, evaluated, dropped, trains)
POOLING = (counted, blind_to_padding, trains)
