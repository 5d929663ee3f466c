"""What a run trains on: batches by step, a held-out part, and what the config takes from the data."""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import grain
import numpy as np

from transformer.config.run import DataConfig, RunConfig
from transformer.config.variant import ConfigError
from transformer.data.tokenizers import Tokenizer

Batch = dict[str, np.ndarray]
EVALUATION_BATCH = 128
"""Examples per device."""


class Batches(Protocol):
    """A pure function of the step; the position to checkpoint is the number of the step."""

    def __getitem__(self, step: int) -> Batch: ...


class Dataset(Protocol):
    """What the training loop and the studies need of data."""

    @property
    def source(self) -> str:
        """Where it came from."""
        ...

    @property
    def fingerprint(self) -> str:
        """sha256 of all that decides its batches: a checkpointed position means nothing in other data."""
        ...

    @property
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        """By the name of the file they are kept in, without its ending."""
        ...

    def complete(self, config: RunConfig) -> RunConfig:
        """The config with what it leaves open taken from the data.

        Raises:
          ConfigError: the data does not fit the config.
        """
        ...

    def train_batches(self, config: RunConfig, seed: int) -> Batches: ...

    def validation_batches(self, config: RunConfig, multiple: int) -> Batch:
        """The whole held-out part as batches, leading axes (N, B), B a multiple of `multiple`; `weights` 0 fills up."""
        ...

    def reference(self) -> tuple[str, float] | None:
        """The name and validation loss of a simple model, which tell a reader what a loss means."""
        ...


@functools.singledispatch
def load_data(config: DataConfig, stored: Path | None = None) -> Dataset:
    """The data a config describes.

    Args:
      config: its type says which kind of data.
      stored: a run's folder; a tokenizer that lies there is taken and not trained again.

    Raises:
      ConfigError: something is missing or wrong.
    """
    raise ConfigError(f"data: nothing is known to load {type(config).__name__}")


def reference(config: RunConfig, data: Dataset) -> tuple[str, float] | None:
    """`data.reference()` where the objective of a run counts the same labels."""
    return None if config.objective.selects else data.reference()


class Rows:
    """Random rows of arrays, batch by batch; every row is used once before any is used again."""

    def __init__(self, arrays: Mapping[str, np.ndarray], batch_size: int, seed: int):
        def row(i):
            return {name: a[i] for name, a in arrays.items()}

        rows = grain.MapDataset.range(len(next(iter(arrays.values()))))
        self._batches = rows.shuffle(seed=seed).repeat().map(row).batch(batch_size)

    def __getitem__(self, step: int) -> Batch:
        """Arrays (B, …)."""
        return dict(self._batches[int(step)] or {})


def whole(arrays: Mapping[str, np.ndarray], batch_size: int) -> Batch:
    """All rows in order as (N, B, …); rows of zeros, so of weight 0, fill the last batch."""
    count = len(next(iter(arrays.values())))
    missing = -count % batch_size
    return {
        name: np.concatenate([a, np.zeros((missing, *a.shape[1:]), a.dtype)]).reshape(-1, batch_size, *a.shape[1:])
        for name, a in arrays.items()
    }


@dataclass(frozen=True, kw_only=True)
class Examples:
    """A data set of arrays with one row for each example; a subclass completes the config."""

    train: Batch
    validation: Batch
    """With `weights` of its labels."""
    source: str
    fingerprint: str
    tokenizer: Tokenizer | None

    @property
    def tokenizers(self) -> dict[str, Tokenizer]:
        return {} if self.tokenizer is None else {"tokenizer": self.tokenizer}

    def train_batches(self, config: RunConfig, seed: int) -> Batches:
        return Rows(self.train, config.batch_size, seed)

    def validation_batches(self, config: RunConfig, multiple: int) -> Batch:
        return whole(self.validation, EVALUATION_BATCH * multiple)

    def reference(self) -> tuple[str, float] | None:
        return None


def weighted(arrays: Batch) -> Batch:
    """Arrays with `labels` (N,), all of them real."""
    return arrays | {"weights": np.ones((len(arrays["labels"]), 1), np.float32)}


def stack_batches(replicas: Sequence[Batches], first: int, count: int) -> Batch:
    """Arrays (R, T, B, …): the batches of `count` steps for each replica."""
    distinct: dict[int, Batch] = {}
    for batches in {id(b): b for b in replicas}.values():
        steps = [batches[step] for step in range(first, first + count)]
        distinct[id(batches)] = {name: np.stack([step[name] for step in steps]) for name in steps[0]}
    return {name: np.stack([distinct[id(b)][name] for b in replicas]) for name in distinct[id(replicas[0])]}


def check_tokens(tokens: np.ndarray, vocab_size: int, what: str) -> None:
    """Raise `ConfigError` with the first place where a token is not in [0, vocab_size)."""
    wrong = np.argwhere((tokens < 0) | (tokens >= vocab_size))
    if len(wrong):
        place = tuple(int(i) for i in wrong[0])
        raise ConfigError(f"{what}: token {tokens[place]} at {place} is not in [0, {vocab_size})")


def check_batches(batches: Batch, limits: Mapping[str, int], first: int, what: str = "batch of step") -> None:
    """Raise `ConfigError` with the place of the first id of arrays (R, T, B, …) that is not below its limit.

    Inside a compiled program such an id would be clamped, wrap, or become NaN.
    """
    for name, limit in limits.items():
        ids = batches.get(name)
        if ids is not None and ids.size and ids.dtype.kind in "iu" and (ids.min() < 0 or ids.max() >= limit):
            _, number, *place = (int(i) for i in np.argwhere((ids < 0) | (ids >= limit))[0])
            wrong = ids[(ids < 0) | (ids >= limit)][0]
            raise ConfigError(f"{what} {first + number}: {name} has {wrong} at {tuple(place)}, not in [0, {limit})")


def pad_rows(rows: Sequence[np.ndarray], length: int) -> np.ndarray:
    """(N, length) int32, zeros behind each row."""
    padded = np.zeros((len(rows), length), np.int32)
    for place, row in zip(padded, rows, strict=True):
        place[: len(row)] = row
    return padded


def fingerprint_arrays(arrays: Mapping[str, np.ndarray], *more: Any) -> str:
    """sha256 of names, shapes, dtypes and bytes, and of the repr of what else there is."""
    digest = hashlib.sha256(repr(more).encode())
    for name, a in sorted(arrays.items()):
        digest.update(f"{name} {a.dtype} {a.shape} ".encode() + np.ascontiguousarray(a).tobytes())
    return digest.hexdigest()
