"""Objectives: what is minimized, and what a batch has to hold for it.

An objective returns sums over a batch, so that the caller alone decides what to divide by. Its
batch is a dict of arrays; `weights` are 0 where a label is padding.
"""

import abc
import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp

from transformer.core.checks import check_not_negative
from transformer.core.errors import ConfigError
from transformer.core.values import Variant
from transformer.functional.segment_memory import SegmentMemory
from transformer.models.config import ModelConfig

Batch = dict[str, Any]


class Sums(NamedTuple):
    """Sums over a batch, float32."""

    loss: Any
    """(L,) loss at each position in nats (or squared error), summed over sequences."""
    weight: Any
    """(L,) number of real labels at each position."""
    correct: Any
    """() number of real labels to which the model gives the highest probability."""
    exact: Any
    """() number of sequences all of whose real labels are counted in `correct`."""
    sequences: Any
    """() number of sequences with a real label."""

    @classmethod
    def of(cls, losses_BL: jax.Array, weights_BL: jax.Array, hits_BL: jax.Array) -> Self:
        """Sums of what labels with a weight have; a label without one may have a loss that is no number.

        Args:
          losses_BL: (B, L) float32, of each label.
          weights_BL: (B, L) 1 where a label is real, else 0.
          hits_BL: (B, L) 1.0 where the model gives it the highest probability, else 0.0.

        Raises:
          ConfigError: they are of several shapes.
        """
        if not losses_BL.shape == weights_BL.shape == hits_BL.shape:
            shapes = f"{losses_BL.shape}, weights {weights_BL.shape}, hits {hits_BL.shape}"
            raise ConfigError(f"sums: losses have the shape {shapes}, and one shape (B, L) is needed")
        losses_BL = jnp.where(weights_BL > 0, losses_BL, 0.0)
        wrong_B = ((1 - hits_BL) * weights_BL).sum(1) > 0
        real_B = weights_BL.sum(1) > 0
        return cls(
            (losses_BL * weights_BL).sum(0),
            weights_BL.sum(0),
            (hits_BL * weights_BL).sum(),
            (real_B & ~wrong_B).sum().astype(jnp.float32),
            real_B.sum().astype(jnp.float32),
        )


ARRAYS = (
    *("tokens", "weights", "valid", "segments", "positions", "prefix"),
    *("source", "source_valid", "target", "inputs", "labels", "targets"),
)
"""What shipped objectives read of a batch."""


def check_names(batch: Batch) -> None:
    """Raise `ConfigError` where a batch has an array that nothing reads, by a name that is nearly that of another."""
    if not isinstance(batch, Mapping):
        raise ConfigError(f"batch: {type(batch).__name__} is given, and arrays by name are needed, such as tokens")
    for name in batch:
        if name not in ARRAYS and (meant := difflib.get_close_matches(name, ARRAYS, n=1, cutoff=0.85)):
            raise ConfigError(f"batch: no objective reads an array {name!r}; did you mean {meant[0]!r}?")


def packing_of(batch: Batch) -> dict[str, Any]:
    """Arguments for packed documents (which one an input token belongs to, and where in it) and for padding."""
    more = {f"{name}_BL": batch[name][:, :-1] for name in ("segments", "positions") if name in batch}
    return more | ({"valid_BL": batch["valid"]} if "valid" in batch else {})


@dataclass(frozen=True, kw_only=True)
class Objective(Variant):
    """A function of the pure model, its parameters, a batch, and a key, which turns dropout on."""

    auxiliary: float = 1.0
    """Factor on losses of the layers, such as that for an unequal load of experts."""
    causal: ClassVar[bool | None] = True
    """Whether the model has to be causal; None: either."""
    special: ClassVar[bool] = False
    """Whether it needs the special tokens of a tokenizer."""
    predicts_ahead: ClassVar[bool] = False
    """Whether it trains the predictions of tokens beyond the next one."""
    selects: ClassVar[bool] = False
    """Whether only some labels count; the n-gram reference counts all and is then not comparable."""
    needs: ClassVar[type[ModelConfig]] = ModelConfig
    """What the config of the model has to be: this or a subclass of the same `kind`."""
    reads_prefixes: ClassVar[bool] = False
    """Whether all tokens of a prompt see each other."""

    def __post_init__(self):
        check_not_negative(self, "auxiliary")

    def check(self, model: Any) -> None:
        """Raise `ConfigError` where the model cannot have this objective."""
        if not isinstance(model, self.needs) or model.kind != self.needs.kind:
            raise ConfigError(
                f"objective: {self} needs a model of {self.needs.__name__}, not of {type(model).__name__}"
            )
        if bool(model.predict_ahead) != self.predicts_ahead:
            raise ConfigError(
                f"model.predict_ahead: {model.predict_ahead} does not fit the objective {self}; multi_token trains them"
            )
        if model.memory_length is not None and not self.reads_segments:
            raise ConfigError(
                f"model.memory_length: {model.memory_length}, but batches of the objective {self} do not follow each "
                "other; use next_token"
            )
        if self.causal is not None and model.causal != self.causal:
            kind = "a causal" if self.causal else "an encoder (causal=False), not a causal"
            raise ConfigError(f"objective: {self} needs {kind} model")

    @property
    def reads_segments(self) -> bool:
        """Whether batches may be consecutive segments of one text, with memory carried over (`segment_sums`)."""
        return False

    @abc.abstractmethod
    def labels(self, batch: Batch) -> Any:
        """What is predicted, (…, L); its size is the number of tokens of the batch."""

    @abc.abstractmethod
    def __call__(self, apply: Callable[..., jax.Array], params: Any, batch: Batch, key: jax.Array | None) -> Sums: ...

    def segment_sums(
        self, apply: Callable[..., Any], params: Any, batch: Batch, key: jax.Array | None, earlier: SegmentMemory | None
    ) -> tuple[Sums, SegmentMemory | None]:
        """(sums of a batch, memory for the next one); the memory is None where the model keeps none."""
        assert earlier is None
        check_names(batch)
        if not isinstance(sums := self(apply, params, batch, key), Sums):
            fields = ", ".join(Sums._fields)
            raise ConfigError(f"objective: {self.name} returns {type(sums).__name__}, and Sums({fields}) is needed")
        return sums, None

    def limits(self, model: Any) -> dict[str, int]:
        """Number of ids, by the name of the array of the batch that holds them."""
        return {"tokens": model.vocab_size}

    def chance(self, model: Any) -> float:
        """The loss of a uniform guess, in nats."""
        return math.log(model.vocab_size)

    def plain(self) -> "Objective":
        """The objective of the evaluation: without smoothing and penalties, or another one of the same labels."""
        return replace(self, auxiliary=0.0)

    @property
    def judged_as(self) -> "Objective":
        """The objective whose loss evaluation reports: losses of two runs can be compared only where this is equal."""
        return self.plain()

    def answer(self, apply: Callable[..., Any], params: Any, *inputs: Any, **more: Any) -> tuple[jax.Array, Any]:
        """(the model's output, `auxiliary` times the losses of its layers)."""
        if not self.auxiliary:
            return apply(params, *inputs, **more), 0.0
        answer, penalty = apply(params, *inputs, with_penalty=True, **more)
        return answer, self.auxiliary * penalty

    def weights(self, batch: Batch) -> jax.Array:
        """(B, L) 1 where a label counts, else 0."""
        if "weights" in batch:
            return jnp.asarray(batch["weights"], jnp.float32)
        return jnp.ones(self.labels(batch).shape, jnp.float32)


def cross_entropy(
    logits: jax.Array, labels: jax.Array, *, label_smoothing: float = 0.0, z_loss: float = 0.0
) -> jax.Array:
    """-log softmax(logits)[label] for each label, (...) float32, in nats.

    The caller divides the *sum* by the number of real tokens of the whole batch, so that neither
    padding nor the way a batch is cut into pieces changes the gradient.

    Args:
      logits: (..., V), any float dtype.
      labels: (...) integers in [0, V).
      label_smoothing: the share of the target that is spread evenly over the vocabulary
        (Szegedy et al. 2016, section 7).
      z_loss: coefficient of log²Z, which is added; Z is the softmax normalizer
        (Chowdhery et al. 2022, section 5).
    """
    logits = logits.astype(jnp.float32)
    highest = jax.lax.stop_gradient(logits.max(-1, keepdims=True))
    log_normalizer = jnp.log(jnp.exp(logits - highest).sum(-1))
    # Of the logits themselves: taken from differences, all of those would be kept in memory beside them.
    target = (jnp.take_along_axis(logits, labels[..., None], -1) - highest)[..., 0]
    if label_smoothing:
        target = (1 - label_smoothing) * target + label_smoothing * (logits - highest).mean(-1)
    loss = log_normalizer - target
    return loss + z_loss * jnp.square(log_normalizer + highest[..., 0]) if z_loss else loss


class CrossEntropy(Objective):
    """One of labels, of which the model gives logits."""

    def losses(self, logits_BLV: jax.Array, labels_BL: jax.Array) -> jax.Array:
        """(B, L) float32, the loss of each label in nats."""
        return cross_entropy(logits_BLV, labels_BL)

    def sums(self, logits_BLV: jax.Array, labels_BL: jax.Array, weights_BL: jax.Array, penalty: Any) -> Sums:
        """The sums of a batch; the penalty of layers is added to the loss of each label."""
        hits_BL = (logits_BLV.argmax(-1).astype(jnp.int32) == labels_BL).astype(jnp.float32)
        return Sums.of(self.losses(logits_BLV, labels_BL) + penalty, weights_BL, hits_BL)


@dataclass(frozen=True)
class Smoothed(CrossEntropy):
    """One whose target may be spread over all labels."""

    label_smoothing: float = 0.0
    """Share of the target that is spread evenly over all labels, in [0, 1)."""

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.label_smoothing < 1:
            raise ConfigError(f"{self.name}.label_smoothing: {self.label_smoothing} is not in [0, 1)")

    def losses(self, logits_BLV, labels_BL):
        return cross_entropy(logits_BLV, labels_BL, label_smoothing=self.label_smoothing)

    def plain(self):
        return replace(super().plain(), label_smoothing=0.0)


@dataclass(frozen=True)
class TokenCrossEntropy(Smoothed):
    """One of tokens, which may keep the normalizer of the softmax near 1."""

    z_loss: float = 0.0
    """Coefficient of log²Z, Z the softmax normalizer."""

    def __post_init__(self):
        super().__post_init__()
        check_not_negative(self, "z_loss")

    def losses(self, logits_BLV, labels_BL):
        return cross_entropy(logits_BLV, labels_BL, label_smoothing=self.label_smoothing, z_loss=self.z_loss)

    def plain(self):
        return replace(super().plain(), z_loss=0.0)


@dataclass(frozen=True)
class NextToken(TokenCrossEntropy):
    """Cross-entropy of each token given those before it.

    The batch holds `tokens` (B, L + 1), and may hold `weights` (B, L) of the labels, `valid` (B, L), whether an input
    token is real, where rows are padded, and, where documents are packed, `segments` and `positions` (B, L + 1).
    """

    name = "next_token"

    @property
    def reads_segments(self):
        """Where a subclass does not ask the model in another way than `segment_sums` does."""
        own = type(self)
        as_here = own.__call__ is NextToken.__call__ and own.mask is NextToken.mask
        return as_here or own.segment_sums is not NextToken.segment_sums

    def labels(self, batch):
        return batch["tokens"][..., 1:]

    def __call__(self, apply, params, batch, key):
        inputs, more = batch["tokens"][:, :-1], packing_of(batch) | self.mask(batch)
        logits, penalty = self.answer(apply, params, inputs, key=key, **more)
        return self.sums(logits, self.labels(batch), self.weights(batch), penalty)

    def segment_sums(self, apply, params, batch, key, earlier):
        if earlier is None:
            return super().segment_sums(apply, params, batch, key, earlier)
        inputs = (batch["tokens"][:, :-1], earlier)
        (logits, earlier), penalty = self.answer(apply, params, *inputs, method="read_segment", key=key)
        return self.sums(logits, self.labels(batch), self.weights(batch), penalty), earlier

    def mask(self, batch: Batch) -> dict[str, Any]:
        return {}
