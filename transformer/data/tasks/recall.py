"""Keys and their values, asked for later; and the symbol that followed a trigger."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from transformer.core.errors import ConfigError
from transformer.data.tasks.task import AlgorithmicTask, as_examples, different, keys_and_values, scored_from, skipping


@dataclass(frozen=True)
class AssociativeRecall(AlgorithmicTask):
    """Multi-query associative recall, MQAR (Arora et al. 2023, "Zoology").

    `pairs` keys with their values come first; later every key occurs once more (a query), followed by its
    value, the answer. Keys are from the first half of the alphabet, values from the second, and none is in
    two pairs. After the pairs come slots of two tokens, of which slot g holds a query with probability
    ∝ g^(`power` - 1).

    In the code of the paper (Zoology, `multiquery_ar`) the value does not follow its query in the input; random
    filler may be any symbol, even a key of a pair; and of V symbols, 0 is neither key nor value, V/2 - 1 are
    keys and V/2 are values: `alphabet` = V - 1 here, with filler `zeros`.
    """

    name = "associative_recall"
    alphabet: int = 256
    """Number of different symbols, at least 2 `pairs`."""
    sequence_length: int = 64
    """Tokens of an example, at least 4 `pairs`."""
    pairs: int = 4
    """Pairs of a key and a value."""
    power: float = 0.01
    """Smaller values place queries closer to the pairs; positive."""
    filler: Literal["random", "zeros"] = "random"
    """All other tokens: random symbols that are no keys of the pairs, or `0`, a symbol for them alone."""

    def __post_init__(self):
        self.at_least(pairs=1, alphabet=2 * self.pairs, sequence_length=4 * self.pairs)
        if not self.power > 0:
            raise ConfigError(f"{self.name}.power: {self.power} is not positive")

    @property
    def symbols(self):
        pairs = keys_and_values(self.alphabet)
        return (*pairs, "0") if self.filler == "zeros" else pairs

    @property
    def length(self):
        return self.sequence_length

    def examples(self, rng, count):
        half = self.alphabet // 2
        keys = different(rng, count, half, self.pairs)
        values = half + different(rng, count, self.alphabet - half, self.pairs)
        if self.filler == "zeros":
            tokens = np.full((count, self.length), self.alphabet)
        else:
            tokens = skipping(rng.integers(self.alphabet - self.pairs, size=(count, self.length)), keys)
        tokens[:, : 2 * self.pairs] = np.stack([keys, values], 2).reshape(count, 2 * self.pairs)
        queries = 2 * self.pairs + 2 * self._gaps(rng, count)
        np.put_along_axis(tokens, queries, keys, 1)
        np.put_along_axis(tokens, queries + 1, values, 1)
        scored = np.zeros(tokens.shape, bool)
        np.put_along_axis(scored, queries + 1, True, 1)
        return as_examples(tokens, scored)

    def _gaps(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Different gaps (count, pairs): the largest of log p + Gumbel noise are a draw without replacement."""
        gaps = np.arange(1, (self.length - 2 * self.pairs) // 2 + 1)
        scores = (self.power - 1) * np.log(gaps) + rng.gumbel(size=(count, len(gaps)))
        return np.argsort(-scores, 1)[:, : self.pairs]


@dataclass(frozen=True)
class Induction(AlgorithmicTask):
    """Induction heads (Gu and Dao 2023, "Mamba", section 4.1.2): random symbols of an alphabet.

    The trigger `!` occurs at a random place and again before the last token, which is the answer: the
    symbol that followed the trigger the first time.
    """

    sequence_length: int = 256
    """Tokens of an example, at least 4."""
    alphabet: int = 16
    """Number of different symbols, without the trigger."""

    def __post_init__(self):
        self.at_least(sequence_length=4, alphabet=1)

    @property
    def symbols(self):
        return (*map(str, range(self.alphabet)), "!")

    @property
    def length(self):
        return self.sequence_length

    def examples(self, rng, count):
        tokens = rng.integers(self.alphabet, size=(count, self.length))
        rows, places = np.arange(count), rng.integers(self.length - 3, size=count)
        tokens[rows, places] = tokens[:, -2] = self.alphabet
        tokens[:, -1] = tokens[rows, places + 1]
        return scored_from(tokens, self.length - 1)
