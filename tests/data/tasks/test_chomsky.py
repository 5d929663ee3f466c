"""Tasks of the Chomsky hierarchy: every output is computed a second time from the words of its input."""

import inspect

import pytest

from tests.data.tasks.checks import after_equals, answered, check_examples
from transformer.core.errors import ConfigError
from transformer.data.tasks import chomsky
from transformer.data.tasks.chomsky import (
    BinaryAddition,
    BinaryMultiplication,
    ComputeSqrt,
    CycleNavigation,
    EvenPairs,
    MissingDuplicate,
    ModularArithmeticBrackets,
    ModularArithmeticSimple,
    SolveEquation,
    StackManipulation,
)
from transformer.data.tasks.rewriting import DuplicateString, OddsFirst
from transformer.data.tasks.task import AlgorithmicTask


def pairs(task, question):
    return [str(("".join(question).count("01") + "".join(question).count("10")) % 2)]


def navigated(task, question):
    place = 0
    for step in question:
        place += {"<": task.places - 1, ".": 0, ">": 1}[step]
        place -= task.places * (place >= task.places)
    return [str(place)]


def manipulated(task, question):
    """A list whose first item is the top."""
    stack = []
    for word in question:
        if word == "pop":
            del stack[:1]
        else:
            stack.insert(0, word[-1])
    return stack


def value(task, question):
    return [str(eval("".join(question)) % task.modulus)]


def solved(task, question):
    """The only number that makes both sides equal."""
    left, right = "".join(question).split("==")
    (found,) = [x for x in range(task.modulus) if (eval(left, {"x": x}) - int(right)) % task.modulus == 0]
    return [str(found)]


def missing(task, question):
    half, place = len(question) // 2, question.index("_")
    assert [w for i, w in enumerate(question[:half]) if i != place % half] == [
        w for i, w in enumerate(question[half:]) if i != place % half
    ]
    return [question[(place + half) % len(question)]]


def number(bits):
    return sum(2**i for i, bit in enumerate(bits) if bit == "1")


def computed(task, question):
    cut = question.index(task.sign)
    a, b = number(question[:cut]), number(question[cut + 1 :])
    assert a > 0
    assert b > 0
    result = {"+": a + b, "*": a * b}[task.sign]
    return ["1" if result >> i & 1 else "0" for i in range(result.bit_length())]


def root(task, question):
    """The bits of the largest number with a square that is not larger."""
    found, square = 0, number(question[::-1])
    assert square > 0
    for i in reversed(range((len(question) + 1) // 2)):
        found += 2**i * ((found + 2**i) ** 2 <= square)
    return bin(found)[2:].zfill((len(question) + 1) // 2)


SOLVERS = {
    EvenPairs: pairs,
    CycleNavigation: navigated,
    StackManipulation: manipulated,
    ModularArithmeticSimple: value,
    ModularArithmeticBrackets: value,
    SolveEquation: solved,
    MissingDuplicate: missing,
    BinaryAddition: computed,
    BinaryMultiplication: computed,
    ComputeSqrt: root,
    DuplicateString: lambda task, question: 2 * question,
    OddsFirst: lambda task, question: [question[i] for i in sorted(range(len(question)), key=lambda i: i % 2)],
}
SEVERAL = (StackManipulation, BinaryAddition, BinaryMultiplication, ComputeSqrt, DuplicateString, OddsFirst)
TASKS = [
    *(cls() for cls in SOLVERS),
    *(cls(items=5) for cls in SOLVERS),
    CycleNavigation(items=9, places=2),
    ModularArithmeticSimple(items=12, modulus=13),
    ModularArithmeticBrackets(items=30, modulus=2),
    SolveEquation(items=30, modulus=11),
]


def answers(task, words):
    question = words[: words.index("=")]
    assert len(question) <= task.items
    return after_equals(words, SOLVERS[type(task)](task, question), end=isinstance(task, SEVERAL))


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_outputs(task):
    check_examples(task, answers)


def test_every_task_is_solved():
    shown = {cls for _, cls in inspect.getmembers(chomsky, inspect.isclass) if issubclass(cls, AlgorithmicTask)}
    assert {cls for cls in shown if not inspect.isabstract(cls)} <= set(SOLVERS)


@pytest.mark.parametrize("cls", SOLVERS)
def test_sizes(cls):
    """All sizes occur that the task has, the longest example fills the length, and symbols do not depend on it."""
    examples = [words for words, _ in answered(cls(items=6), 500)]
    sizes = {words.index("=") for words in examples}
    steps = {ModularArithmeticSimple: {1, 3, 5}, MissingDuplicate: {2, 4, 6}}
    smallest = getattr(cls, "smallest", 1)
    assert sizes == steps.get(cls, set(range(smallest, 7)))
    longest = max(len(words) for words in examples)
    # Two numbers have one symbol less than the input, and six symbols are even.
    shorter = cls in (BinaryAddition, BinaryMultiplication, ModularArithmeticSimple)
    assert longest == cls(items=6).length - shorter
    assert cls(items=6).symbols == cls(items=60).symbols


@pytest.mark.parametrize("cls", SOLVERS)
def test_all_symbols_occur(cls):
    words = {w for words, _ in answered(cls(items=30), 300) for w in words}
    assert words - {"</s>"} == set(cls().symbols)


def test_pop_from_an_empty_stack_does_nothing():
    examples = [words for words, _ in answered(StackManipulation(items=8), 500)]
    assert any(words[:4] == [bit, "pop", "pop", "push_1"] for words in examples for bit in "01")


def test_a_stack_of_two_symbols_or_more_is_manipulated():
    for words, _ in answered(StackManipulation(items=8), 500):
        if len(question := words[: words.index("=")]) > 1:
            assert question[-1] not in "01"


def test_both_sides_of_an_operation_have_all_sizes():
    """The left side is one symbol or more; so is the right one, which a plus or a dot before one symbol shows."""
    examples = ["".join(words[: words.index("=")]) for words, _ in answered(ModularArithmeticBrackets(items=8), 500)]
    longest = [question for question in examples if len(question) == 8]
    assert {question[1].isdigit() for question in longest} == {False, True}
    assert {question[-3] in "+*" for question in longest} == {False, True}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("even_pairs(items=0)", "even_pairs.items: 0 is less than 1"),
        ("cycle_navigation(places=1)", "cycle_navigation.places: 1 is less than 2"),
        ("cycle_navigation(items=0)", "cycle_navigation.items: 0 is less than 1"),
        ("solve_equation(items=2)", "solve_equation.items: 2 is less than 3"),
        ("solve_equation(modulus=1)", "solve_equation.modulus: 1 is less than 2"),
        ("missing_duplicate(items=1)", "missing_duplicate.items: 1 is less than 2"),
        ("binary_addition(items=2)", "binary_addition.items: 2 is less than 3"),
    ],
)
def test_impossible_fields_are_refused(text, message):
    with pytest.raises(ConfigError, match=f"^{message}$"):
        AlgorithmicTask.parse(text)


def test_any_symbol_of_either_string_is_missing():
    questions = [words[: words.index("=")] for words, _ in answered(MissingDuplicate(items=6), 500)]
    assert {q.index("_") for q in questions if len(q) == 6} == set(range(6))


def test_stacks_of_all_sizes_are_manipulated():
    questions = [words[: words.index("=")] for words, _ in answered(StackManipulation(items=6), 500)]
    assert {sum(word in "01" for word in q) for q in questions if len(q) == 6} == set(range(1, 6))


def test_any_number_of_an_equation_is_unknown():
    """The first and the last of sums of two numbers equally often."""
    left = ["".join(words[: words.index("==")]) for words, _ in answered(SolveEquation(items=7), 2000)]
    unknown = [one[1] == "x" for one in left if len(one) == 5 and one[1] in "x01234" and one[3] in "x01234"]
    assert len(unknown) > 200
    assert 0.4 < sum(unknown) / len(unknown) < 0.6
