"""Sums of numbers, and arithmetic modulo a number."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from transformer.core.values import ConfigError, nearest
from transformer.data.tasks.task import DIGITS, AlgorithmicTask, scored_from


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
        self.at_least(digits=1)

    @property
    def symbols(self):
        return (*DIGITS, "+", "=")

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
        return scored_from(np.concatenate([a, plus, b, equals, total], 1), 2 * self.digits + 2)


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
        return scored_from(np.stack([a, np.full(count, p), b, np.full(count, p + 1), c], 1), 4)
