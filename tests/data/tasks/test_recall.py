"""Recall among zeros: nothing but pairs and queries is left."""

import numpy as np
import pytest

from tests.data.tasks.checks import check_examples, words_of
from transformer.core.errors import ConfigError
from transformer.data.tasks.recall import AssociativeRecall


def recalled(task, words):
    values, answers = {}, []
    for before, word in zip([None, *words], words, strict=False):
        known = values.get(before) if len(answers) >= 2 * task.pairs else None
        if before in task.symbols[: task.alphabet // 2] and known is None:
            values[before] = word
        answers.append(known)
    return answers


@pytest.mark.parametrize(
    "task",
    [
        AssociativeRecall(filler="zeros"),
        AssociativeRecall(alphabet=9, sequence_length=17, pairs=4, filler="zeros"),
        AssociativeRecall(alphabet=40, sequence_length=33, pairs=3, power=2.0, filler="zeros"),
    ],
    ids=str,
)
def test_all_but_pairs_and_queries_is_zero(task):
    check_examples(task, recalled)
    for row in task.examples(np.random.default_rng(1), 50)[0]:
        words = words_of(task, row)
        assert "0" not in words[: 2 * task.pairs]
        assert words[2 * task.pairs :].count("0") == task.length - 4 * task.pairs


def test_filler_changes_nothing_else():
    random, zeros = (AssociativeRecall(alphabet=20, filler=filler) for filler in ("random", "zeros"))
    assert zeros.symbols == (*random.symbols, "0")
    one, other = (task.examples(np.random.default_rng(0), 20)[0][:, :8] for task in (random, zeros))
    np.testing.assert_array_equal(one, other)


def test_an_unknown_filler():
    with pytest.raises(ConfigError, match=r"associative_recall.filler: unknown value 'zero'; did you mean 'zeros'"):
        AssociativeRecall(filler="zero")
