"""Algorithmic tasks: every answer is computed a second time, in plain Python, from the symbols before it."""

import math
import statistics
from dataclasses import dataclass

import numpy as np
import pytest

from tests.data.tasks.checks import SPECIAL, check_examples, words_of
from transformer.core.errors import ConfigError
from transformer.core.json import to_json
from transformer.data.tasks.arithmetic import Addition, ModularArithmetic
from transformer.data.tasks.groups import WordProblem
from transformer.data.tasks.list_operations import ListOps
from transformer.data.tasks.recall import AssociativeRecall, Induction
from transformer.data.tasks.rewriting import Copy, Reverse, Sort
from transformer.data.tasks.task import AlgorithmicTask, RowTask, answered, split

KINDS = (Addition, ModularArithmetic, WordProblem, ListOps, AssociativeRecall, Induction, Copy, Reverse, Sort)
TASKS = [
    *(cls() for cls in KINDS),
    Copy(items=1, alphabet=1),
    Copy(items=6, shortest=5),
    Sort(items=5, alphabet=13),
    Addition(digits=2, reverse=False),
    Addition(digits=25),
    ModularArithmetic(modulus=12, operation="subtract"),
    ModularArithmetic(modulus=6, operation="multiply"),
    ModularArithmetic(modulus=11, operation="divide"),
    AssociativeRecall(alphabet=9, sequence_length=17, pairs=4),
    AssociativeRecall(alphabet=40, sequence_length=33, pairs=3, power=2.0),
    Induction(sequence_length=4, alphabet=3),
    ListOps(max_depth=3, max_arguments=10, max_length=20),
    ListOps(max_length=4),
    WordProblem("s3", items=5),
    WordProblem("a5", items=7),
]


def rewritten(words, answer):
    cut = words.index("=")
    return [None] * (cut + 1) + [*answer(words[:cut]), "</s>"]


def added(task, words):
    a, b = "".join(words[: words.index("=")]).split("+")
    total = str(int(a) + int(b)).zfill(task.digits + 1)
    return [None] * (words.index("=") + 1) + list(total[::-1] if task.reverse else total)


def modular(task, words):
    a, sign, b, _, _ = words
    p = task.modulus
    right = {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}
    c = int(a) * pow(int(b), -1, p) if sign == "/" else right[sign]
    return [None] * 4 + [str(c % p)]


def recalled(task, words):
    cut = 2 * task.pairs
    values = dict(zip(words[:cut:2], words[1:cut:2], strict=True))
    return [None] * cut + [values.get(before) for before in words[cut - 1 : -1]]


def induced(task, words):
    return [None] * (len(words) - 1) + [words[words.index("!") + 1]]


def evaluated(task, words):
    operations = {"[MIN": min, "[MAX": max, "[MED": lambda v: int(statistics.median(v)), "[SM": lambda v: sum(v) % 10}
    rest = iter(words)

    def value(word):
        return operations[word]([value(w) for w in iter(lambda: next(rest), "]")]) if word[0] == "[" else int(word)

    answer = value(next(rest))
    assert next(rest) == "="
    return [None] * (len(words) - 1) + [str(answer)]


def multiplied(task, words):
    """The elements applied one after the other."""
    things = range(len(words[0]))
    for element in words[:-2]:
        things = [int(element[i]) for i in things]
    return [None] * (len(words) - 1) + ["".join(map(str, things))]


ANSWERS = {
    Copy: lambda task, words: rewritten(words, list),
    Reverse: lambda task, words: rewritten(words, lambda items: items[::-1]),
    Sort: lambda task, words: rewritten(words, lambda items: sorted(items, key=int)),
    Addition: added,
    ModularArithmetic: modular,
    AssociativeRecall: recalled,
    Induction: induced,
    ListOps: evaluated,
    WordProblem: multiplied,
}


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_examples(task):
    check_examples(task, ANSWERS[type(task)])


def test_a_test_may_be_of_longer_ones_alone():
    _, scored = Copy(items=4, shortest=3).examples(np.random.default_rng(0), 1000)
    assert np.unique(scored.sum(1) - 1).tolist() == [3, 4]
    with pytest.raises(ConfigError, match=r"^copy\.items: 4 is less than 5$"):
        Copy(items=4, shortest=5)
    with pytest.raises(ConfigError, match=r"^copy\.shortest: 0 is less than 1$"):
        Copy(shortest=0)
    assert to_json(Copy(items=4)) == {"variant": "copy", "items": 4, "alphabet": 10}


def test_the_number_of_items_and_the_items_are_uniform():
    tokens, scored = Copy(items=4, alphabet=3).examples(np.random.default_rng(0), 20_000)
    sizes = np.bincount(scored.sum(1) - 1, minlength=5)
    np.testing.assert_allclose(sizes[1:] / len(tokens), 1 / 4, atol=0.02)
    np.testing.assert_allclose(np.bincount(tokens[:, 0] - len(SPECIAL)) / len(tokens), 1 / 3, atol=0.02)


def test_recall_queries_every_key_once():
    task = AssociativeRecall(alphabet=12, sequence_length=32, pairs=4)
    tokens, scored = task.examples(np.random.default_rng(0), 200)
    for row, marks in zip(tokens, scored, strict=True):
        keys, values = row[:8:2], row[1:8:2]
        assert len(set(keys)) == len(set(values)) == marks.sum() == 4
        assert max(keys) < len(SPECIAL) + 6 <= min(values)
        assert sorted(row[8:][np.isin(row[8:], keys)]) == sorted(keys)


def test_recall_gaps_follow_the_power_law():
    task = AssociativeRecall(sequence_length=22, pairs=1, power=0.5)
    places = task.examples(np.random.default_rng(0), 20_000)[1].argmax(1)
    expected = np.arange(1, 11) ** -0.5
    np.testing.assert_allclose(np.bincount(places)[3::2] / len(places), expected / expected.sum(), atol=0.02)


def test_induction_has_the_trigger_twice():
    task = Induction(sequence_length=9, alphabet=5)
    tokens, _ = task.examples(np.random.default_rng(0), 500)
    trigger = tokens == len(SPECIAL) + 5
    assert (trigger.sum(1) == 2).all()
    assert trigger[:, -2].all()
    assert set(trigger.argmax(1)) == set(range(6))


def test_listops_nests_up_to_its_depth():
    task = ListOps(max_depth=3, max_arguments=4, max_length=50)
    depths = set()
    for row in task.examples(np.random.default_rng(0), 500)[0]:
        steps = [(w[0] == "[") - (w == "]") for w in words_of(task, row)]
        depths.add(max(np.cumsum(steps)))
    assert depths == {1, 2, 3}


@pytest.mark.parametrize("task", TASKS[:8], ids=str)
def test_split_is_distinct_and_disjoint(task):
    parts = split(task, 60, 30, seed=3)
    again = split(task, 60, 30, seed=3)
    for (tokens, scored), (same, _), size in zip(parts, again, (60, 30), strict=True):
        assert tokens.shape == scored.shape == (size, task.length)
        np.testing.assert_array_equal(tokens, same)
    assert len(np.unique(np.concatenate([tokens for tokens, _ in parts]), axis=0)) == 90
    assert not np.array_equal(split(task, 60, 30, seed=4)[0][0], parts[0][0])


@pytest.mark.parametrize(
    ("task", "count"),
    [
        (ModularArithmetic(), 97 * 97),
        (ModularArithmetic(operation="divide"), 97 * 96),
        (Copy(items=10, alphabet=2), 2**11 - 2),
        (Addition(digits=1), 100),
        (ListOps(max_depth=1, max_length=4), 400),
        (AssociativeRecall(alphabet=4, sequence_length=4, pairs=1), 4),
        (Induction(sequence_length=4, alphabet=3), 3),
    ],
    ids=str,
)
def test_split_reaches_every_example_and_no_more(task, count):
    train, test = split(task, count - 2, 2, seed=0)
    assert len(np.unique(np.concatenate([train[0], test[0]]), axis=0)) == count
    with pytest.raises(ConfigError, match=f"only {count} distinct examples"):
        split(task, count, 1, seed=0)


def test_another_task_in_the_test_has_no_example_of_the_training():
    """Not even where its rows are longer: without padding, they are the same."""
    short, long = Copy(items=2, alphabet=3), Copy(items=3, alphabet=3)
    (train, _), (test, _) = split(short, 6, 39 - 6, seed=0, test=long)
    known = {np.trim_zeros(row, "b").tobytes() for row in train}
    assert len(known) == 6
    assert not known & {np.trim_zeros(row, "b").tobytes() for row in test}


def test_split_mixes_what_is_found_first():
    """Short examples are drawn often, yet half of them are in the test part."""
    (_, train), (_, test) = split(Copy(items=10, alphabet=2), 1000, 1000, seed=0)
    short = [np.count_nonzero(scored.sum(1) <= 7) for scored in (train, test)]
    assert sum(short) == 2**7 - 2
    assert math.isclose(short[0], short[1], abs_tol=40)


def test_split_of_nothing_and_of_less():
    (train, _), (test, _) = split(Copy(), 0, 0, seed=0)
    assert train.shape == test.shape == (0, 22)
    with pytest.raises(ConfigError, match="-1 training"):
        split(Copy(), -1, 2, seed=0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("copy(items=0)", "copy.items: 0 is less than 1"),
        ("reverse(alphabet=0)", "reverse.alphabet: 0 is less than 1"),
        ("addition(digits=0)", "addition.digits: 0 is less than 1"),
        ("modular_arithmetic(modulus=1)", "modular_arithmetic.modulus: 1 is less than 2"),
        ("modular_arithmetic(modulus=49, operation='divide')", "modular_arithmetic.modulus: 49 is not a prime"),
        ("modular_arithmetic(operation='divid')", "modular_arithmetic.operation: unknown value 'divid'; did you mean"),
        ("associative_recall(pairs=0)", "associative_recall.pairs: 0 is less than 1"),
        ("associative_recall(alphabet=7)", "associative_recall.alphabet: 7 is less than 8"),
        ("associative_recall(sequence_length=15)", "associative_recall.sequence_length: 15 is less than 16"),
        ("associative_recall(power=0)", "associative_recall.power: 0.0 is not positive"),
        ("induction(sequence_length=3)", "induction.sequence_length: 3 is less than 4"),
        ("induction(alphabet=0)", "induction.alphabet: 0 is less than 1"),
        ("listops(max_depth=0)", "listops.max_depth: 0 is less than 1"),
        ("listops(max_arguments=1)", "listops.max_arguments: 1 is less than 2"),
        ("listops(max_length=3)", "listops.max_length: 3 is less than 4"),
    ],
)
def test_impossible_fields_are_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        AlgorithmicTask.parse(text)


def test_an_operation_is_checked_without_the_text_form():
    with pytest.raises(ConfigError, match="unknown value 'power'"):
        ModularArithmetic(operation="power")  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class Written(RowTask):
    """Always the same row."""

    name = "written"
    symbols = ("a", "b", "=")
    length = 4
    question: tuple[str, ...] = ("a", "=")
    answer: tuple[str, ...] = ("b", "</s>")
    marks: int = 4

    def row(self, draw):
        symbols, scored = answered(self.question, self.answer)
        return symbols, scored[: self.marks]


def test_a_row_is_written_in_symbols():
    tokens, scored = Written(answer=("b",)).examples(np.random.default_rng(0), 2)
    assert tokens.tolist() == [[5, 7, 6, 0]] * 2
    assert scored.tolist() == [[False, False, True, False]] * 2


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (Written(question=("a", "c")), "^written: row gives 'c'; known: =, a, b"),
        (Written(question=("a", "a", "=")), "row gives 5 symbols and 4 truth values; it needs as many, at most 4"),
        (Written(marks=3), "row gives 4 symbols and 3 truth values; it needs as many, at most 4"),
    ],
)
def test_a_row_that_is_none_of_the_task(task, message):
    with pytest.raises(ConfigError, match=message):
        task.examples(np.random.default_rng(0), 1)
