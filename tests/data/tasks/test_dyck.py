"""Brackets, closed a second time by cancelling the innermost pairs of a string."""

import pytest

from tests.data.tasks.checks import answered, check_examples
from transformer.core.errors import ConfigError
from transformer.data.tasks.dyck import Dyck
from transformer.data.tasks.task import AlgorithmicTask

TASKS = [Dyck(), Dyck(kinds=1, max_depth=1, items=3), Dyck(kinds=5, max_depth=3, items=9), Dyck(max_depth=6, items=9)]


def partner(words, place):
    """The kind of the bracket that is closed at a place: the one that is left when all pairs before are cancelled."""
    before = [w for w in words[:place] if not w.isdigit()]
    while ")" in before:
        close = before.index(")")
        del before[close - 1 : close + 1]
    return before[-1][1:]


def kinds_of(task, words):
    return [partner(words, i - 1) if i and words[i - 1] == ")" else None for i in range(len(words))]


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_kinds(task):
    check_examples(task, kinds_of)


def depths(words):
    found = [0]
    for word in words:
        if not word.isdigit():
            found.append(found[-1] + (1 if word[0] == "(" else -1))
    return found


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_all_brackets_close_and_all_depths_and_sizes_occur(task):
    examples = [words for words, _ in answered(task, 600)]
    assert all(depths(words)[-1] == 0 for words in examples)
    assert {max(depths(words)) for words in examples} == set(range(1, task.max_depth + 1))
    assert {len(words) for words in examples} == set(range(3, 3 * task.items + 1, 3))
    assert {w for words in examples for w in words} == set(task.symbols)


def test_a_bracket_opens_or_closes_with_equal_probability():
    """Where both are possible: inside, while pairs are left."""
    opens = closes = 0
    for words, _ in answered(Dyck(kinds=1, max_depth=3, items=30), 500):
        brackets = [w for w in words if not w.isdigit()]
        for i, depth in enumerate(depths(words)[:-1]):
            if 0 < depth < 3 and "(0" in brackets[i:]:
                opens, closes = opens + (brackets[i] == "(0"), closes + (brackets[i] == ")")
    assert opens + closes > 4000
    assert abs(opens - closes) / (opens + closes) < 0.04


def test_longer_ones_have_the_same_symbols():
    assert Dyck(items=5, max_depth=2).symbols == Dyck(items=50, max_depth=9).symbols


@pytest.mark.parametrize("field", ["kinds", "max_depth", "items"])
def test_impossible_fields_are_refused(field):
    with pytest.raises(ConfigError, match=f"^dyck.{field}: 0 is less than 1$"):
        AlgorithmicTask.parse(f"dyck({field}=0)")
