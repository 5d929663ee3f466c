"""Properties of algorithmic tasks. Each raises AssertionError with one line where it does not hold."""

import numpy as np

from transformer.data.tasks.task import AlgorithmicTask, Examples, drawn
from transformer.runs.tokenizers import SPECIAL

COUNT = 32


def examples_of(task: AlgorithmicTask, seed: int = 0) -> Examples:
    """Some examples, (N, L) tokens and which of them are answers."""
    return drawn(task, np.random.default_rng(seed), COUNT)


def named(task: AlgorithmicTask) -> None:
    """Its symbols are different texts, none of them a special token."""
    symbols = task.symbols
    assert all(isinstance(symbol, str) for symbol in symbols), f"its symbols are no texts: {symbols!r:.80}"
    assert len({*symbols, *SPECIAL}) == len(symbols) + len(SPECIAL), "a symbol occurs twice, or is a special token"


def answered(task: AlgorithmicTask) -> None:
    """Tokens that it has, with answers; the first token is none, because nothing comes before it."""
    _, scored = examples_of(task)
    assert not scored[:, 0].any(), "the first token of an example is an answer, and nothing comes before it"


def of_its_generator(task: AlgorithmicTask) -> None:
    """The same generator draws the same examples, another one others."""
    first, again, others = (examples_of(task, seed) for seed in (0, 0, 1))
    for one, other in zip(first, again, strict=True):
        assert (one == other).all(), "the same generator draws other examples: it takes chance from elsewhere"
    assert (first[0] != others[0]).any(), "another generator draws the same examples"


def padded_at_the_end(task: AlgorithmicTask) -> None:
    """Padding is at the end of an example and no answer."""
    tokens, scored = examples_of(task)
    pad = tokens == SPECIAL.index("<pad>")
    assert (np.diff(pad.astype(int), axis=1) >= 0).all(), "an example has padding before its end"
    assert not (scored & pad).any(), "padding is an answer"


TASK = (named, answered, of_its_generator, padded_at_the_end)
