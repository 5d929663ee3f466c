"""A tokenized text with a held-out part, and its batches."""

from collections.abc import Sequence
from dataclasses import dataclass

import grain
import numpy as np

from transformer.config.run import DataConfig, RunConfig, fingerprint
from transformer.config.variant import ConfigError
from transformer.data.text import load_text
from transformer.data.tokenizers import ByteTokenizer, CharTokenizer, Tokenizer


@dataclass(frozen=True)
class Corpus:
    """Token ids of the training and validation parts of a text."""

    train: np.ndarray
    validation: np.ndarray
    tokenizer: Tokenizer
    source: str
    fingerprint: str
    """sha256 of text, tokenizer and split: a checkpointed position means nothing in other data."""


def load_corpus(config: DataConfig) -> Corpus:
    """Read, tokenize and split; the last part of the text is held out."""
    text = load_text(config.path, config.embedded)
    tokenizer = ByteTokenizer() if config.tokenizer == "byte" else CharTokenizer.of(text.content)
    tokens = tokenizer.encode(text.content)
    cut = int(len(tokens) * (1 - config.validation_fraction))
    identity = fingerprint([text.fingerprint, tokenizer.to_json(), cut])
    return Corpus(tokens[:cut], tokens[cut:], tokenizer, text.source, identity)


def with_vocabulary(config: RunConfig, corpus: Corpus) -> RunConfig:
    """The config with the vocabulary of the corpus, where it leaves that open."""
    if config.model.vocab_size is not None:
        return config
    return config.replace({"model.vocab_size": corpus.tokenizer.vocab_size})


def check_corpus(corpus: Corpus, length: int, vocab_size: int) -> None:
    """Raise `ConfigError` where blocks of `length` + 1 tokens or a vocabulary do not fit the corpus."""
    for name, tokens in (("training", corpus.train), ("validation", corpus.validation)):
        if len(tokens) <= length:
            raise ConfigError(
                f"model.max_length: a block of {length} tokens and its label do not fit in the {name} part of "
                f"{corpus.source}, {len(tokens)} tokens; the longest that fits is {max(len(tokens) - 1, 0)}"
            )
        check_tokens(tokens, vocab_size, f"{name} part of {corpus.source}")


def check_tokens(tokens: np.ndarray, vocab_size: int, what: str) -> None:
    """Raise `ConfigError` with the first place where a token is not in [0, vocab_size)."""
    wrong = np.argwhere((tokens < 0) | (tokens >= vocab_size))
    if len(wrong):
        place = tuple(int(i) for i in wrong[0])
        raise ConfigError(f"{what}: token {tokens[place]} at {place} is not in [0, {vocab_size})")


class Batches:
    """Random blocks of a token array, batch by batch: a pure function of seed and step.

    Blocks start anywhere; every start is used once before any is used again. The position to
    checkpoint is the number of the step.
    """

    def __init__(self, tokens: np.ndarray, length: int, batch_size: int, seed: int):
        def block(start):
            return tokens[start : start + length + 1]

        starts = grain.MapDataset.range(len(tokens) - length)
        self._batches = starts.shuffle(seed=seed).repeat().map(block).batch(batch_size)

    def __getitem__(self, step: int) -> np.ndarray:
        """(B, L + 1) int32, the batch of that step."""
        return np.asarray(self._batches[step])


def stack_batches(replicas: Sequence[Batches], first: int, count: int) -> np.ndarray:
    """(R, T, B, L + 1): the batches of `count` steps for each replica."""
    distinct = {id(b): np.stack([b[step] for step in range(first, first + count)]) for b in replicas}
    return np.stack([distinct[id(b)] for b in replicas])


def whole_split(tokens: np.ndarray, length: int, batch_size: int) -> dict[str, np.ndarray]:
    """All tokens of a split, cut into blocks side by side: `tokens` (N, B, L + 1), `weights` (N, B, L).

    Every token but the first is a label exactly once; weight 0 marks what only fills the last block.
    """
    labels = len(tokens) - 1
    blocks = -(-labels // length)
    batches = -(-blocks // batch_size)
    padded = np.zeros(batches * batch_size * length + 1, np.int32)
    padded[: len(tokens)] = tokens
    starts = np.arange(batches * batch_size) * length
    inside = starts[:, None] + np.arange(length + 1)
    weights = (inside[:, 1:] <= labels).astype(np.float32)
    shape = (batches, batch_size)
    return {"tokens": padded[inside].reshape(*shape, -1), "weights": weights.reshape(*shape, -1)}
