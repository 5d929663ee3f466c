"""Products of elements of a group."""

import functools
import itertools
from dataclasses import dataclass
from typing import Literal

import numpy as np

from transformer.core.values import ConfigError, nearest
from transformer.data.tasks.task import AlgorithmicTask, side_by_side
from transformer.runs.tokenizers import SPECIAL


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
        self.at_least(items=1)
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
        return side_by_side(rows, self.length)


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
