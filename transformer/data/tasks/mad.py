"""The six synthetic tasks of MAD (Poli et al. 2024, "Mechanistic Design and Scaling of Hybrid Architectures").

Their default fields are MAD's baseline. MAD trains recall on every token; here only answers are scored, in
training as in its tests.
"""

from dataclasses import dataclass

import numpy as np

from transformer.core.errors import ConfigError
from transformer.data.tasks.task import (
    AlgorithmicTask,
    RowTask,
    as_examples,
    different,
    joined,
    keys_and_values,
    scored_from,
)


@dataclass(frozen=True)
class InContextRecall(AlgorithmicTask):
    """`k3 v1 k0 v7 k3 v1 …`: the value of a key that came before is an answer (MAD, in-context recall).

    Every example has values of its own for the keys, and several keys may have the same. The last key is one
    that came before. A pair is two noise symbols with probability `noise`: MAD's noisy recall is
    `in_context_recall(noise_symbols=16, noise=0.2)`.
    """

    name = "in_context_recall"
    alphabet: int = 16
    """Number of different keys and values, half of them keys."""
    pairs: int = 64
    """Pairs of a key and a value, or of noise, at least 2; MAD's 128 tokens."""
    noise_symbols: int = 0
    """Number of different noise symbols, which MAD's size of a vocabulary includes."""
    noise: float = 0.0
    """Probability of noise at all pairs but the last and a random one."""

    def __post_init__(self):
        if not 0 <= self.noise < 1:
            raise ConfigError(f"{self.name}.noise: {self.noise} is not in [0, 1)")
        self.at_least(alphabet=2, pairs=2, noise_symbols=1 if self.noise else 0)

    @property
    def symbols(self):
        return (*keys_and_values(self.alphabet), *(f"n{i}" for i in range(self.noise_symbols)))

    @property
    def length(self):
        return 2 * self.pairs

    def examples(self, rng, count):
        half, pairs, rows = self.alphabet // 2, self.pairs, np.arange(count)
        noisy = rng.random((count, pairs)) < self.noise
        noisy[rows, rng.integers(pairs - 1, size=count)] = noisy[:, -1] = False
        keys = rng.integers(half, size=(count, pairs))
        met, asked = np.zeros((count, half), bool), np.empty((count, pairs), bool)
        for i in range(pairs):
            if i == pairs - 1:
                keys[:, i] = np.where(met, rng.random(met.shape), -1).argmax(1)
            asked[:, i] = met[rows, keys[:, i]] & ~noisy[:, i]
            met[rows, keys[:, i]] |= ~noisy[:, i]
        values = np.take_along_axis(rng.integers(half, self.alphabet, (count, half)), keys, 1)
        tokens = np.stack([keys, values], 2)
        if self.noise:
            drawn = self.alphabet + rng.integers(self.noise_symbols, size=tokens.shape)
            tokens = np.where(noisy[..., None], drawn, tokens)
        scored = np.stack([np.zeros_like(asked), asked], 2)
        return as_examples(joined(tokens), joined(scored))


@dataclass(frozen=True)
class FuzzyRecall(RowTask):
    """Recall where keys and values have several tokens (MAD, fuzzy in-context recall).

    A key is `shortest_key` to `key_tokens` different symbols, a value 1 to `value_tokens`; all lengths are
    equally probable. Nothing marks where a key or a value ends. All tokens of the value of a key that came
    before are answers; the last key is one that came before. An example ends when no two pairs of the
    greatest length would fit. MAD tests with the longest keys alone: `fuzzy_recall(shortest_key=3)`; it pads
    on the left, and its last key may be one that did not come before.
    """

    name = "fuzzy_recall"
    alphabet: int = 15
    """Number of different symbols, half of them, rounded down, for keys; MAD's 16 include the padding."""
    sequence_length: int = 128
    """Largest number of tokens, at least 2 (`key_tokens` + `value_tokens`)."""
    key_tokens: int = 3
    """Largest number of tokens of a key."""
    value_tokens: int = 3
    """Largest number of tokens of a value."""
    shortest_key: int = 1
    """Smallest number of tokens of a key."""

    def __post_init__(self):
        self.at_least(shortest_key=1, key_tokens=self.shortest_key, value_tokens=1)
        self.at_least(
            alphabet=max(2 * self.key_tokens, 2 * self.value_tokens - 1),
            sequence_length=2 * (self.key_tokens + self.value_tokens),
        )

    @property
    def symbols(self):
        return keys_and_values(self.alphabet)

    @property
    def length(self):
        return self.sequence_length

    def row(self, draw):
        keys, values = self.symbols[: self.alphabet // 2], self.symbols[self.alphabet // 2 :]
        known: dict[tuple[str, ...], list[str]] = {}
        symbols, scored, last = list[str](), list[bool](), False
        while not last:
            last = len(symbols) + 2 * (self.key_tokens + self.value_tokens) > self.length
            size = draw.randint(self.shortest_key, self.key_tokens)
            key = draw.choice(list(known)) if last else tuple(draw.sample(keys, size))
            asked = key in known
            value = known.setdefault(key, draw.sample(values, draw.randint(1, self.value_tokens)))
            symbols += [*key, *value]
            scored += [False] * len(key) + [asked] * len(value)
        return symbols, scored


@dataclass(frozen=True)
class SelectiveCopying(AlgorithmicTask):
    """`. 3 . . 1 . = 3 1`: the symbols among blanks, in order (MAD; Gu and Dao 2023, "Mamba", section 4.1.1).

    The places of the symbols are uniform, as in Mamba's task, with 4,096 tokens before the answer; in MAD the
    last one is always before the `=`. Both give the model blanks where here it is given its answer so far.
    """

    name = "selective_copying"
    alphabet: int = 14
    """Number of different symbols; MAD's 16 include `.` and `=`."""
    sequence_length: int = 256
    """Tokens of an example, at least 2 `items` + 1."""
    items: int = 16
    """Number of symbols to copy."""

    def __post_init__(self):
        self.at_least(alphabet=1, items=1, sequence_length=2 * self.items + 1)

    @property
    def symbols(self):
        return (*map(str, range(self.alphabet)), ".", "=")

    @property
    def length(self):
        return self.sequence_length

    def examples(self, rng, count):
        answer = self.length - self.items
        items = rng.integers(self.alphabet, size=(count, self.items))
        places = np.sort(rng.random((count, answer - 1)).argsort(1)[:, : self.items], 1)
        tokens = np.full((count, self.length), self.alphabet)
        np.put_along_axis(tokens, places, items, 1)
        tokens[:, answer - 1], tokens[:, answer:] = self.alphabet + 1, items
        return scored_from(tokens, answer)


@dataclass(frozen=True)
class Compression(AlgorithmicTask):
    """`3 1 2 = 3 1 2`: random symbols, to be given again after the `=` (MAD, compression).

    In MAD an MLP decodes every symbol from the state at the `=` alone, given the symbol's position. A causal
    model cannot be held to that: its state at the `=` has to contain all symbols only where it is all that a
    model keeps, as in a recurrence; attention may look at the symbols once more. The `=` itself is no answer here.
    """

    alphabet: int = 15
    """Number of different symbols; MAD's 16 include the `=`."""
    items: int = 31
    """Number of symbols; MAD's 32 tokens include the `=`."""

    def __post_init__(self):
        self.at_least(alphabet=1, items=1)

    @property
    def symbols(self):
        return (*map(str, range(self.alphabet)), "=")

    @property
    def length(self):
        return 2 * self.items + 1

    def examples(self, rng, count):
        items = rng.integers(self.alphabet, size=(count, self.items))
        return scored_from(np.hstack([items, np.full((count, 1), self.alphabet), items]), self.items + 1)


@dataclass(frozen=True)
class Memorization(AlgorithmicTask):
    """`k5 ! v2 k0 ! v8 …`: values from a dictionary that no example tells and all share (MAD, memorization).

    In MAD the value is predicted at the `!` and never in the input. Here it follows, so the keys of an example
    are different, and no value can be read from the context. MAD has 256 examples for training.
    """

    keys: int = 127
    """Number of keys, and of values; MAD's 256 symbols are 127 keys, 128 values, of which one is unused, and `!`."""
    pairs: int = 16
    """Keys of an example."""
    dictionary_seed: int = 0
    """Seed of the dictionary, in which every key has another value."""

    def __post_init__(self):
        self.at_least(pairs=1, keys=self.pairs, dictionary_seed=0)

    @property
    def symbols(self):
        return (*keys_and_values(2 * self.keys), "!")

    @property
    def length(self):
        return 3 * self.pairs

    def examples(self, rng, count):
        dictionary = self.keys + np.random.default_rng(self.dictionary_seed).permutation(self.keys)
        keys = different(rng, count, self.keys, self.pairs)
        tokens = np.stack([keys, np.full_like(keys, 2 * self.keys), dictionary[keys]], 2)
        scored = np.broadcast_to([False, False, True], tokens.shape)
        return as_examples(joined(tokens), joined(scored))
