"""Sums of numbers, and arithmetic modulo a number."""

import math
import random
from dataclasses import dataclass
from typing import Literal

import numpy as np

from transformer.core.errors import ConfigError
from transformer.data.tasks.task import DIGITS, AlgorithmicTask, RowTask, answered, scored_from, side_by_side
from transformer.data.tokenizers import END
from transformer.runs.tokenizers import SPECIAL


@dataclass(frozen=True)
class Addition(AlgorithmicTask):
    """`0 1 7 + 9 8 5 = 2 0 0 1`: two numbers with the same number of digits, and their sum with one more.

    The sum begins with its least significant digit if `reverse` (Lee et al. 2023). With `hints`, a symbol that is the
    same for all digits of a place precedes each digit (index hints, Zhou et al. 2023, "What Algorithms can
    Transformers Learn?", section 5): `h4 1 h3 7 + h4 8 h3 5 = h3 2 h4 0 h5 1`.
    """

    digits: int = 3
    """Digits of each number; the most of them if not `fixed`."""
    reverse: bool = True
    """Whether the sum begins with its least significant digit."""
    reverse_numbers: bool = False
    """Whether the numbers begin with theirs (McLeish et al. 2024)."""
    fixed: bool = True
    """Whether numbers have `digits` digits; if not, sizes up to it are equally probable, and `</s>` ends a sum."""
    hints: int | None = None
    """How many hints there are, more than `digits`; None: no hints. That of the units is random; the next follow."""

    def __post_init__(self):
        self.at_least(digits=1)
        if self.hints is not None:
            self.at_least(hints=self.digits + 1)

    @property
    def symbols(self):
        return (*DIGITS, "+", "=", *(f"h{i}" for i in range(self.hints or 0)))

    @property
    def length(self):
        digits = 3 * self.digits + 1
        return (digits if self.hints is None else 2 * digits) + 2 + (not self.fixed)

    def examples(self, rng, count):
        a, b = rng.integers(10, size=(2, count, self.digits)).tolist()
        sizes = [self.digits] * count if self.fixed else rng.integers(1, self.digits + 1, count).tolist()
        # The hints after that of the units are as many as the sum has other digits.
        units = [0] * count if self.hints is None else rng.integers(self.hints - np.array(sizes)).tolist()
        return side_by_side(
            [self._row(x[:size], y[:size], unit) for x, y, size, unit in zip(a, b, sizes, units, strict=True)],
            self.length,
        )

    def _row(self, a: list[int], b: list[int], unit: int) -> tuple[list[int], list[int]]:
        """Question and answer for the digits of two numbers, where the units have hint number `unit`."""
        plus, equals = (len(SPECIAL) + len(DIGITS) + i for i in range(2))
        total, carry = [], 0
        for x, y in zip(a[::-1], b[::-1], strict=True):
            carry, digit = divmod(x + y + carry, 10)
            total.insert(0, digit)
        a, b = (self._written(number, self.reverse_numbers, unit) for number in (a, b))
        answer = self._written([carry, *total], self.reverse, unit)
        return [*a, plus, *b, equals], answer if self.fixed else [*answer, END]

    def _written(self, number: list[int], reverse: bool, unit: int) -> list[int]:
        """The tokens of a number, given its digits from the most significant to the units."""
        hint = len(SPECIAL) + len(DIGITS) + 2 + unit
        digits = [
            [digit + len(SPECIAL)] if self.hints is None else [hint + place, digit + len(SPECIAL)]
            for place, digit in enumerate(number[::-1])
        ]
        return [token for digit in (digits if reverse else digits[::-1]) for token in digit]


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
        self.at_least(modulus=2)
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
        return scored_from(np.stack([a, np.full(count, p), b, np.full(count, p + 1), c], 1), 4)


@dataclass(frozen=True)
class Mano(RowTask):
    """`+ 3 * 5 22 = 21`: the value modulo `modulus` of operations that precede their two operands.

    (Allen-Zhu 2025, "Physics of Language Models: Part 4.1", without its second symbols for the same operations and
    its symbols for the number of operations; there, the largest number of operations is 10, 13 or 16.)
    """

    operations: int = 5
    """Largest number of operations; from 1, all numbers of them are equally probable."""
    modulus: int = 23
    """At least 2."""
    exact: bool = False
    """Whether all examples have `operations` operations, for tests."""

    def __post_init__(self):
        self.at_least(operations=1, modulus=2)

    @property
    def symbols(self):
        return (*map(str, range(self.modulus)), "+", "-", "*", "=")

    @property
    def length(self):
        return 2 * self.operations + 3

    def row(self, draw):
        size = self.operations if self.exact else draw.randint(1, self.operations)
        question, value = self._expression(draw, size)
        return answered([*question, "="], [str(value)])

    def _expression(self, draw: random.Random, operations: int) -> tuple[list[str], int]:
        """The symbols and the value; the first operand has any number of the other operations."""
        if operations == 0:
            number = draw.randrange(self.modulus)
            return [str(number)], number
        sign, first = draw.randrange(3), draw.randint(0, operations - 1)
        (left, a), (right, b) = (self._expression(draw, size) for size in (first, operations - 1 - first))
        return ["+-*"[sign], *left, *right], (a + b, a - b, a * b)[sign] % self.modulus
