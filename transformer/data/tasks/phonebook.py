"""Names with numbers, one of which is looked up."""

import string
from dataclasses import dataclass

import numpy as np

from transformer.core.errors import ConfigError
from transformer.data.tasks.task import DIGITS, AlgorithmicTask, as_examples, different, joined

LETTERS = tuple(string.ascii_lowercase)
COLON, QUESTION = len(LETTERS) + len(DIGITS), len(LETTERS) + len(DIGITS) + 1


@dataclass(frozen=True)
class PhoneBook(AlgorithmicTask):
    """`j o : 3 1 a x : 0 7 ? a x : 0 7`: the numbers of names (Jelassi et al. 2024, "Repeat After Me", phone book).

    Names are different and random, as are the questions; numbers are random. A question's number is the
    answer. In the paper, a pretrained model reads real names and a few questions with their answers before
    the one that is scored; here every question is.
    """

    name = "phone_book"
    entries: int = 16
    """Number of names."""
    queries: int = 1
    """Number of questions, at most `entries`."""
    name_length: int = 4
    """Letters of a name, at most 13."""
    digits: int = 4
    """Digits of a number."""

    def __post_init__(self):
        self.at_least(name_length=1, digits=1, queries=1, entries=self.queries)
        if self.name_length > 13:  # 26^13 is the greatest power in 64 bits
            raise ConfigError(f"{self.name}.name_length: {self.name_length} is more than 13")
        if self.entries > (names := len(LETTERS) ** self.name_length):
            raise ConfigError(f"{self.name}.entries: {self.entries}, but there are {names} names of {self.name_length}")

    @property
    def symbols(self):
        return (*LETTERS, *DIGITS, ":", "?")

    @property
    def length(self):
        entry = self.name_length + 1 + self.digits
        return self.entries * entry + self.queries * (entry + 1)

    def examples(self, rng, count):
        names = different(rng, count, len(LETTERS) ** self.name_length, self.entries)
        letters = names[..., None] // len(LETTERS) ** np.arange(self.name_length) % len(LETTERS)
        numbers = len(LETTERS) + rng.integers(len(DIGITS), size=(count, self.entries, self.digits))
        book = np.concatenate([letters, np.full((count, self.entries, 1), COLON), numbers], 2)
        asked = np.take_along_axis(book, different(rng, count, self.entries, self.queries)[..., None], 1)
        questions = np.concatenate([np.full((count, self.queries, 1), QUESTION), asked], 2)
        answers = np.broadcast_to(np.arange(questions.shape[2]) >= self.name_length + 2, questions.shape)
        scored = joined(np.zeros(book.shape, bool), answers)
        return as_examples(joined(book, questions), scored)
