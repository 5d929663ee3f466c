"""MAD's tasks: answers computed a second time, and the distributions that their fields promise."""

import functools
import re

import numpy as np
import pytest

from tests.data.tasks.checks import SPECIAL, check_examples, words_of
from transformer.core.errors import ConfigError
from transformer.data.tasks.mad import Compression, FuzzyRecall, InContextRecall, Memorization, SelectiveCopying
from transformer.data.tasks.task import AlgorithmicTask

NOISY = InContextRecall(alphabet=8, pairs=20, noise_symbols=5, noise=0.4)
TASKS = [
    InContextRecall(),
    InContextRecall(alphabet=5, pairs=2),
    InContextRecall(noise_symbols=16, noise=0.2),
    NOISY,
    FuzzyRecall(),
    FuzzyRecall(shortest_key=3),
    FuzzyRecall(alphabet=3, sequence_length=6, key_tokens=1, value_tokens=2),
    SelectiveCopying(),
    SelectiveCopying(alphabet=3, sequence_length=10, items=4),
    SelectiveCopying(alphabet=3, sequence_length=9, items=4),
    Compression(),
    Compression(alphabet=2, items=1),
    Memorization(),
    Memorization(keys=3, pairs=3, dictionary_seed=5),
]


def recalled(task, words):
    """A value is read from its last mention; noise has none."""
    known, answers = {}, []
    for key, value in zip(words[::2], words[1::2], strict=True):
        answers += [None, known.get(key)]
        if key[0] == "k":
            known[key] = value
    return answers


def matched(task, words):
    """The runs of key symbols and of value symbols, each value told by its key."""
    known, answers = {}, []
    for key, value in re.findall(r"((?:k\d+ )+)((?:v\d+ )+)", " ".join([*words, ""])):
        answers += [None] * len(key.split()) + known.get(key, [None] * len(value.split()))
        known[key] = value.split()
    return answers


def selected(task, words):
    cut = words.index("=")
    return [None] * (cut + 1) + [word for word in words[:cut] if word != "."]


@functools.cache
def dictionary(task):
    """Every key and its value, from many examples."""
    told = {}
    for row in task.examples(np.random.default_rng(7), 200)[0]:
        words = words_of(task, row)
        for key, value in zip(words[::3], words[2::3], strict=True):
            assert told.setdefault(key, value) == value
    return told


def remembered(task, words):
    assert len(set(words[::3])) == task.pairs
    assert set(words[1::3]) == {"!"}
    told = dictionary(task)
    return [told[words[i - 2]] if i % 3 == 2 else None for i in range(len(words))]


ANSWERS = {
    InContextRecall: recalled,
    FuzzyRecall: matched,
    SelectiveCopying: selected,
    Compression: selected,
    Memorization: remembered,
}


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_examples(task):
    check_examples(task, ANSWERS[type(task)], count=20)


@pytest.mark.parametrize("task", [t for t in TASKS if isinstance(t, InContextRecall | FuzzyRecall)], ids=str)
def test_the_last_key_came_before(task):
    tokens, scored = task.examples(np.random.default_rng(0), 200)
    ends = np.count_nonzero(tokens, 1)
    assert scored[np.arange(200), ends - 1].all()


def test_the_last_key_is_any_that_came_before():
    task, ranks = InContextRecall(alphabet=16, pairs=8), []
    for row in task.examples(np.random.default_rng(0), 3000)[0]:
        keys = sorted(set(row[:14:2]))
        ranks += [keys.index(row[14])] if len(keys) == 4 else []
    np.testing.assert_allclose(np.bincount(ranks) / len(ranks), 1 / 4, atol=0.05)


def test_values_are_uniform_and_of_each_example():
    """A pair of any key with any value is as probable as another."""
    tokens, _ = InContextRecall(alphabet=7, pairs=2).examples(np.random.default_rng(0), 6000)
    first = (tokens[:, 0] - len(SPECIAL)) * 4 + tokens[:, 1] - len(SPECIAL) - 3
    np.testing.assert_allclose(np.bincount(first) / len(first), [1 / 12] * 12, atol=0.02)


def test_noise_has_its_share_and_leaves_a_pair():
    tokens, _ = NOISY.examples(np.random.default_rng(0), 2000)
    noise = tokens >= len(SPECIAL) + 8
    np.testing.assert_array_equal(noise[:, ::2], noise[:, 1::2])
    assert noise[:, :-2].mean() == pytest.approx(0.4 * 18 / 19, abs=0.01)
    assert not noise[:, -2:].any()
    assert set(np.unique(tokens[noise])) == set(range(13, 18))
    rare = InContextRecall(pairs=4, noise_symbols=1, noise=0.99)
    assert (rare.examples(np.random.default_rng(0), 200)[0][:, :6:2] < len(SPECIAL) + 16).any(1).all()


def test_fuzzy_lengths():
    """Keys and values of every length occur, without a symbol twice; with the longest alone, no shorter key."""
    for shortest in (1, 3):
        task, sizes = FuzzyRecall(shortest_key=shortest), ([], [])
        for row in task.examples(np.random.default_rng(0), 200)[0]:
            words = words_of(task, row[row > 0])
            assert task.length - 12 < len(words) <= task.length
            for key, value in re.findall(r"((?:k\d+ )+)((?:v\d+ )+)", " ".join([*words, ""])):
                for symbols, found in zip((key.split(), value.split()), sizes, strict=True):
                    assert len(set(symbols)) == len(symbols)
                    found.append(len(symbols))
        keys, values = (np.bincount(found, minlength=4)[1:] / len(found) for found in sizes)
        np.testing.assert_allclose(keys, [1 / 3] * 3 if shortest == 1 else [0, 0, 1], atol=0.03)
        np.testing.assert_allclose(values, 1 / 3, atol=0.03)


def test_places_of_the_copied_symbols_are_uniform():
    task = SelectiveCopying(alphabet=2, sequence_length=14, items=3)
    tokens, _ = task.examples(np.random.default_rng(0), 10_000)
    data = tokens[:, :10] < len(SPECIAL) + 2
    assert (data.sum(1) == 3).all()
    np.testing.assert_allclose(data.mean(0), 0.3, atol=0.02)


def test_a_dictionary_gives_every_key_another_value():
    one, other = (dictionary(Memorization(keys=20, pairs=5, dictionary_seed=seed)) for seed in (0, 1))
    assert len(one) == len(set(one.values())) == 20
    assert one.keys() == other.keys()
    assert one != other


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("in_context_recall(alphabet=1)", "in_context_recall.alphabet: 1 is less than 2"),
        ("in_context_recall(pairs=1)", "in_context_recall.pairs: 1 is less than 2"),
        ("in_context_recall(noise=-0.1)", r"in_context_recall.noise: -0.1 is not in \[0, 1\)"),
        ("in_context_recall(noise=0.1)", "in_context_recall.noise_symbols: 0 is less than 1"),
        ("in_context_recall(noise_symbols=-1)", "in_context_recall.noise_symbols: -1 is less than 0"),
        ("in_context_recall(noise_symbols=1, noise=1)", r"in_context_recall.noise: 1.0 is not in \[0, 1\)"),
        ("fuzzy_recall(shortest_key=0)", "fuzzy_recall.shortest_key: 0 is less than 1"),
        ("fuzzy_recall(shortest_key=4)", "fuzzy_recall.key_tokens: 3 is less than 4"),
        ("fuzzy_recall(value_tokens=0)", "fuzzy_recall.value_tokens: 0 is less than 1"),
        ("fuzzy_recall(alphabet=5)", "fuzzy_recall.alphabet: 5 is less than 6"),
        ("fuzzy_recall(alphabet=8, value_tokens=5)", "fuzzy_recall.alphabet: 8 is less than 9"),
        ("fuzzy_recall(sequence_length=11)", "fuzzy_recall.sequence_length: 11 is less than 12"),
        ("selective_copying(alphabet=0)", "selective_copying.alphabet: 0 is less than 1"),
        ("selective_copying(items=0)", "selective_copying.items: 0 is less than 1"),
        ("selective_copying(sequence_length=32)", "selective_copying.sequence_length: 32 is less than 33"),
        ("compression(alphabet=0)", "compression.alphabet: 0 is less than 1"),
        ("compression(items=0)", "compression.items: 0 is less than 1"),
        ("memorization(pairs=0)", "memorization.pairs: 0 is less than 1"),
        ("memorization(keys=15)", "memorization.keys: 15 is less than 16"),
        ("memorization(dictionary_seed=-1)", "memorization.dictionary_seed: -1 is less than 0"),
    ],
)
def test_impossible_fields_are_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        AlgorithmicTask.parse(text)


@pytest.mark.parametrize("task", [SelectiveCopying(alphabet=3), Compression(alphabet=3)], ids=str)
def test_symbols_to_copy_are_uniform(task):
    tokens, scored = task.examples(np.random.default_rng(0), 500)
    symbols = tokens[scored] - len(SPECIAL)
    np.testing.assert_allclose(np.bincount(symbols) / symbols.size, [1 / 3] * 3, atol=0.03)


def test_the_pair_that_noise_leaves_is_any_but_the_last():
    tokens, _ = InContextRecall(pairs=4, noise_symbols=1, noise=0.99).examples(np.random.default_rng(0), 2000)
    np.testing.assert_allclose((tokens[:, :6:2] < len(SPECIAL) + 16).mean(0), [1 / 3] * 3, atol=0.04)
