"""Forms of addition: sizes, order of digits, hints. The sums are computed by Python from the words."""

import numpy as np
import pytest

from tests.data.tasks.checks import after_equals, answered, check_examples
from transformer.core.errors import ConfigError
from transformer.data.tasks.arithmetic import Addition, Mano
from transformer.data.tasks.task import AlgorithmicTask

TASKS = [
    Addition(digits=4, reverse_numbers=True),
    Addition(digits=4, fixed=False),
    Addition(digits=3, reverse=False, hints=4),
    Addition(digits=3, hints=9),
    Addition(digits=5, hints=12, reverse_numbers=True, fixed=False),
]


def without_hints(words):
    return [w for w in words if w[0] != "h"]


def number(words, reverse):
    return int("".join(words[::-1] if reverse else words))


def sum_of(task, words):
    """The sum, with the hints in the order of those of the first number and one more."""
    question = words[: words.index("=")]
    first, second = (question[: (cut := question.index("+"))], question[cut + 1 :])
    size = len(without_hints(first))
    total = sum(number(without_hints(n), task.reverse_numbers) for n in (first, second))
    digits = list(str(total).zfill(size + 1))
    digits = digits[::-1] if task.reverse else digits
    if task.hints is not None:
        units = first[0] if task.reverse_numbers else first[-2]
        hints = [f"h{int(units[1:]) + place}" for place in range(size + 1)]
        digits = [w for pair in zip(hints if task.reverse else hints[::-1], digits, strict=True) for w in pair]
    return after_equals(words, digits, end=not task.fixed)


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_sums(task):
    check_examples(task, sum_of)


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_both_numbers_have_the_same_hints_in_a_row(task):
    for words, _ in answered(task):
        plus = words.index("+")
        first, second = words[:plus], words[plus + 1 : words.index("=")]
        hints = [int(w[1:]) for w in first if w[0] == "h"]
        assert hints == [int(w[1:]) for w in second if w[0] == "h"]
        assert len(without_hints(first)) == len(without_hints(second))
        if task.hints is not None:
            rising = hints if task.reverse_numbers else hints[::-1]
            assert rising == list(range(rising[0], rising[0] + len(without_hints(first))))


def test_sizes_and_first_hints_are_uniform():
    task = Addition(digits=3, fixed=False, hints=6)
    examples = [without_hints(words).index("+") for words, _ in answered(task, 6000)]
    np.testing.assert_allclose(np.bincount(examples)[1:] / 6000, 1 / 3, atol=0.03)
    pairs = [(without_hints(words).index("+"), words[words.index("+") - 2]) for words, _ in answered(task, 6000)]
    for size in (1, 2, 3):
        units = [hint for own, hint in pairs if own == size]
        assert set(units) == {f"h{i}" for i in range(6 - size)}
        assert max(units.count(h) for h in set(units)) < 1.3 * len(units) / (6 - size)


def test_symbols_do_not_depend_on_the_length():
    short, long = (Addition(digits=n, hints=30, fixed=False) for n in (3, 20))
    assert short.symbols == long.symbols
    assert Addition().symbols == Addition(digits=9, fixed=False, reverse_numbers=True).symbols


def test_too_few_hints_are_refused():
    with pytest.raises(ConfigError, match=r"^addition.hints: 3 is less than 4$"):
        AlgorithmicTask.parse("addition(digits=3, hints=3)")


MANO = [Mano(), Mano(operations=1), Mano(operations=12, modulus=5, exact=True)]


def reduced(task, words):
    """The value by a stack, read from the end."""
    stack = []
    operations = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}
    for word in reversed(words[: words.index("=")]):
        stack.append(operations[word](stack.pop(), stack.pop()) if word in operations else int(word))
    (value,) = stack
    return after_equals(words, [str(value % task.modulus)], end=False)


@pytest.mark.parametrize("task", MANO, ids=str)
def test_operations_before_their_operands(task):
    check_examples(task, reduced)


@pytest.mark.parametrize("task", MANO, ids=str)
def test_numbers_of_operations(task):
    examples = [words for words, _ in answered(task, 400)]
    sizes = [12] if task.exact else range(1, task.operations + 1)
    assert {len(words) for words in examples} == {2 * size + 3 for size in sizes}
    assert {w for words in examples for w in words} == set(task.symbols)
    assert task.symbols == Mano(operations=40, modulus=task.modulus).symbols


def test_both_operands_have_all_sizes():
    """Of two operations, the second one is the first operand or the last."""
    examples = [words for words, _ in answered(Mano(operations=2, exact=True), 200)]
    assert {words[1] in "+-*" for words in examples} == {words[2] in "+-*" for words in examples} == {False, True}


@pytest.mark.parametrize(("field", "least"), [("operations", 1), ("modulus", 2)])
def test_impossible_operations_are_refused(field, least):
    with pytest.raises(ConfigError, match=f"^mano.{field}: 0 is less than {least}$"):
        AlgorithmicTask.parse(f"mano({field}=0)")
