"""What answers the questions of a skill without having it: predictors that count symbols, or look up what they saw."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from transformer.data.dataset import Batch, load_data
from transformer.data.puzzles import AlgorithmicConfig, Puzzles
from transformer.runs.data import DataConfig
from transformer.runs.tokenizers import SPECIAL

Answered = tuple[tuple[str, ...], str]
"""The symbols before an answer, and the answer."""
Guess = Callable[[tuple[str, ...]], str | None]
"""The answer by the symbols before it."""
Shortcut = Callable[[Sequence[Answered]], Guess]
"""A predictor by the training part; its docstring says in a few words what it answers."""


def share_right(shortcut: Shortcut, config: DataConfig) -> float:
    """The share of held-out answers of a task that a shortcut has right."""
    data = load_data(config)
    assert isinstance(config, AlgorithmicConfig)
    assert isinstance(data, Puzzles)
    symbols = (*SPECIAL, *config.task.symbols)
    guess = shortcut(list(_answered(data.train, symbols)))
    return float(np.mean([guess(before) == answer for before, answer in _answered(data.validation, symbols)]))


def _answered(part: Batch, symbols: Sequence[str]) -> Iterator[Answered]:
    for row, counted in zip(part["tokens"].tolist(), part["weights"] > 0, strict=True):
        words = tuple(symbols[int(token)] for token in row)
        yield from ((words[:place], words[place]) for place in np.flatnonzero(counted) + 1)


def usual(training: Sequence[Answered]) -> Guess:
    """the most frequent answer"""
    found = _most_frequent(answer for _, answer in training)
    return lambda before: found


def usual_before(training: Sequence[Answered]) -> Guess:
    """the symbol that was there most often"""
    return _most_frequent


def next_unasked(training: Sequence[Answered]) -> Guess:
    """the first value that was not asked for yet"""

    def guess(before):
        counts = Counter(word for word in before if word.startswith("v"))
        return next((value for value, count in counts.items() if count == 1), None)

    return guess


def usual_value(training: Sequence[Answered]) -> Guess:
    """the value that was there most often"""
    return lambda before: _most_frequent(word for word in before if word.startswith("v"))


def usual_missing(training: Sequence[Answered]) -> Guess:
    """the most frequent symbol that is still to be written"""

    def guess(before):
        end = before.index("=")
        left = Counter(word for word in before[:end] if word != ".") - Counter(before[end + 1 :])
        return _most_frequent(left.elements()) if left else "</s>"

    return guess


def turned_round(training: Sequence[Answered]) -> Guess:
    """b + a looked up"""
    table = dict(training)

    def guess(before):
        first, second = before.index("+"), before.index("=")
        return table.get((*before[first + 1 : second], "+", *before[:first], *before[second:]))

    return guess


def by_last_two(training: Sequence[Answered]) -> Guess:
    """a table of the last two symbols"""
    table = {before[-2:]: answer for before, answer in training}
    return lambda before: table.get(before[-2:])


def usual_digit(training: Sequence[Answered]) -> Guess:
    """the most frequent digit of that place in the book"""

    def guess(before):
        place = len(before) - 1 - before[::-1].index(":")
        numbers = [at for at, word in enumerate(before[: before.index("?")]) if word == ":"]
        return _most_frequent(before[at + len(before) - place] for at in numbers)

    return guess


def _most_frequent(words) -> str:
    """The first of the most frequent ones."""
    return Counter(words).most_common(1)[0][0]
