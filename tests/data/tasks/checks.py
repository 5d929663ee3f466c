"""What every algorithmic task has to do, checked with answers that a solver computes from the words."""

import numpy as np

from transformer.data.tasks.task import AlgorithmicTask

SPECIAL = ("<pad>", "<s>", "</s>", "<unk>", "<mask>")


def words_of(task, tokens):
    return [(SPECIAL + task.symbols)[t] for t in tokens]


def check_examples(task, answer, count=50):
    """The scored tokens, and no others, are the answers; shapes, ids, padding, text form and seed are right."""
    tokens, scored = task.examples(np.random.default_rng(0), count)
    assert tokens.shape == scored.shape == (count, task.length)
    assert (tokens.dtype, scored.dtype) == (np.int32, bool)
    assert set(np.unique(tokens)) <= {0, 2, *range(len(SPECIAL), len(SPECIAL) + len(task.symbols))}
    assert len(set(task.symbols)) == len(task.symbols)
    assert AlgorithmicTask.parse(str(task)) == task
    np.testing.assert_array_equal(task.examples(np.random.default_rng(0), count)[0], tokens)
    for row, marks in zip(tokens, scored, strict=True):
        used = np.count_nonzero(row)
        assert row[:used].all()
        assert not marks[used:].any()
        words = words_of(task, row[:used])
        assert [w if m else None for w, m in zip(words, marks, strict=False)] == answer(task, words)
    none = task.examples(np.random.default_rng(0), 0)
    assert none[0].shape == none[1].shape == (0, task.length)


def answered(task, count=50):
    """For each example its words, without padding, and for each word the word if it is scored, else None."""
    for row, marks in zip(*task.examples(np.random.default_rng(0), count), strict=True):
        words = words_of(task, row[: np.count_nonzero(row)])
        yield words, [w if m else None for w, m in zip(words, marks, strict=False)]


def after_equals(words, answer, end=True):
    """The answers where all that follows the one `=` is an answer."""
    return [None] * (words.index("=") + 1) + [*answer, *(["</s>"] if end else [])]
