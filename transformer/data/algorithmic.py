"""Algorithmic tasks: random examples whose answers are computed.

A token is a special token (`<pad> <s> </s> <unk> <mask>`, ids 0 to 4) or a symbol of the task; symbol
i has id 5 + i.
"""

import abc
import functools
import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from transformer.core.values import ConfigError, Variant, nearest
from transformer.data.tokenizers import END
from transformer.runs.tokenizers import SPECIAL

_DIGITS = tuple("0123456789")

Examples = tuple[np.ndarray, np.ndarray]
"""`tokens` (N, L) int32, and `scored` (N, L) bool: True at the tokens that are answers."""


class AlgorithmicTask(Variant, abc.ABC):
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

    def _at_least(self, **minima: float) -> None:
        for field, minimum in minima.items():
            if getattr(self, field) < minimum:
                raise ConfigError(f"{self.name}.{field}: {getattr(self, field)} is less than {minimum}")


def split(task: AlgorithmicTask, num_train: int, num_test: int, seed: int) -> tuple[Examples, Examples]:
    """Distinct examples for training and for test; no sequence is in both.

    Raises:
      ConfigError: a number is negative, or the task has too few distinct examples.
    """
    if num_train < 0 or num_test < 0:
        raise ConfigError(f"split: {num_train} training and {num_test} test examples cannot be drawn")
    rng = np.random.default_rng(seed)
    tokens, scored = _distinct(task, rng, num_train + num_test)
    # In the order of their first draw, the most probable examples would all be in the training part.
    train, test = np.split(rng.permutation(len(tokens)), [num_train])
    return (tokens[train], scored[train]), (tokens[test], scored[test])


def _distinct(task: AlgorithmicTask, rng: np.random.Generator, count: int, rounds: int = 100) -> Examples:
    """`count` different examples from at most `rounds` · `count` draws.

    Of n equally probable examples, each stays unseen with probability exp(-`rounds`) when all n are wanted.
    """
    found: dict[bytes, bytes] = {}
    for _ in range(rounds):
        for tokens, scored in zip(*task.examples(rng, count), strict=True):
            found.setdefault(tokens.tobytes(), scored.tobytes())
        if len(found) >= count:
            tokens = np.frombuffer(b"".join(found), np.int32).reshape(-1, task.length)
            scored = np.frombuffer(b"".join(found.values()), bool).reshape(-1, task.length)
            return tokens[:count], scored[:count]
    raise ConfigError(f"{task}: only {len(found)} distinct examples in {rounds * count} draws, {count} are wanted")


@dataclass(frozen=True)
class _Rewriting(AlgorithmicTask):
    """`x ... x = y ... y </s>`: 1 to `items` symbols of an alphabet, all numbers of them equally probable."""

    items: int = 10
    """Largest number of symbols."""
    alphabet: int = 10
    """Number of different symbols."""

    def __post_init__(self):
        self._at_least(items=1, alphabet=1)

    @property
    def symbols(self):
        return (*map(str, range(self.alphabet)), "=")

    @property
    def length(self):
        return 2 * self.items + 2

    def examples(self, rng, count):
        sizes = rng.integers(1, self.items + 1, count)
        items = rng.integers(self.alphabet, size=(count, self.items)) + len(SPECIAL)
        questions = [row[:size].tolist() for row, size in zip(items, sizes, strict=True)]
        equals = len(SPECIAL) + self.alphabet
        return _side_by_side([([*q, equals], [*self._answer(q), END]) for q in questions], self.length)

    @abc.abstractmethod
    def _answer(self, items: list[int]) -> list[int]: ...


@dataclass(frozen=True)
class Copy(_Rewriting):
    """`3 1 2 = 3 1 2 </s>` (Graves et al. 2014, section 4.1)."""

    def _answer(self, items):
        return items


@dataclass(frozen=True)
class Reverse(_Rewriting):
    """`3 1 2 = 2 1 3 </s>` (Grefenstette et al. 2015, section 4.1)."""

    def _answer(self, items):
        return items[::-1]


@dataclass(frozen=True)
class Sort(_Rewriting):
    """`3 1 2 = 1 2 3 </s>` (Graves et al. 2014, section 4.5, without priorities)."""

    def _answer(self, items):
        return sorted(items)


@dataclass(frozen=True)
class Addition(AlgorithmicTask):
    """`0 1 7 + 9 8 5 = 2 0 0 1`: two numbers of `digits` digits, and their sum with one more.

    The sum begins with its least significant digit if `reverse` (Lee et al. 2023).
    """

    digits: int = 3
    """Digits of each number."""
    reverse: bool = True
    """Whether the sum begins with its least significant digit."""

    def __post_init__(self):
        self._at_least(digits=1)

    @property
    def symbols(self):
        return (*_DIGITS, "+", "=")

    @property
    def length(self):
        return 3 * self.digits + 3

    def examples(self, rng, count):
        a, b = rng.integers(10, size=(2, count, self.digits))
        total = np.pad(a + b, ((0, 0), (1, 0)))
        for i in range(self.digits, 0, -1):
            total[:, i - 1] += total[:, i] // 10
        total = total[:, ::-1] % 10 if self.reverse else total % 10
        plus, equals = (np.full((count, 1), symbol) for symbol in (10, 11))
        return _scored_from(np.concatenate([a, plus, b, equals, total], 1), 2 * self.digits + 2)


_SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}


@dataclass(frozen=True)
class ModularArithmetic(AlgorithmicTask):
    """`a + b = c` modulo `modulus` (Power et al. 2022); division is by b ≠ 0 and needs a prime modulus."""

    name = "modular_arithmetic"
    modulus: int = 97
    """At least 2."""
    operation: Literal["add", "subtract", "multiply", "divide"] = "add"
    """The operation of a and b."""

    def __post_init__(self):
        self._at_least(modulus=2)
        if self.operation not in _SIGNS:
            known = nearest(str(self.operation), _SIGNS)
            raise ConfigError(f"{self.name}.operation: unknown value {self.operation!r}{known}")
        if self.operation == "divide" and any(self.modulus % n == 0 for n in range(2, math.isqrt(self.modulus) + 1)):
            raise ConfigError(f"{self.name}.modulus: {self.modulus} is not a prime, which a division needs")

    @property
    def symbols(self):
        return (*map(str, range(self.modulus)), _SIGNS[self.operation], "=")

    @property
    def length(self):
        return 5

    def examples(self, rng, count):
        p = self.modulus
        a, b = rng.integers(p, size=count), rng.integers(int(self.operation == "divide"), p, count)
        if self.operation == "divide":
            a, c = a * b % p, a
        else:
            c = {"add": a + b, "subtract": a - b, "multiply": a * b}[self.operation] % p
        return _scored_from(np.stack([a, np.full(count, p), b, np.full(count, p + 1), c], 1), 4)


@dataclass(frozen=True)
class AssociativeRecall(AlgorithmicTask):
    """Multi-query associative recall, MQAR (Arora et al. 2023, "Zoology").

    `pairs` keys with their values come first; later every key occurs once more (a query), followed by its
    value, the answer. Keys are from the first half of the alphabet, values from the second, and none is in
    two pairs. After the pairs come slots of two tokens, of which slot g holds a query with probability
    ∝ g^(`power` - 1); all other tokens are random and no keys.
    """

    name = "associative_recall"
    alphabet: int = 256
    """Number of different symbols, at least 2 `pairs`."""
    sequence_length: int = 64
    """Tokens of an example, at least 4 `pairs`."""
    pairs: int = 4
    """Pairs of a key and a value."""
    power: float = 0.01
    """Smaller values place queries closer to the pairs; positive."""

    def __post_init__(self):
        self._at_least(pairs=1, alphabet=2 * self.pairs, sequence_length=4 * self.pairs)
        if not self.power > 0:
            raise ConfigError(f"{self.name}.power: {self.power} is not positive")

    @property
    def symbols(self):
        half = self.alphabet // 2
        return (*(f"k{i}" for i in range(half)), *(f"v{i}" for i in range(self.alphabet - half)))

    @property
    def length(self):
        return self.sequence_length

    def examples(self, rng, count):
        half = self.alphabet // 2
        keys = _different(rng, count, half, self.pairs)
        values = half + _different(rng, count, self.alphabet - half, self.pairs)
        tokens = _skipping(rng.integers(self.alphabet - self.pairs, size=(count, self.length)), keys)
        tokens[:, : 2 * self.pairs] = np.stack([keys, values], 2).reshape(count, 2 * self.pairs)
        queries = 2 * self.pairs + 2 * self._gaps(rng, count)
        np.put_along_axis(tokens, queries, keys, 1)
        np.put_along_axis(tokens, queries + 1, values, 1)
        scored = np.zeros(tokens.shape, bool)
        np.put_along_axis(scored, queries + 1, True, 1)
        return (tokens + len(SPECIAL)).astype(np.int32), scored

    def _gaps(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Different gaps (count, pairs): the largest of log p + Gumbel noise are a draw without replacement."""
        gaps = np.arange(1, (self.length - 2 * self.pairs) // 2 + 1)
        scores = (self.power - 1) * np.log(gaps) + rng.gumbel(size=(count, len(gaps)))
        return np.argsort(-scores, 1)[:, : self.pairs]


@dataclass(frozen=True)
class Induction(AlgorithmicTask):
    """Induction heads (Gu and Dao 2023, "Mamba", section 4.1.2): random symbols of an alphabet.

    The trigger `!` occurs at a random place and again before the last token, which is the answer: the
    symbol that followed the trigger the first time.
    """

    sequence_length: int = 256
    """Tokens of an example, at least 4."""
    alphabet: int = 16
    """Number of different symbols, without the trigger."""

    def __post_init__(self):
        self._at_least(sequence_length=4, alphabet=1)

    @property
    def symbols(self):
        return (*map(str, range(self.alphabet)), "!")

    @property
    def length(self):
        return self.sequence_length

    def examples(self, rng, count):
        tokens = rng.integers(self.alphabet, size=(count, self.length))
        rows, places = np.arange(count), rng.integers(self.length - 3, size=count)
        tokens[rows, places] = tokens[:, -2] = self.alphabet
        tokens[:, -1] = tokens[rows, places + 1]
        return _scored_from(tokens, self.length - 1)


@dataclass(frozen=True)
class WordProblem(AlgorithmicTask):
    """`g h … k = p`: the product of 1 to `items` elements of a group, for which a state is kept (Merrill et al. 2024).

    Products of `parity` need no more than a change of sign; those of `s3`, reflections of the plane that do not
    commute; `a5`, the even permutations of five things, is no group that constant depth can compute.
    """

    name = "word_problem"
    group: Literal["parity", "s3", "a5"] = "parity"
    """The group: of 2, 6 or 60 elements."""
    items: int = 16
    """Largest number of elements; all numbers of them are equally probable."""

    def __post_init__(self):
        self._at_least(items=1)
        if self.group not in _GROUPS:
            raise ConfigError(f"{self.name}.group: unknown value {self.group!r}{nearest(str(self.group), _GROUPS)}")

    @property
    def symbols(self):
        return (*("".join(map(str, element)) for element in _elements(self.group)), "=")

    @property
    def length(self):
        return self.items + 2

    def examples(self, rng, count):
        table = _products(self.group)
        words = rng.integers(len(table), size=(count, self.items))
        rows, sizes, equals = [], rng.integers(1, self.items + 1, count), len(SPECIAL) + len(table)
        for word, size in zip(words, sizes, strict=True):
            product = functools.reduce(lambda p, g: table[p, g], word[:size])
            rows.append(([*(word[:size] + len(SPECIAL)).tolist(), equals], [int(product) + len(SPECIAL)]))
        return _side_by_side(rows, self.length)


_GROUPS = {"parity": (2, False), "s3": (3, False), "a5": (5, True)}
"""Numbers of things that a group permutes, and whether by even permutations alone."""


def _elements(group: str) -> list[tuple[int, ...]]:
    things, even = _GROUPS[group]
    permutations = itertools.permutations(range(things))
    return [p for p in permutations if not even or sum(a > b for a, b in itertools.combinations(p, 2)) % 2 == 0]


def _products(group: str) -> np.ndarray:
    """The number of the element that is g after h, for the numbers of h and g."""
    elements = _elements(group)
    number = {element: i for i, element in enumerate(elements)}
    return np.array([[number[tuple(g[i] for i in h)] for g in elements] for h in elements])


def _median(values: list[int]) -> int:
    """The middle value; of two middle ones their mean, rounded down."""
    ordered, middle = sorted(values), len(values) // 2
    return (ordered[middle] + ordered[-middle - 1]) // 2


_OPERATORS = {"[MIN": min, "[MAX": max, "[MED": _median, "[SM": lambda values: sum(values) % 10}


@dataclass(frozen=True)
class ListOps(AlgorithmicTask):
    """`[MAX 2 9 [MIN 4 7 ] 0 ] = 9` (Nangia and Bowman 2018): minimum, maximum, median, sum modulo 10.

    An expression has 2 to `max_arguments` arguments; up to `max_depth`, an argument is an expression
    with probability 1/4. An expression of more than `max_length` tokens is drawn again.
    """

    max_depth: int = 20
    """Deepest nesting; 1: no expression inside another."""
    max_arguments: int = 5
    """Largest number of arguments, at least 2."""
    max_length: int = 100
    """Largest number of tokens of an expression, at least 4."""

    def __post_init__(self):
        self._at_least(max_depth=1, max_arguments=2, max_length=4)

    @property
    def symbols(self):
        return (*_DIGITS, *_OPERATORS, "]", "=")

    @property
    def length(self):
        return self.max_length + 2

    def examples(self, rng, count):
        ids = {symbol: len(SPECIAL) + i for i, symbol in enumerate(self.symbols)}
        draw = random.Random(int(rng.integers(2**63)))
        questions = [self._question(draw) for _ in range(count)]
        return _side_by_side(
            [([ids[s] for s in (*q, "=")], [ids[str(expression_values(q)[-1])]]) for q in questions], self.length
        )

    def _question(self, draw: random.Random) -> list[str]:
        while True:
            symbols = list(itertools.islice(self._expression(draw, 1), self.max_length + 1))
            if len(symbols) <= self.max_length:
                return symbols

    def _expression(self, draw: random.Random, depth: int) -> Iterator[str]:
        yield draw.choice(tuple(_OPERATORS))
        for _ in range(draw.randint(2, min(self.max_arguments, self.max_length - 2))):
            if depth < self.max_depth and draw.random() < 0.25:
                yield from self._expression(draw, depth + 1)
            else:
                yield draw.choice(_DIGITS)
        yield "]"


def expression_values(symbols: Sequence[str]) -> list[int]:
    """For each symbol of a ListOps expression, the value of the digit it is or of the expression it begins or ends."""
    found, begun = [0] * len(symbols), list[int]()
    arguments: list[list[int]] = [[]]
    for place, symbol in enumerate(symbols):
        if symbol in _OPERATORS:
            begun.append(place)
            arguments.append([])
            continue
        if symbol == "]":
            start = begun.pop()
            found[start] = found[place] = _OPERATORS[symbols[start]](arguments.pop())
        else:
            found[place] = int(symbol)
        arguments[-1].append(found[place])
    return found


def _scored_from(symbols: np.ndarray, start: int) -> Examples:
    """Examples of equal length from numbers of symbols (N, L), in which the answer begins at `start`."""
    scored = np.broadcast_to(np.arange(symbols.shape[1]) >= start, symbols.shape)
    return (symbols + len(SPECIAL)).astype(np.int32), scored.copy()


def _side_by_side(rows: list[tuple[list[int], list[int]]], length: int) -> Examples:
    """Examples from the question and answer of every row, padded on the right."""
    tokens, scored = np.zeros((len(rows), length), np.int32), np.zeros((len(rows), length), bool)
    for i, (question, answer) in enumerate(rows):
        end = len(question) + len(answer)
        tokens[i, :end] = question + answer
        scored[i, len(question) : end] = True
    return tokens, scored


def _different(rng: np.random.Generator, count: int, size: int, drawn: int) -> np.ndarray:
    """Numbers (count, drawn) below `size`, different within a row."""
    numbers = np.empty((count, 0), np.int64)
    for i in range(drawn):
        numbers = np.append(numbers, _skipping(rng.integers(size - i, size=(count, 1)), numbers), 1)
    return numbers


def _skipping(ranks: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """The numbers with these ranks (N, M) among all that are not `taken`, (N, K)."""
    for number in np.sort(taken, 1).T:
        ranks = ranks + (ranks >= number[:, None])
    return ranks
