"""One training run: data, model, optimizer, and how long."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np

from transformer.core.changes import Config
from transformer.core.checks import check_fields, check_seed
from transformer.core.errors import ConfigError
from transformer.core.json import from_json, to_json_as
from transformer.models.config import ModelConfig
from transformer.objectives.objective import NextToken, Objective
from transformer.runs.data import DataConfig, TextConfig
from transformer.runs.optimizer import OptimizerConfig, check_number

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
class RunConfig(Config):
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
    """Number of pieces in which a batch is computed, one after another. The gradient does not change, but for that of
    what layers ask of a whole batch, such as an equal load of experts, which is asked of each piece, and of what is
    drawn at random, such as dropout, which is drawn anew for each."""
    steps_per_dispatch: int = 10
    """Steps per call of the compiled program; calls end where an evaluation or a checkpoint is due, and each length of
    a call is compiled once."""
    evaluate_every: int | None = None
    """Steps between evaluations of the whole validation split; None: only at the end."""
    checkpoint_every: int | None = None
    """Steps between checkpoints, of which there is one at the end too; None: they are ten minutes apart."""
    matmul_precision: Literal["float32", "bfloat16"] | None = None
    """Precision of products of float32 matrices. `bfloat16` rounds their factors and adds in float32: a step of
    `nanogpt-cpu` takes two thirds of the time where the processor has instructions for it (AVX512-BF16, AMX), and 1.3
    times as long where it has not. None: as JAX is set (`jax.default_matmul_precision`)."""

    def __post_init__(self):
        check_fields(self, "")
        check_fields(self.data, "data.")  # again, as a kind of one's own may not do it
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
        if self.model.memory_length is not None and not self.data.continuous:
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
        check_fields(self, "")
        check_seed(self.seed)
        for name in ("learning_rate", "weight_decay", "warmup_steps", "initial_scale"):
            value = getattr(self, name)
            if value is not None:
                check_number(value, name)

    def filled(self, optimizer: OptimizerConfig) -> "Replica":
        """The replica with the config's numbers where it has none of its own."""
        names = ("learning_rate", "weight_decay", "warmup_steps")
        return dataclasses.replace(self, **{n: getattr(optimizer, n) for n in names if getattr(self, n) is None})


def grid(seeds: Iterable[int] | int, learning_rates: Sequence[float] | np.ndarray = ()) -> tuple[Replica, ...]:
    """Every learning rate with every seed, all seeds of the first learning rate first.

    Args:
      seeds: an iterable of integers, such as `range(8)`, or how many of them, from 0 on.
      learning_rates: a sequence of peak learning rates, or an array of them; empty: the config's.

    Raises:
      ConfigError: a seed or a learning rate is given twice, or there is no seed.
    """
    seeds, learning_rates = _plain(seeds), _plain(learning_rates)
    if not isinstance(seeds, Iterable | int):
        raise ConfigError(f"seeds: {seeds!r} is neither a whole number nor a sequence of them")
    if isinstance(learning_rates, str) or not isinstance(learning_rates, Sequence):
        raise ConfigError(f"learning_rates: {learning_rates!r} is no sequence; ({learning_rates!r},) is one of it")
    seeds = [_plain(seed) for seed in (range(seeds) if isinstance(seeds, int) else seeds)]
    learning_rates = [_plain(rate) for rate in learning_rates]
    if not seeds:
        raise ConfigError("seeds: none is given; grid(4) has the seeds 0 to 3")
    for name, values in (("seeds", seeds), ("learning_rates", learning_rates)):
        if twice := [value for i, value in enumerate(values) if value in values[:i]]:
            raise ConfigError(f"{name}: {twice[0]} is given twice")
    return tuple(Replica(seed=s, learning_rate=lr) for lr in (learning_rates or (None,)) for s in seeds)


def _plain(values: Any) -> Any:
    """Arrays and numbers of NumPy and JAX as lists and numbers of Python."""
    return values.tolist() if hasattr(values, "tolist") else values


def unfinished_warm_up(config: RunConfig, replicas: Sequence[Replica]) -> str:
    """What to say where the learning rate of a replica never reaches its peak; empty where all do."""
    longest = max(replica.filled(config.optimizer).warmup_steps or 0 for replica in replicas)
    told = f"warm-up takes {longest} steps of {config.steps}, so the learning rate never reaches its peak"
    return told if longest >= config.steps else ""


def unused_vocabulary(config: RunConfig, known: int | None) -> str:
    """What to say where the model has more than twice as many tokens as its tokenizer knows; empty elsewhere."""
    size = config.model.vocab_size
    if size is None or known is None or size <= 2 * known:
        return ""
    return f"model.vocab_size is {size:,} and the tokenizer knows {known:,}; leave it out to have as many"
