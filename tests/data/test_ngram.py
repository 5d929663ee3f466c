"""The n-gram baseline against a model written with dictionaries."""

import math
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from transformer.data.corpus import load_corpus
from transformer.data.ngram import ngram_loss, usual_order
from transformer.runs.data import TextConfig


def by_dictionary(train, validation, vocab_size, order):
    counts = [Counter(tuple(train[i - n : i + 1]) for i in range(n, len(train))) for n in range(order + 1)]

    def probability(history, word, n):
        if n < 0:
            return 1 / vocab_size
        context = tuple(history[len(history) - n :])
        followers = {gram: c for gram, c in counts[n].items() if gram[:-1] == context}
        backed_off = probability(history, word, n - 1)
        if not followers:
            return backed_off
        total, types = sum(followers.values()), len(followers)
        return (followers.get((*context, word), 0) + types * backed_off) / (total + types)

    losses = [
        -math.log(probability(validation[max(0, i - order) : i], validation[i], min(i, order)))
        for i in range(len(validation))
    ]
    return sum(losses) / len(losses)


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_the_loss_is_that_of_a_model_written_with_dictionaries(order):
    rng = np.random.default_rng(0)
    train, validation = rng.integers(0, 4, 60), rng.integers(0, 5, 20)
    assert ngram_loss(train, validation, 5, order) == pytest.approx(by_dictionary(train, validation, 5, order))


def test_documents_are_texts_of_their_own():
    """What follows in another document is not counted, and no document's first token is predicted."""
    documents = [np.repeat(token, 5) for token in (0, 1, 2, 0, 1)]
    train, validation = np.concatenate(documents), np.concatenate([documents[2], documents[0]])
    ends = np.cumsum([5] * 5)
    own = ngram_loss(train, validation, 3, 1, ends, np.array([5, 10]))
    # After a token of 0 (8 of 8 within its documents): c = 8, t = 1, and the same 10 of 25 of the text below it.
    unigram = (np.array([10, 10, 5]) + 3 * (1 / 3)) / (25 + 3)
    seen = np.array([8, 8, 4])
    expected = -np.log((seen + unigram) / (seen + 1))
    assert own == pytest.approx((expected[2] + expected[0]) / 2)
    assert ngram_loss(train, validation, 3, 1) > own


def test_documents_may_all_be_shorter_than_the_order():
    """Then nothing is known of contexts as long, and the loss is that of shorter ones."""
    train, ends, held_out = np.array([0, 1, 0, 1]), np.array([2, 4]), np.array([0, 1, 0, 1])
    assert ngram_loss(train, held_out, 2, 3, ends) == pytest.approx(ngram_loss(train, held_out, 2, 1, ends))


def test_orders_that_do_not_fit_64_bits_are_refused():
    with pytest.raises(ValueError, match="64 bits"):
        ngram_loss(np.zeros(9), np.zeros(9), 50_000, 4)
    assert usual_order(65) == 4
    assert usual_order(50_000) == 3


def test_tinyshakespeare():
    """The published orders 3, 4 and 5 of this model."""
    data = os.environ.get("TRANSFORMER_DATA")
    if data is None:
        pytest.skip("TRANSFORMER_DATA is not set: there is no tinyshakespeare here")
    corpus = load_corpus(TextConfig(path=str(Path(data) / "tinyshakespeare" / "input.txt")))
    losses = [round(ngram_loss(corpus.train, corpus.validation, 65, order), 3) for order in (3, 4, 5)]
    assert losses == [1.774, 1.669, 1.698]
