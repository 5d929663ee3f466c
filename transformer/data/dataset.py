"""Data of a run: batches by step, a held-out part, and the sizes that the config takes from the data."""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from transformer.core.checks import wrong_kind
from transformer.core.errors import ConfigError
from transformer.core.notebook import ShownAsText
from transformer.core.values import load_room
from transformer.data.order import Shuffled
from transformer.data.tokenizers import Tokenizer
from transformer.objectives.objective import Objective
from transformer.runs.config import RunConfig
from transformer.runs.data import DataConfig

Batch = dict[str, np.ndarray]
LARGEST = 2**31
"""Most numbers of an array of padded rows."""
EVALUATION_BATCH = 128
"""Rows of a held-out batch."""
ROOM = __name__.rpartition(".")[0]
"""This room, whose modules register how their data are loaded."""


class Batches(Protocol):
    """Batches as a pure function of the step, so that a checkpoint keeps only the number of the step."""

    def __getitem__(self, step: int) -> Batch: ...


class Dataset(Protocol):
    """What the training loop and the studies need of data."""

    @property
    def source(self) -> str:
        """Where the data came from."""
        ...

    @property
    def fingerprint(self) -> str:
        """sha256 of everything that determines its batches: a checkpoint is valid for the same data only."""
        ...

    @property
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        """The tokenizers, by the name of the file they are kept in, without its extension."""
        ...

    def complete(self, config: RunConfig) -> RunConfig:
        """The config with the sizes it leaves open taken from the data.

        Raises:
          ConfigError: the data does not fit the config.
        """
        ...

    def train_batches(self, config: RunConfig, seed: int) -> Batches:
        """The training batches of a replica, in an order that depends on its seed."""
        ...

    def validation_batches(self, config: RunConfig) -> Batch:
        """The whole held-out part, leading axes (N, B); rows that fill the last batch have weight 0."""
        ...

    def reference(self) -> tuple[str, float] | None:
        """Name and validation loss (nats, or squared error) of a simple model, for comparison; None without one."""
        ...


@functools.singledispatch
def load_data(config: DataConfig, stored: str | Path | None = None) -> Dataset:
    """The data a config describes; each kind of data registers how its own are loaded.

    Args:
      config: its type decides the kind of data.
      stored: a run's folder; the tokenizer there is used in place of one of these texts. A run that begins from the
        parameters of another one needs it, or ids mean other things than they did.

    Raises:
      ConfigError: the data cannot be read or does not fit the config, or `stored` has no tokenizer of its kind.
    """
    load_room(ROOM)
    own, other = (load_data.dispatch(kind) for kind in (type(config), object))
    if isinstance(config, str):
        raise ConfigError(
            f"data: a config is needed, and {config!r} is given; TextConfig(path={config!r}) reads a text"
        )
    if not isinstance(config, DataConfig):
        raise wrong_kind(config, DataConfig, "data")
    if own is other:
        raise ConfigError(f"data: no loader is registered for {type(config).__name__}")
    return own(config, stored)


def check_data(data: Any, where: str) -> None:
    """Raise `ConfigError` where something is not a `Dataset`, with the way to make one of it.

    Args:
      data: what was given.
      where: what it was given to.
    """
    if not all(hasattr(data, name) for name in ("complete", "train_batches", "validation_batches", "fingerprint")):
        given = repr(data) if isinstance(data, str) else type(data).__name__
        ways = {
            str: f"load_data(TextConfig(path={data!r}))",
            DataConfig: "load_data(data)",
            RunConfig: "load_data(config.data)",
        }
        way = next((way for kind, way in ways.items() if isinstance(data, kind)), "arrays(tokens) makes one of numbers")
        raise ConfigError(f"{where}: a data set is needed, and {given} is given; {way}")


def read_run_config(stored: dict[str, Any]) -> RunConfig:
    """The config of a stored run, of whatever kind its data are; raises `ConfigError` where it is none."""
    load_room(ROOM)
    return RunConfig.from_json(stored)


def described(config: RunConfig, description: DataConfig | None) -> RunConfig:
    """The config with what its data was loaded from, where it leaves that at the default.

    Raises:
      ConfigError: it describes other data.
    """
    if description is None or config.data == description:
        return config
    if config.data != type(config).data:
        raise ConfigError(f"data: the config describes {config.data}, and the data given are {description}")
    return config.replace({"data": description})


def check_reads_tokens(config: RunConfig, source: str) -> None:
    """Raise `ConfigError` where the objective of a run reads other arrays than sequences of tokens."""
    read = config.objective.limits(config.model)
    kind = config.model.kind
    if "tokens" not in read and (read or kind != "tokens"):
        what = ", ".join(read) or kind
        raise ConfigError(f"data: {source} are tokens, and the objective {config.objective} reads {what}")


def reference(config: RunConfig, data: Dataset) -> tuple[str, float] | None:
    """`data.reference()`, or None where the objective of a run counts other labels."""
    return None if config.objective.selects else data.reference()


class Rows:
    """Random rows of arrays in batches; every row is used once before any is used again."""

    def __init__(self, arrays: Mapping[str, np.ndarray], batch_size: int, seed: int):
        self._arrays = arrays
        self._rows = Shuffled(len(next(iter(arrays.values()))), batch_size, seed)

    def __getitem__(self, step: int) -> Batch:
        """The batch of that step, arrays (B, …)."""
        rows_B = self._rows[step]
        return {name: a[rows_B] for name, a in self._arrays.items()}


def whole(arrays: Mapping[str, np.ndarray], batch_size: int) -> Batch:
    """All rows in order as (N, B, …); rows of zeros, which have weight 0, fill the last batch."""
    count = len(next(iter(arrays.values())))
    missing = -count % batch_size
    return {
        name: np.concatenate([a, np.zeros((missing, *a.shape[1:]), a.dtype)]).reshape(-1, batch_size, *a.shape[1:])
        for name, a in arrays.items()
    }


def counted(split: Batch, objective: Objective) -> Batch:
    """A held-out part (N, B, …) with the `weights` of its labels, without which rows that fill a batch would count."""
    if "weights" in split:
        return split
    shape = next(iter(split.values())).shape[:2]
    weights = objective.weights({name: array.reshape(-1, *array.shape[2:]) for name, array in split.items()})
    return split | {"weights": np.asarray(weights, np.float32).reshape(*shape, *weights.shape[1:])}


def divisible(split: Batch, parts: int, *, in_order: bool = False) -> Batch:
    """A held-out part (N, B, …) whose batches so many devices can share: rows of zeros, which have weight 0, fill them.

    What a batch sums is the same on any number of devices up to B; of more, several batches are one.

    Args:
      split: its arrays.
      parts: number of devices.
      in_order: whether each batch is read after the one before, so that they stay single.
    """
    count, size = next(iter(split.values())).shape[:2]
    joined = 1 if in_order else max(1, parts // size)

    def shared(array: np.ndarray) -> np.ndarray:
        rest = [(0, 0)] * (array.ndim - 2)
        whole = np.pad(array, [(0, -count % joined), (0, 0), *rest]).reshape(-1, joined * size, *array.shape[2:])
        return np.pad(whole, [(0, 0), (0, -joined * size % parts), *rest])

    return {name: shared(array) for name, array in split.items()}


def first_batch(split: Batch) -> Batch:
    """The first batch of arrays (N, B, …), without the rows that fill it."""
    first = {name: array[0] for name, array in split.items()}
    if "weights" not in first:
        return first
    real_B = first["weights"].any(1)
    return {name: array[real_B] for name, array in first.items()}


@dataclass(frozen=True, kw_only=True)
class Examples(ShownAsText):
    """A data set of arrays with one row for each example; a subclass completes the config."""

    train: Batch
    validation: Batch
    """Held-out arrays; without `weights` all labels count."""
    source: str
    fingerprint: str
    tokenizer: Tokenizer | None
    description: DataConfig | None = None
    """What it was loaded from."""

    def __str__(self) -> str:
        """What it is; arrays are many lines."""
        train, held_out = (len(next(iter(part.values()))) for part in (self.train, self.validation))
        return f"{type(self).__name__}({self.source}: {train:,} training and {held_out:,} held-out examples)"

    @property
    def tokenizers(self) -> dict[str, Tokenizer]:
        return {} if self.tokenizer is None else {"tokenizer": self.tokenizer}

    def train_batches(self, config: RunConfig, seed: int) -> Batches:
        return Rows(self.train, config.batch_size, seed)

    def validation_batches(self, config: RunConfig) -> Batch:
        held_out = self.validation
        if "weights" not in held_out:  # the rows that fill the last batch count nothing
            held_out = held_out | {"weights": np.asarray(config.objective.weights(held_out), np.float32)}
        return whole(held_out, EVALUATION_BATCH)

    def reference(self) -> tuple[str, float] | None:
        return None


def weighted(arrays: Batch) -> Batch:
    """Arrays with `labels` (N,), and `weights` of 1 for all of them."""
    return arrays | {"weights": np.ones((len(arrays["labels"]), 1), np.float32)}


def stack_batches(replicas: Sequence[Batches], first: int, count: int) -> Batch:
    """The batches of `count` steps for each replica, arrays (R, T, B, …)."""
    distinct: dict[int, Batch] = {}
    for batches in {id(b): b for b in replicas}.values():
        steps = [batches[step] for step in range(first, first + count)]
        distinct[id(batches)] = {name: np.stack([step[name] for step in steps]) for name in steps[0]}
    return {name: np.stack([distinct[id(b)][name] for b in replicas]) for name in distinct[id(replicas[0])]}


def check_batches(batches: Batch, limits: Mapping[str, int], first: int, what: str = "batch of step") -> None:
    """Raise `ConfigError` that names the first id in arrays (R, T, B, …) that is not below its limit.

    Inside a compiled program such an id would be clamped, wrap, or become NaN.
    """
    for name, limit in limits.items():
        ids = batches.get(name)
        if ids is not None and ids.size and ids.dtype.kind in "iu" and (ids.min() < 0 or ids.max() >= limit):
            _, number, *place = (int(i) for i in np.argwhere((ids < 0) | (ids >= limit))[0])
            wrong = ids[(ids < 0) | (ids >= limit)][0]
            raise ConfigError(f"{what} {first + number}: {name} has {wrong} at {tuple(place)}, not in [0, {limit})")


def pad_rows(rows: Sequence[np.ndarray], length: int, count: int | None = None) -> np.ndarray:
    """Rows padded with zeros on the right, (N, length) int32; N is `count`, or else how many rows there are."""
    if len(rows) * length > LARGEST:
        raise ConfigError(
            f"data: {len(rows):,} rows padded to the longest, of {length:,} tokens, would be {len(rows) * length:.1e} "
            "numbers; shorten the long ones, or leave them out"
        )
    padded = np.zeros((len(rows) if count is None else count, length), np.int32)
    for place, row in zip(padded, rows, strict=count is None):
        place[: len(row)] = row
    return padded


def real_places(rows: Sequence[np.ndarray], length: int) -> np.ndarray:
    """(N, length) whether a place of a padded row is one of the row."""
    return np.arange(length) < np.array([len(row) for row in rows])[:, None]


def fingerprint_arrays(arrays: Mapping[str, np.ndarray], *more: Any) -> str:
    """sha256 of names, shapes, dtypes and bytes of arrays, and of the repr of `more`."""
    digest = hashlib.sha256(repr(more).encode())
    for name, a in sorted(arrays.items()):
        digest.update(f"{name} {a.dtype} {a.shape} ".encode() + np.ascontiguousarray(a).tobytes())
    return digest.hexdigest()
