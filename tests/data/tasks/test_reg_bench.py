"""RegBench: every string is walked through its automaton in plain Python; numbers are those of the fields."""

import itertools

import numpy as np
import pytest

from tests.data.tasks.checks import check_examples, words_of
from transformer.core.errors import ConfigError
from transformer.data.tasks.reg_bench import RegBench

SMALL = RegBench(states=4, alphabet=5, edges=2, strings=6, string_length=5)


def automata(task, count, seed=0):
    """For every example a table: state, then symbol, then the next state."""
    tables = []
    for degrees, symbols, targets in zip(*task._automata(np.random.default_rng(seed), count), strict=True):
        table = [
            {f"s{s}": int(t) for s, t in zip(row[:n], to[:n], strict=True)}
            for n, row, to in zip(degrees, symbols, targets, strict=True)
        ]
        assert [len(edges) for edges in table] == list(degrees)
        tables.append(table)
    return tables


def strings(words):
    return [list(group) for bar, group in itertools.groupby(words, lambda word: word == "|") if not bar]


def walked(task, count):
    """What is scored: the walk fails where a symbol is not allowed."""
    tables = iter(automata(task, count))

    def answer(task, words):
        table, answers = next(tables), []
        for string in strings(words):
            state = 0
            for symbol in string:
                certain = task.scored == "all" or len(table[state]) == 1
                answers.append(symbol if certain and answers else None)
                state = table[state][symbol]
            answers.append(None)
        return answers[:-1]

    return answer


@pytest.mark.parametrize(
    "task",
    [
        RegBench(),
        SMALL,
        RegBench(states=2, alphabet=2, edges=1, strings=3, string_length=1),
        RegBench(scored="certain"),
    ],
    ids=str,
)
def test_examples(task):
    check_examples(task, walked(task, 30), 30)


def test_an_example_without_a_certain_symbol_is_drawn_again():
    task = RegBench(states=4, edges=3, strings=3, string_length=2, scored="certain")
    assert not task._draw(np.random.default_rng(0), 200)[1].any(1).all()
    assert task.examples(np.random.default_rng(0), 200)[1].any(1).all()


def test_numbers_and_lengths_of_strings_are_uniform():
    found = [strings(words_of(SMALL, row[row > 0])) for row in SMALL.examples(np.random.default_rng(0), 4000)[0]]
    numbers = np.bincount([len(example) for example in found])
    np.testing.assert_allclose(numbers / len(found), [0, 0, 0, 1 / 4, 1 / 4, 1 / 4, 1 / 4], atol=0.03)
    lengths = np.bincount([len(string) for example in found for string in example])
    np.testing.assert_allclose(lengths / lengths.sum(), [0, *[1 / 5] * 5], atol=0.03)


def test_automata_have_all_sizes():
    """No edge leads to its own state; two of a state lead to different states; sizes are from 4 to the largest."""
    degrees, symbols, targets = RegBench()._automata(np.random.default_rng(0), 2000)
    assert (targets != np.arange(12)[:, None]).all()
    assert all(len(set(edges)) == 3 for part in (symbols, targets) for edges in part[:300].reshape(-1, 3))
    np.testing.assert_allclose(np.bincount(degrees.ravel()) / degrees.size, [0, 1 / 3, 1 / 3, 1 / 3], atol=0.02)
    np.testing.assert_allclose(np.bincount(symbols.ravel()) / symbols.size, [1 / 18] * 18, atol=0.01)
    # Of 36 edges to n states, nearly all of the n are reached.
    sizes = [np.bincount([len(set(one.ravel())) for one in part], minlength=19) / 2000 for part in (targets, symbols)]
    assert sizes[0][4:13].sum() == sizes[1][4:].sum() == 1
    assert [size @ np.arange(19) for size in sizes] == pytest.approx([8, 11], abs=0.5)
    assert (sizes[0][4], sizes[1][4]) == pytest.approx((1 / 9, 1 / 15), abs=0.02)


def test_edges_are_equally_probable():
    taken = [0, 0]
    for table, row in zip(automata(SMALL, 500), SMALL.examples(np.random.default_rng(0), 500)[0], strict=True):
        for string in strings(words_of(SMALL, row[row > 0])):
            state = 0
            for symbol in string:
                edges = list(table[state])
                if len(edges) == 2:
                    taken[edges.index(symbol)] += 1
                state = table[state][symbol]
    assert taken[0] / sum(taken) == pytest.approx(1 / 2, abs=0.02)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"edges": 0}, "reg_bench.edges: 0 is less than 1"),
        ({"strings": 1}, "reg_bench.strings: 1 is less than 2"),
        ({"string_length": 0}, "reg_bench.string_length: 0 is less than 1"),
        ({"states": 3}, "reg_bench.states: 3 is less than 4"),
        ({"alphabet": 3}, "reg_bench.alphabet: 3 is less than 4"),
        ({"scored": "certainly"}, "reg_bench.scored: unknown value 'certainly'; did you mean 'certain'"),
    ],
)
def test_impossible_fields_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        RegBench(**fields)
