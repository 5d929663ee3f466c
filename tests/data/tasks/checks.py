"""What the examples of every task are checked for."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from transformer.data.tasks.task import AlgorithmicTask

SPECIAL = ("<pad>", "<s>", "</s>", "<unk>", "<mask>")
Answers = Sequence[str | None]
"""For each word of an example the word if it is an answer, and None if it is not."""


def words_of(task: AlgorithmicTask, tokens) -> list[str]:
    return [(SPECIAL + task.symbols)[t] for t in tokens]


def answered(task: AlgorithmicTask, count: int = 50, seed: int = 0) -> Iterator[tuple[list[str], Answers]]:
    """The words of examples, without padding, and which of them are scored."""
    for row, marks in zip(*task.examples(np.random.default_rng(seed), count), strict=True):
        words = words_of(task, row[: np.count_nonzero(row)])
        yield words, [w if m else None for w, m in zip(words, marks, strict=False)]


def check_examples(task: AlgorithmicTask, answers: Callable[..., Answers]) -> None:
    """The scored tokens, and no others, are the answers; shapes, ids, padding, text form and seed are right."""
    tokens, scored = task.examples(np.random.default_rng(0), 50)
    assert tokens.shape == scored.shape == (50, task.length)
    assert (tokens.dtype, scored.dtype) == (np.int32, bool)
    assert set(np.unique(tokens)) <= {0, 2, *range(len(SPECIAL), len(SPECIAL) + len(task.symbols))}
    assert len(set(task.symbols)) == len(task.symbols)
    assert AlgorithmicTask.parse(str(task)) == task
    np.testing.assert_array_equal(task.examples(np.random.default_rng(0), 50)[0], tokens)
    for row, marks in zip(tokens, scored, strict=True):
        used = np.count_nonzero(row)
        assert row[:used].all()
        assert not marks[used:].any()
    for words, found in answered(task):
        assert found == list(answers(task, words))


def after_equals(words: list[str], answer, end: bool = True) -> Answers:
    """The answers where all that follows the one `=` is an answer."""
    return [None] * (words.index("=") + 1) + [*answer, *(["</s>"] if end else [])]
