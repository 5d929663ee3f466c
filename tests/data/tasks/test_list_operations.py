"""The shortest expressions of ListOps."""

import pytest

from tests.data.tasks.checks import answered
from transformer.core.errors import ConfigError
from transformer.data.tasks.list_operations import ListOps
from transformer.data.tasks.task import AlgorithmicTask


def lengths(task):
    return [words.index("=") for words, _ in answered(task, 300)]


def test_lengths_are_between_the_two_limits():
    """All wanted lengths occur, and are as long on average as the expressions of these lengths in a free draw."""
    free = ListOps(max_depth=3, max_arguments=4, max_length=20)
    task = ListOps(max_depth=3, max_arguments=4, max_length=20, min_length=12)
    assert set(lengths(task)) == set(range(12, 21))
    assert 4 <= min(lengths(free)) < 12
    wanted = [length for length in lengths(free) if length >= 12]
    assert abs(sum(wanted) / len(wanted) - sum(lengths(task)) / 300) < 1
    assert task.symbols == free.symbols


def test_one_length():
    assert set(lengths(ListOps(max_length=9, min_length=9))) == {9}


def test_impossible_lengths_are_refused():
    with pytest.raises(ConfigError, match=r"^listops.max_length: 8 is less than 9$"):
        AlgorithmicTask.parse("listops(max_length=8, min_length=9)")
    with pytest.raises(ConfigError, match=r"^listops.min_length: none of 10000 expressions has 8 to 100 tokens$"):
        lengths(ListOps(max_depth=1, max_arguments=5, min_length=8))


def test_an_argument_is_an_expression_with_probability_a_quarter():
    """Of expressions that may be nested once, and of any length."""
    inner = digits = 0
    for words, _ in answered(ListOps(max_depth=2, max_arguments=3), 2000):
        depth = 0
        for word in words[: words.index("=")]:
            inner += depth == 1 and word[0] == "["
            digits += depth == 1 and word.isdigit()
            depth += (word[0] == "[") - (word == "]")
    assert abs(inner / (inner + digits) - 0.25) < 0.03
