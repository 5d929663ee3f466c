"""Algorithmic tasks: random examples whose answers are computed.

A token is a special token (`<pad> <s> </s> <unk> <mask>`, ids 0 to 4) or a symbol of the task; symbol
i has id 5 + i.
"""

import abc
import math
import random
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from transformer.core.checks import check_fields
from transformer.core.errors import ConfigError, nearest
from transformer.core.values import Variant
from transformer.runs.tokenizers import SPECIAL

DIGITS = tuple("0123456789")
ROUNDS = 100
"""Draws of the wanted number of examples until so many different ones are there."""
Examples = tuple[np.ndarray, np.ndarray]
"""`tokens` (N, L) int32, and `scored` (N, L) bool: True at the tokens that are answers."""
Row = tuple[Sequence[str], Sequence[bool]]
"""The symbols of an example, and which of them are answers."""


class AlgorithmicTask(Variant):
    """A task. Its answers are what a causal model has to predict from all tokens before them."""

    @property
    @abc.abstractmethod
    def symbols(self) -> tuple[str, ...]:
        """The symbols of the task, without the special tokens."""

    @property
    @abc.abstractmethod
    def length(self) -> int:
        """L, the number of tokens of an example; shorter examples are padded on the right."""

    @abc.abstractmethod
    def examples(self, rng: np.random.Generator, count: int) -> Examples:
        """`count` random examples. An answer of variable length ends with `</s>`, scored too."""

    def at_least(self, **minima: float) -> None:
        """Raise `ConfigError` where a field has another type, or a smaller value."""
        check_fields(self, f"{self.name}.")
        for field, minimum in minima.items():
            if getattr(self, field) < minimum:
                raise ConfigError(f"{self.name}.{field}: {getattr(self, field)} is less than {minimum}")


class RowTask(AlgorithmicTask):
    """A task whose examples are drawn one by one."""

    def examples(self, rng, count):
        draw = random.Random(int(rng.integers(2**63)))
        ids = {symbol: i for i, symbol in enumerate((*SPECIAL, *self.symbols))}
        rows = [self.row(draw) for _ in range(count)]
        self._check(rows, ids)
        return padded([([ids[symbol] for symbol in symbols], scored) for symbols, scored in rows], self.length)

    def _check(self, rows: Sequence[Row], ids: Collection[str]) -> None:
        """Raise `ConfigError` where an example, perhaps of a task of one's own, is none of this task."""
        for row in rows:
            if not (isinstance(row, tuple) and len(row) == 2):
                raise ConfigError(
                    f"{self.name}: row gives {type(row).__name__}, not (symbols, which of them are answers)"
                )
            symbols, scored = row
            if unknown := [symbol for symbol in symbols if symbol not in ids]:
                raise ConfigError(f"{self.name}: row gives {unknown[0]!r}{nearest(str(unknown[0]), self.symbols)}")
            if not len(scored) == len(symbols) <= self.length:
                sizes = f"{len(symbols)} symbols and {len(scored)} truth values"
                raise ConfigError(f"{self.name}: row gives {sizes}; it needs as many, at most {self.length}")

    @abc.abstractmethod
    def row(self, draw: random.Random) -> Row:
        """A random example; an answer of variable length ends with `</s>`."""


def answered(question: Sequence[Any], answer: Sequence[Any]) -> tuple[list[Any], list[bool]]:
    """A question with the answer that follows it, as symbols or tokens, and which of them are answers."""
    return [*question, *answer], [False] * len(question) + [True] * len(answer)


def split(
    task: AlgorithmicTask,
    num_train: int,
    num_test: int,
    seed: int,
    test: AlgorithmicTask | None = None,
    distinct: bool = True,
) -> tuple[Examples, Examples]:
    """Examples for training and distinct ones for test; no sequence is in both.

    Args:
      task: the task of all examples.
      num_train: number of examples for training.
      num_test: number of examples for test.
      seed: of the examples.
      test: the task of the examples for test, where it is another one.
      distinct: whether no sequence for training comes twice.

    Raises:
      ConfigError: a number is negative, or a task has too few distinct examples.
    """
    if num_train < 0 or num_test < 0:
        raise ConfigError(f"split: {num_train} training and {num_test} test examples cannot be drawn")
    rng = np.random.default_rng(seed)
    if test is None and distinct:
        tokens, scored = _distinct(task, rng, num_train + num_test)
        # In the order of their first draw, the most probable examples would all be in the training part.
        train, held_out = np.split(rng.permutation(len(tokens)), [num_train])
        return (tokens[train], scored[train]), (tokens[held_out], scored[held_out])
    tokens, scored = _distinct(task, rng, num_train) if distinct else drawn(task, rng, num_train)
    seen = frozenset(_key(row) for row in tokens)
    return (tokens, scored), _distinct(task if test is None else test, rng, num_test, seen)


def _key(tokens: np.ndarray) -> bytes:
    """An example without the padding at its end, so that it is the same in tasks of two lengths."""
    return np.trim_zeros(tokens, "b").tobytes()


def _distinct(
    task: AlgorithmicTask, rng: np.random.Generator, count: int, seen: frozenset[bytes] = frozenset()
) -> Examples:
    """`count` different examples that were not seen, from at most `ROUNDS` · `count` draws.

    Of n equally probable examples, each stays unseen with probability exp(-`ROUNDS`) when all n are wanted.
    """
    found: dict[bytes, bytes] = {}
    for _ in range(ROUNDS):
        for tokens, scored in zip(*drawn(task, rng, count), strict=True):
            if not seen or _key(tokens) not in seen:
                found.setdefault(tokens.tobytes(), scored.tobytes())
        if len(found) >= count:
            tokens = np.frombuffer(b"".join(found), np.int32).reshape(-1, task.length)
            scored = np.frombuffer(b"".join(found.values()), bool).reshape(-1, task.length)
            return tokens[:count], scored[:count]
    raise ConfigError(f"{task}: only {len(found)} distinct examples in {ROUNDS * count} draws, {count} are wanted")


def drawn(task: AlgorithmicTask, rng: np.random.Generator, count: int) -> Examples:
    """Examples of a task, which may be one's own.

    Raises:
      ConfigError: they are not (count, L) int32 tokens that the task has and truth values, or one has no answer.
    """
    tokens, scored = task.examples(rng, count)
    shape, largest = (count, task.length), len(SPECIAL) + len(task.symbols) - 1
    for name, array, dtype in (("tokens", tokens, np.int32), ("scored", scored, np.bool)):
        kind = getattr(array, "dtype", type(array).__name__)
        if np.shape(array) != shape or kind != dtype:
            found = f"{kind} {np.shape(array)}"
            raise ConfigError(f"{task.name}: examples gives {name} {found}, not {np.dtype(dtype)} {shape}")
    if wrong := tokens[(tokens < 0) | (tokens > largest)].tolist():
        raise ConfigError(
            f"{task.name}: examples gives the token {wrong[0]}; symbol i is {len(SPECIAL)} + i, up to {largest}"
        )
    if not scored.any(1).all():
        raise ConfigError(f"{task.name}: examples gives one without an answer: scored is nowhere True in it")
    return tokens, scored


def keys_and_values(alphabet: int) -> tuple[str, ...]:
    """Symbols of which the first half are keys and the others values."""
    half = alphabet // 2
    return (*(f"k{i}" for i in range(half)), *(f"v{i}" for i in range(alphabet - half)))


def as_examples(symbols: np.ndarray, scored: np.ndarray) -> Examples:
    """Examples from numbers of symbols (N, L), and which of them are answers."""
    return (symbols + len(SPECIAL)).astype(np.int32), scored


def scored_from(symbols: np.ndarray, start: int) -> Examples:
    """Examples of equal length from numbers of symbols (N, L), in which the answer begins at `start`."""
    scored = np.broadcast_to(np.arange(symbols.shape[1]) >= start, symbols.shape)
    return as_examples(symbols, scored.copy())


def side_by_side(rows: Sequence[tuple[list[int], list[int]]], length: int) -> Examples:
    """Examples from the question and answer of every row, padded on the right."""
    return padded([answered(*row) for row in rows], length)


def padded(rows: Sequence[tuple[Sequence[int], Sequence[bool]]], length: int) -> Examples:
    """Examples from the tokens of every row and which of them are answers, padded on the right."""
    tokens, scored = np.zeros((len(rows), length), np.int32), np.zeros((len(rows), length), bool)
    for i, (row, answers) in enumerate(rows):
        tokens[i, : len(row)], scored[i, : len(row)] = row, answers
    return tokens, scored


def joined(*blocks: np.ndarray) -> np.ndarray:
    """Rows (N, L) with all of every block (N, …), one block after the other."""
    return np.hstack([block.reshape(len(block), math.prod(block.shape[1:])) for block in blocks])


def different(rng: np.random.Generator, count: int, size: int, drawn: int) -> np.ndarray:
    """Numbers (count, drawn) below `size`, different within a row."""
    numbers = np.empty((count, 0), np.int64)
    for i in range(drawn):
        numbers = np.append(numbers, skipping(rng.integers(size - i, size=(count, 1)), numbers), 1)
    return numbers


def skipping(ranks: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """The numbers with these ranks (N, M) among all that are not `taken`, (N, K)."""
    for number in np.sort(taken, 1).T:
        ranks = ranks + (ranks >= number[:, None])
    return ranks
