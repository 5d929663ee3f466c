"""Symbols that are written again: copied once or twice, reversed, sorted, or in two parts."""

import abc
from dataclasses import dataclass

from transformer.core.json import later
from transformer.data.tasks.task import AlgorithmicTask, side_by_side
from transformer.data.tokenizers import END
from transformer.runs.tokenizers import SPECIAL


@dataclass(frozen=True)
class _Rewriting(AlgorithmicTask):
    """`x ... x = y ... y </s>`: `shortest` to `items` symbols of an alphabet, all numbers of them equally probable."""

    items: int = 10
    """Largest number of symbols."""
    alphabet: int = 10
    """Number of different symbols."""
    shortest: int = later(1)
    """Smallest number of symbols, such as one more than the largest of training where it is a test of longer ones."""

    def __post_init__(self):
        self.at_least(shortest=1, items=self.shortest, alphabet=1)

    @property
    def symbols(self):
        return (*map(str, range(self.alphabet)), "=")

    @property
    def length(self):
        return 2 * self.items + 2

    def examples(self, rng, count):
        sizes = rng.integers(self.shortest, self.items + 1, count)
        items = rng.integers(self.alphabet, size=(count, self.items)) + len(SPECIAL)
        questions = [row[:size].tolist() for row, size in zip(items, sizes, strict=True)]
        equals = len(SPECIAL) + self.alphabet
        return side_by_side([([*q, equals], [*self._answer(q), END]) for q in questions], self.length)

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
class DuplicateString(_Rewriting):
    """`3 1 2 = 3 1 2 3 1 2 </s>` (Delétang et al. 2022, appendix A)."""

    name = "duplicate_string"

    @property
    def length(self):
        return 3 * self.items + 2

    def _answer(self, items):
        return items + items


@dataclass(frozen=True)
class OddsFirst(_Rewriting):
    """`3 1 2 5 = 3 2 1 5 </s>`: the first, third, … symbol, then the others (Delétang et al. 2022, appendix A)."""

    name = "odds_first"

    def _answer(self, items):
        return items[::2] + items[1::2]
