"""Expressions of operations on lists."""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from transformer.core.errors import ConfigError
from transformer.data.tasks.task import DIGITS, RowTask, answered


def _median(values: list[int]) -> int:
    """The middle value; of two middle ones their mean, rounded down."""
    ordered, middle = sorted(values), len(values) // 2
    return (ordered[middle] + ordered[-middle - 1]) // 2


_DRAWS = 10_000
"""Expressions that are drawn for one of the lengths that are wanted."""
_OPERATORS = {"[MIN": min, "[MAX": max, "[MED": _median, "[SM": lambda values: sum(values) % 10}


@dataclass(frozen=True)
class ListOps(RowTask):
    """`[MAX 2 9 [MIN 4 7 ] 0 ] = 9` (Nangia and Bowman 2018): minimum, maximum, median, sum modulo 10.

    An expression has 2 to `max_arguments` arguments; up to `max_depth`, an argument is an expression
    with probability 1/4. An expression of more than `max_length` tokens, or of fewer than `min_length`, is drawn again.
    Those of the Long Range Arena (Tay et al. 2020, section 2.2.1) are
    `listops(max_depth=9, max_arguments=10, max_length=1999, min_length=501)`, whose depth of 10 counts the digits; so
    does the original's depth of 20, and most of what it draws is a digit alone.
    """

    max_depth: int = 20
    """Deepest nesting; 1: no expression inside another."""
    max_arguments: int = 5
    """Largest number of arguments, at least 2."""
    max_length: int = 100
    """Largest number of tokens of an expression, at least 4."""
    min_length: int | None = None
    """Smallest number of tokens of an expression; None: any."""

    def __post_init__(self):
        self.at_least(max_depth=1, max_arguments=2, max_length=max(4, self.min_length or 0))

    @property
    def symbols(self):
        return (*DIGITS, *_OPERATORS, "]", "=")

    @property
    def length(self):
        return self.max_length + 2

    def row(self, draw):
        """As in every task.

        Raises:
          ConfigError: expressions of the wanted lengths are too rare, or there are none.
        """
        question = self._question(draw)
        return answered([*question, "="], [str(expression_values(question)[-1])])

    def _question(self, draw: random.Random) -> list[str]:
        for _ in range(_DRAWS):
            symbols = list(itertools.islice(self._expression(draw, 1), self.max_length + 1))
            if (self.min_length or 0) <= len(symbols) <= self.max_length:
                return symbols
        wanted = f"{self.min_length or 4} to {self.max_length} tokens"
        raise ConfigError(f"{self.name}.min_length: none of {_DRAWS} expressions has {wanted}")

    def _expression(self, draw: random.Random, depth: int) -> Iterator[str]:
        yield draw.choice(tuple(_OPERATORS))
        for _ in range(draw.randint(2, min(self.max_arguments, self.max_length - 2))):
            if depth < self.max_depth and draw.random() < 0.25:
                yield from self._expression(draw, depth + 1)
            else:
                yield draw.choice(DIGITS)
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
