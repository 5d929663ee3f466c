"""One training run: data, model, optimizer, and how long."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from transformer.config.groups import ParameterGroup
from transformer.config.model import ModelConfig
from transformer.config.objectives import NextToken, Objective
from transformer.config.rules import AdamW, UpdateRule
from transformer.config.schedules import Cosine, Schedule
from transformer.config.tokenizers import Char, Tokenization
from transformer.config.variant import ConfigError, check_fields, from_json, replace, to_json, to_json_as

COUNTS = (
    "steps",
    "batch_size",
    "average_last",
    "accumulation",
    "steps_per_dispatch",
    "evaluate_every",
    "checkpoint_every",
)


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """What a run trains on; a subclass for each kind of data."""

    @property
    def follows(self) -> bool:
        """Whether a batch can continue where the previous one ended."""
        return False


@dataclass(frozen=True, kw_only=True)
class TextConfig(DataConfig):
    """A text and how it becomes tokens."""

    path: str | None = None
    """A UTF-8 text file; None: a text that comes with Python."""
    embedded: Literal["topics", "sources"] = "topics"
    """Without a path: the prose of Python's documentation (pydoc_data.topics), or the standard library's sources."""
    tokenizer: Tokenization = Char()
    """The tokenizer, which defines what a token is."""
    document_separator: str | None = None
    """Text between documents, which are then packed into rows and do not see each other; None: one text."""
    validation_fraction: float = 0.1
    """Share of the text, at its end, that is held out; in (0, 1)."""

    @property
    def follows(self):
        return self.document_separator is None

    def __post_init__(self):
        check_fraction("validation_fraction", self.validation_fraction)
        if self.document_separator == "":
            raise ConfigError("data.document_separator: an empty text separates nothing")


def check_fraction(name: str, value: float) -> None:
    """Raise `ConfigError` where it is not between 0 and 1."""
    if not 0 < value < 1:
        raise ConfigError(f"data.{name}: {value} is not between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """An update rule with decoupled weight decay, warm-up, a schedule and clipping."""

    rule: UpdateRule = AdamW()
    """How a gradient becomes a step."""
    learning_rate: float = 1e-3
    """Peak learning rate."""
    weight_decay: float = 0.1
    """Decoupled weight decay of matrices, multiplied by the learning rate."""
    warmup_steps: int = 100
    """Steps of linear warm-up; 0: no warm-up."""
    schedule: Schedule = Cosine()
    """The factor on the learning rate after warm-up."""
    clip_norm: float | None = 1.0
    """Largest global norm of the gradient; None: no clipping."""
    groups: tuple[ParameterGroup, ...] = ()
    """Parameters with other learning rates and decays; the first matching pattern wins."""
    skip_limit: int = 0
    """Consecutive updates that may be skipped because loss or gradient is not finite; one more is divergence.

    Skipped updates do not advance the schedule; the logged learning rates ignore that.
    """
    skip_above: float | None = None
    """Norm of the gradient, before clipping, above which an update is skipped too; None: none is for its norm."""

    def __post_init__(self):
        check_fields(self, "optimizer.")
        for name in ("learning_rate", "weight_decay", "warmup_steps"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"optimizer.{name}: {getattr(self, name)} is negative")
        if self.clip_norm is not None and self.clip_norm <= 0:
            raise ConfigError(f"optimizer.clip_norm: {self.clip_norm} is not a positive number; None clips nothing")
        if self.skip_limit < 0:
            raise ConfigError(f"optimizer.skip_limit: {self.skip_limit} is negative")
        if self.skip_above is not None and (self.skip_above <= 0 or not self.skip_limit):
            raise ConfigError(
                f"optimizer.skip_above: {self.skip_above} needs to be positive, and a skip_limit of at least 1"
            )


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that determines the numbers of a run, except the seed."""

    model: ModelConfig = ModelConfig()
    """The model."""
    data: DataConfig = TextConfig()
    """What it is trained on."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """How it is trained."""
    objective: Objective = NextToken()
    """What is minimized."""
    steps: int = 2000
    """Updates of the parameters."""
    batch_size: int = 12
    """Sequences per step."""
    average_last: int | None = None
    """Evaluate the mean of the parameters over this many last steps; None: the final parameters."""
    average_decay: float | None = None
    """Share that the mean keeps at every step, in (0, 1): an exponential moving average, over `average_last` steps or
    all; None: steps count alike."""
    accumulation: int = 1
    """Number of pieces in which a batch is computed, one after another; the gradient does not change."""
    steps_per_dispatch: int = 10
    """Steps per call of the compiled program."""
    evaluate_every: int | None = None
    """Steps between evaluations of the whole validation split; None: only at the end."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; None: only at the end."""

    def __post_init__(self):
        check_fields(self, "")
        for name in COUNTS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}: {value} is not a positive number")
        if self.batch_size % self.accumulation:
            raise ConfigError(f"accumulation: batch_size {self.batch_size} is not a multiple of {self.accumulation}")
        if self.average_decay is not None and not 0 < self.average_decay < 1:
            raise ConfigError(f"average_decay: {self.average_decay} is not in (0, 1)")
        if self.average_from is not None and self.optimizer.rule.averages:
            name = "average_decay" if self.average_last is None else "average_last"
            raise ConfigError(f"{name}: {self.optimizer.rule} is judged by a mean of its own; use None, or adamw")
        self.objective.check(self.model)
        if self.model.memory_length is not None and not self.data.follows:
            raise ConfigError(
                f"model.memory_length: {self.model.memory_length}, but rows of this data do not follow each other; "
                "use one text without data.document_separator"
            )

    @property
    def average_from(self) -> int | None:
        """The first step whose resulting parameters are averaged; None: they are not."""
        if self.average_last is None:
            return None if self.average_decay is None else 0
        return max(self.steps - self.average_last, 0)

    def replace(self, changes: dict[str, Any] | None = None, **more: Any) -> Self:
        """A copy with fields changed by dotted path: `replace({"model.norm": RMSNorm()}, steps=100)`."""
        return replace(self, {**(changes or {}), **more})

    def to_json(self) -> dict[str, Any]:
        """The config as JSON data; a subclass of `RunConfig` is named in it."""
        return to_json_as(RunConfig, self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_json`; raises `ConfigError` where the data is no such config."""
        return from_json(cls, data)


@dataclass(frozen=True, kw_only=True)
class Replica:
    """The numbers in which runs of one compiled program may differ; None: the config's."""

    seed: int = 0
    """Determines initial values, dropout and the order of the data; in [0, 2³¹)."""
    learning_rate: float | None = None
    weight_decay: float | None = None
    warmup_steps: int | None = None
    initial_scale: float = 1.0
    """Factor on every random initial value."""

    def __post_init__(self):
        if not 0 <= self.seed < 2**31:
            raise ConfigError(f"seed: {self.seed} is not in [0, 2³¹)")
        for name in ("learning_rate", "weight_decay", "warmup_steps", "initial_scale"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ConfigError(f"{name}: {value} is negative")

    def filled(self, optimizer: OptimizerConfig) -> "Replica":
        """The replica with the config's numbers where it has none of its own."""
        names = ("learning_rate", "weight_decay", "warmup_steps")
        return dataclasses.replace(self, **{n: getattr(optimizer, n) for n in names if getattr(self, n) is None})


def grid(seeds: Iterable[int], learning_rates: Sequence[float] = ()) -> tuple[Replica, ...]:
    """Every learning rate with every seed, all seeds of the first learning rate first.

    Args:
      seeds: an iterable of integers, such as `range(8)`.
      learning_rates: a sequence of peak learning rates; empty: the config's.

    Raises:
      ConfigError: a seed or a learning rate is given twice.
    """
    seeds = list(seeds)
    for name, values in (("seeds", seeds), ("learning_rates", learning_rates)):
        if twice := [value for i, value in enumerate(values) if value in values[:i]]:
            raise ConfigError(f"{name}: {twice[0]} is given twice")
    return tuple(Replica(seed=s, learning_rate=lr) for lr in (learning_rates or (None,)) for s in seeds)


def fingerprint(value: Any) -> str:
    """sha256 of the canonical JSON of a config, a tuple of replicas, or plain JSON data; else raises TypeError."""
    text = json.dumps(to_json(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
