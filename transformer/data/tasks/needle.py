"""Facts in a long text, asked for at its end."""

from dataclasses import dataclass

import numpy as np

from transformer.core.errors import ConfigError
from transformer.data.tasks.task import DIGITS, AlgorithmicTask, as_examples, different, joined

IS, DOT, QUESTION = range(len(DIGITS), len(DIGITS) + 3)
FIRST_KEY = len(DIGITS) + 3


@dataclass(frozen=True)
class NeedleInHaystack(AlgorithmicTask):
    """`… w7 w3 k5 is 4 0 2 . w9 … ? k5 is 4 0 2`: a number told in a long text (Hsieh et al. 2024, "RULER").

    The needles, sentences of different keys with random numbers, stand at random places of the text; those
    that no question asks for distract. With RULER's names: one needle is its single, several needles and one
    question its multi-key, several questions its multi-query retrieval. The text is of a Markov chain, which
    all examples share: after every word come `successors` different words, equally probable.
    """

    name = "needle_in_haystack"
    sequence_length: int = 256
    """Tokens of an example."""
    needles: int = 4
    """Number of needles, at most `keys`."""
    queries: int = 1
    """Number of questions for different keys, at most `needles`."""
    digits: int = 3
    """Digits of a number."""
    keys: int = 32
    """Number of different keys."""
    words: int = 64
    """Number of different words of the text."""
    successors: int = 4
    """Words that may follow a word, at most `words`."""
    text_seed: int = 0
    """Seed of the Markov chain."""

    def __post_init__(self):
        self.at_least(digits=1, successors=1, words=self.successors, text_seed=0)
        self.at_least(queries=1, needles=self.queries, keys=self.needles)
        if self._text < 1:
            shortest = self.sequence_length - self._text + 1
            raise ConfigError(f"{self.name}.sequence_length: {self.sequence_length} is less than {shortest}")

    @property
    def symbols(self):
        keys, words = (f"k{i}" for i in range(self.keys)), (f"w{i}" for i in range(self.words))
        return (*DIGITS, "is", ".", "?", *keys, *words)

    @property
    def length(self):
        return self.sequence_length

    @property
    def _text(self) -> int:
        """Number of words of the text."""
        return self.sequence_length - (self.needles + self.queries) * (self.digits + 3)

    def examples(self, rng, count):
        keys = FIRST_KEY + different(rng, count, self.keys, self.needles)[..., None]
        numbers = rng.integers(len(DIGITS), size=(count, self.needles, self.digits))
        facts = np.concatenate([keys, np.full_like(keys, IS), numbers], 2)
        needles = np.concatenate([facts, np.full_like(keys, DOT)], 2)
        order = different(rng, count, self.needles, self.queries)[..., None]
        questions = np.concatenate([np.full_like(order, QUESTION), np.take_along_axis(facts, order, 1)], 2)
        depths = rng.integers(self._text + 1, size=(count, self.needles))
        haystack = _hidden(self._haystack(rng, count), needles, depths)
        answers = np.broadcast_to(np.arange(questions.shape[2]) >= 3, questions.shape)
        scored = joined(np.zeros(haystack.shape, bool), answers)
        return as_examples(joined(haystack, questions), scored)

    def _haystack(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """The words (count, length of the text)."""
        follow = different(np.random.default_rng(self.text_seed), self.words, self.words, self.successors)
        text = np.empty((count, self._text), np.int64)
        text[:, 0] = rng.integers(self.words, size=count)
        turns = rng.integers(self.successors, size=text.shape)
        for i in range(1, self._text):
            text[:, i] = follow[text[:, i - 1], turns[:, i]]
        return FIRST_KEY + self.keys + text


def _hidden(text: np.ndarray, needles: np.ndarray, depths: np.ndarray) -> np.ndarray:
    """The text (N, T) with needles (N, M, K), each before the word at its depth (N, M), or after all at T."""
    places = joined(np.repeat(depths, needles.shape[2], 1), np.broadcast_to(np.arange(text.shape[1]), text.shape))
    return np.take_along_axis(joined(needles, text), places.argsort(1, kind="stable"), 1)
