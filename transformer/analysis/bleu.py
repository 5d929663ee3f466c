"""BLEU: the share of n-grams of translations that occur in their references."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from transformer.core.errors import ConfigError


class Bleu(NamedTuple):
    """Corpus BLEU-4 and its parts; score and precisions are per cent."""

    score: float
    """BLEU, 0 to 100."""
    precisions: tuple[float, float, float, float]
    """Precisions of 1-, 2-, 3- and 4-grams."""
    brevity_penalty: float
    """At most 1; 1 where hypotheses are not shorter than references."""
    hypothesis_length: int
    """Number of tokens of all hypotheses."""
    reference_length: int
    """Number of tokens of all references."""


def bleu4(hypotheses: Sequence[str], references: Sequence[str]) -> Bleu:
    """Corpus BLEU-4 in per cent on tokens between whitespace, one reference each, unsmoothed (Papineni et al. 2002).

    Counts are of the whole corpus, so a score of 0 means that some n-gram length has no match at all.

    Raises:
      ConfigError: there are not as many hypotheses as references.
    """
    _check(hypotheses, references)
    pairs = [(h.split(), r.split()) for h, r in zip(hypotheses, references, strict=True)]
    one, two, three, four = (_precision(pairs, order) for order in (1, 2, 3, 4))
    precisions = (one, two, three, four)
    hypothesis_length, reference_length = (
        (sum(map(len, side)) for side in zip(*pairs, strict=True)) if pairs else (0, 0)
    )
    penalty = _brevity_penalty(hypothesis_length, reference_length)
    score = penalty * math.prod(precisions) ** 0.25
    return Bleu(score, precisions, penalty, hypothesis_length, reference_length)


def _precision(pairs: list[tuple[list[str], list[str]]], order: int) -> float:
    """Per cent of the hypotheses' n-grams that occur in their reference, each counted at most as often as there."""
    grams = [(_ngrams(h, order), _ngrams(r, order)) for h, r in pairs]
    total = sum(h.total() for h, _ in grams)
    return 100 * sum((h & r).total() for h, r in grams) / total if total else 0.0


def _ngrams(tokens: list[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(tokens[i:] for i in range(order)), strict=False))


def _brevity_penalty(hypothesis_length: int, reference_length: int) -> float:
    if hypothesis_length >= reference_length:
        return 1.0
    return math.exp(1 - reference_length / hypothesis_length) if hypothesis_length else 0.0


def remove_bpe(text: str) -> str:
    """Join pieces marked by `@@ ` to words (Sennrich et al. 2016); a mark at the end of a line is removed too."""
    return re.sub("@@( |$)", "", text, flags=re.MULTILINE)


def sacrebleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Corpus BLEU-4 of plain text in per cent, with the 13a tokens and the smoothing of sacreBLEU (Post 2018).

    Raises:
      ConfigError: the library is missing, or there are not as many hypotheses as references.
    """
    _check(hypotheses, references)
    try:
        from sacrebleu import corpus_bleu
    except ImportError:
        raise ConfigError("bleu: needs the library sacrebleu: pip install 'transformer[text]'") from None
    return corpus_bleu(hypotheses, [references]).score if hypotheses else 0.0


def _check(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise ConfigError("bleu: a text is given, and a list of them is needed")
    if len(hypotheses) != len(references):
        raise ConfigError(f"bleu: {len(hypotheses)} hypotheses for {len(references)} references")
