"""BLEU by hand and against sacreBLEU."""

import math
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from transformer.analysis.bleu import Bleu, bleu4, remove_bpe, sacrebleu
from transformer.core.errors import ConfigError


def sentences(rng, count, shortest=0):
    return [" ".join(rng.choice(list("abcde"), rng.integers(shortest, 15))) for _ in range(count)]


def test_by_hand():
    """Matches 5 of 6, 3 of 5, 2 of 4 and 1 of 3 for 6 tokens against 7."""
    bleu = bleu4(["the cat sat on a mat"], ["the cat sat on the red mat"])
    assert bleu.precisions == pytest.approx((500 / 6, 60, 50, 100 / 3))
    assert bleu.brevity_penalty == pytest.approx(math.exp(1 - 7 / 6))
    assert bleu.score == pytest.approx(100 * math.exp(-1 / 6) * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25)
    assert (bleu.hypothesis_length, bleu.reference_length) == (6, 7)


def test_a_repeated_word_counts_as_often_as_the_reference_has_it():
    """Papineni et al. 2002, section 2.1.1: the modified unigram precision is 2 of 7."""
    bleu = bleu4(["the the the the the the the"], ["the cat is on the mat"])
    assert bleu.precisions == pytest.approx((200 / 7, 0, 0, 0))
    assert bleu.brevity_penalty == 1
    assert bleu.score == 0


def test_counts_are_of_the_corpus_and_not_of_sentences():
    assert bleu4(["a b c d", "x"], ["a b c d", "y"]).precisions == pytest.approx((80, 100, 100, 100))


def test_the_same_text_has_100():
    texts = sentences(np.random.default_rng(0), 9, shortest=4)
    bleu = bleu4(texts, texts)
    assert (bleu.score, *bleu.precisions, bleu.brevity_penalty) == pytest.approx((100, 100, 100, 100, 100, 1))


@pytest.mark.parametrize("seed", range(5))
def test_it_is_that_of_sacrebleu(seed):
    library = pytest.importorskip("sacrebleu")
    rng = np.random.default_rng(seed)
    hypotheses, references = sentences(rng, 20), sentences(rng, 20, shortest=seed)
    theirs = library.corpus_bleu(hypotheses, [references], tokenize="none", smooth_method="none", force=True)
    ours = bleu4(hypotheses, references)
    assert ours.score == pytest.approx(theirs.score, abs=1e-6)
    assert ours.score > 0
    assert ours.precisions == pytest.approx(theirs.precisions, abs=1e-6)
    assert ours.brevity_penalty == pytest.approx(theirs.bp, abs=1e-6)
    assert (ours.hypothesis_length, ours.reference_length) == (theirs.sys_len, theirs.ref_len)


@pytest.mark.parametrize(
    ("hypotheses", "expected"),
    [
        ([], Bleu(0, (0, 0, 0, 0), 1, 0, 0)),
        ([""], Bleu(0, (0, 0, 0, 0), 0, 0, 4)),
        (["a b c"], Bleu(0, (100, 100, 100, 0), math.exp(-1 / 3), 3, 4)),
    ],
)
def test_nothing_and_less_than_four_tokens_have_zero(hypotheses, expected):
    bleu = bleu4(hypotheses, ["a b c d"] * len(hypotheses))
    assert bleu[2:] == pytest.approx(expected[2:])
    assert bleu[:2] == expected[:2]


def test_every_hypothesis_needs_a_reference():
    for bleu in (bleu4, sacrebleu):
        with pytest.raises(ConfigError, match="2 hypotheses for 1 references"):
            bleu(["a", "b"], ["a"])
        with pytest.raises(ConfigError, match=r"^bleu: a text is given, and a list of them is needed$"):
            bleu("a b c", "a b c")


def test_sacrebleu_separates_punctuation():
    pytest.importorskip("sacrebleu")
    assert sacrebleu(["It is done, now."], ["It is done , now ."]) == pytest.approx(100)
    assert bleu4(["It is done, now."], ["It is done , now ."]).score == 0


def test_a_missing_library_is_named_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(ConfigError, match=r"pip install 'transformer\[text\]'"):
        sacrebleu(["a"], ["a"])


def test_joined_pieces_are_whole_words():
    assert remove_bpe("sa@@ f@@ ti@@ g-@@ grünes gras @ x@@y") == "saftig-grünes gras @ x@@y"
    assert remove_bpe("a b@@\nc@@") == "a b\nc"


def test_multi30k_has_its_number_of_tokens():
    data = os.environ.get("TRANSFORMER_DATA")
    if data is None:
        pytest.skip("TRANSFORMER_DATA is not set: there is no multi30k here")
    text = (Path(data) / "multi30k-bpe" / "test.2016.de").read_text(encoding="utf-8")
    references = remove_bpe(text).splitlines()
    bleu = bleu4(references, references)
    assert bleu.reference_length == 12_103
    assert bleu.score == pytest.approx(100)
