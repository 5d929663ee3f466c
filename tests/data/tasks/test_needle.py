"""The needle in a haystack: sentences found with a regular expression."""

import collections
import itertools
import re

import numpy as np
import pytest

from tests.data.tasks.checks import SPECIAL, check_examples, words_of
from transformer.core.errors import ConfigError
from transformer.data.tasks.needle import NeedleInHaystack


def read(task, words):
    """The facts of the text, the names asked for, and the text without its needles."""
    text = " ".join(words)
    text, *questions = text.split(" ? ")
    needle = r"(k\d+) is ((?:\d )+)\. ?"
    return dict(re.findall(needle, text + " ")), [q.split()[0] for q in questions], re.sub(needle, "", text).split()


def found(task, words):
    facts, asked, text = read(task, words)
    assert len(facts) == task.needles
    assert len(set(asked)) == task.queries
    assert all(word[0] == "w" for word in text)
    answers = [None] * words.index("?")
    for key in asked:
        answers += [None, None, None, *facts[key].split()]
    return answers


@pytest.mark.parametrize(
    "task",
    [
        NeedleInHaystack(),
        NeedleInHaystack(100, needles=6, queries=6, digits=2),
        NeedleInHaystack(15, needles=1, digits=4),
        NeedleInHaystack(30, needles=3, queries=2, digits=1, keys=3, words=5, successors=2),
    ],
    ids=str,
)
def test_examples(task):
    check_examples(task, found)


def chain(task, seed):
    """Which words follow a word in an example, and how often."""
    text = read(task, words_of(task, task.examples(np.random.default_rng(seed), 1)[0][0]))[2]
    pairs = collections.Counter(itertools.pairwise(text))
    return {word: {after: n for (before, after), n in pairs.items() if before == word} for word in text}


def test_the_text_is_of_one_chain():
    """Every example has the same, unless its seed is another; what may follow a word is equally probable."""
    one, other = (NeedleInHaystack(6000, words=9, successors=3, text_seed=seed) for seed in (0, 1))
    for counts in chain(one, 0).values():
        np.testing.assert_allclose([n / sum(counts.values()) for n in counts.values()], [1 / 3] * 3, atol=0.08)
    follow = {word: set(after) for word, after in chain(one, 0).items()}
    assert follow == {word: set(after) for word, after in chain(one, 1).items()}
    assert follow != {word: set(after) for word, after in chain(other, 0).items()}


def test_the_text_begins_with_any_word():
    task = NeedleInHaystack(40, words=9)
    starts = {read(task, words_of(task, row))[2][0] for row in task.examples(np.random.default_rng(0), 200)[0]}
    assert len(starts) == 9


def test_needles_stand_anywhere_and_any_is_asked():
    task = NeedleInHaystack(23, needles=2, digits=1, keys=5)
    places, asked = [], []
    for row in task.examples(np.random.default_rng(0), 4000)[0]:
        words = words_of(task, row)
        facts, (key,), _ = read(task, words)
        asked.append(list(facts).index(key))
        before = [i for i, word in enumerate(words[:-4]) if word in facts]
        places += [before[0], before[1] - 4]
    np.testing.assert_allclose(np.bincount(asked) / len(asked), 1 / 2, atol=0.03)
    # The text has 11 words: 12 places, and each of two needles stands at any of them.
    np.testing.assert_allclose(np.bincount(places) / len(places), [1 / 12] * 12, atol=0.015)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"queries": 0}, "needle_in_haystack.queries: 0 is less than 1"),
        ({"queries": 5}, "needle_in_haystack.needles: 4 is less than 5"),
        ({"keys": 3}, "needle_in_haystack.keys: 3 is less than 4"),
        ({"digits": 0}, "needle_in_haystack.digits: 0 is less than 1"),
        ({"words": 3}, "needle_in_haystack.words: 3 is less than 4"),
        ({"successors": 0}, "needle_in_haystack.successors: 0 is less than 1"),
        ({"text_seed": -1}, "needle_in_haystack.text_seed: -1 is less than 0"),
        ({"sequence_length": 30}, "needle_in_haystack.sequence_length: 30 is less than 31"),
    ],
)
def test_impossible_fields_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        NeedleInHaystack(**fields)


def test_the_shortest_has_one_word():
    task = NeedleInHaystack(31)
    words = words_of(task, task.examples(np.random.default_rng(0), 1)[0][0])
    assert len(read(task, words)[2]) == 1


def test_digits_are_uniform():
    tokens, scored = NeedleInHaystack().examples(np.random.default_rng(0), 2000)
    digits = tokens[scored] - len(SPECIAL)
    np.testing.assert_allclose(np.bincount(digits) / digits.size, [1 / 10] * 10, atol=0.02)
