"""Products of elements of a group."""

import functools
import itertools
from dataclasses import dataclass
from typing import Literal

import numpy as np

from transformer.data.tasks.task import AlgorithmicTask, padded
from transformer.runs.tokenizers import SPECIAL


@dataclass(frozen=True)
class WordProblem(AlgorithmicTask):
    """`g h … k = p`: the product of 1 to `items` elements of a group, for which a state is kept (Merrill et al. 2024).

    Products of `parity` need no more than a change of sign (a string of 0 and 1, of which the ones are counted modulo
    2: parity check of Delétang et al. 2022); those of `z60`, counting modulo 60; those of `s3`, reflections of the
    plane that do not commute; `a5`, the even permutations of five things, is no group that constant depth can
    compute, unlike `a4xz5`, which has as many elements.
    """

    name = "word_problem"
    group: Literal["parity", "s3", "s4", "s5", "a5", "a4xz5", "z60"] = "parity"
    """The group: of 2, 6, 24, 120 or, the last three, 60 elements."""
    items: int = 16
    """Largest number of elements; all numbers of them are equally probable."""
    dense: bool = False
    """Whether every element is followed by the product so far, `g g h gh …`: all products are answers, each a function
    of the two tokens before it, so that no state is needed."""

    def __post_init__(self):
        self.at_least(items=1)

    @property
    def symbols(self):
        return (*_group(self.group)[0], "=")

    @property
    def length(self):
        return 2 * self.items if self.dense else self.items + 2

    def examples(self, rng, count):
        names, table = _group(self.group)
        words = rng.integers(len(table), size=(count, self.items))
        sizes = rng.integers(1, self.items + 1, count)
        first, rows = len(SPECIAL), []
        for word, size in zip(words.tolist(), sizes.tolist(), strict=True):
            products = list(itertools.accumulate(word[:size], lambda p, g: table[p][g]))
            if self.dense:
                row = [first + element for pair in zip(word, products, strict=False) for element in pair]
                rows.append((row, [False, True] * size))
            else:
                row = [*(first + element for element in word[:size]), first + len(names), first + products[-1]]
                rows.append((row, [False] * (size + 1) + [True]))
        return padded(rows, self.length)


_GROUPS = {
    "parity": ["s2"],
    "s3": ["s3"],
    "s4": ["s4"],
    "s5": ["s5"],
    "a5": ["a5"],
    "a4xz5": ["a4", "z5"],
    "z60": ["z60"],
}
"""The factors of each group: all permutations of so many things (s), the even ones (a), numbers modulo n (z)."""


@functools.cache
def _group(group: str) -> tuple[list[str], list[list[int]]]:
    """The names of the elements; and the number of the element that is g after h, for the numbers of h and g."""
    names, table = [""], np.zeros((1, 1), np.int64)
    for factor in _GROUPS[group]:
        own, products = _factor(factor[0], int(factor[1:]))
        names = [f"{a}.{b}".strip(".") for a in names for b in own]
        # The number of a pair is that of its first element times the number of second ones, plus that of its second.
        table = (table[:, None, :, None] * len(own) + products[None, :, None, :]).reshape(len(names), len(names))
    return names, table.tolist()


def _factor(kind: str, n: int) -> tuple[list[str], np.ndarray]:
    """As `_group`, for one factor of `_GROUPS`."""
    if kind == "z":
        return [str(i) for i in range(n)], np.add.outer(np.arange(n), np.arange(n)) % n
    elements = [p for p in itertools.permutations(range(n)) if kind == "s" or _even(p)]
    number = {element: i for i, element in enumerate(elements)}
    table = np.array([[number[tuple(g[i] for i in h)] for g in elements] for h in elements])
    return ["".join(map(str, element)) for element in elements], table


def _even(permutation: tuple[int, ...]) -> bool:
    return sum(a > b for a, b in itertools.combinations(permutation, 2)) % 2 == 0
