"""A tokenized text with a held-out part, and its batches."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from transformer.core.arrays import check_ids
from transformer.core.errors import ConfigError
from transformer.core.json import fingerprint
from transformer.core.notebook import ShownAsText
from transformer.data.dataset import Batch, Batches, Rows, check_reads_tokens, described, load_data, whole
from transformer.data.ngram import ngram_loss, usual_order
from transformer.data.order import Shuffled
from transformer.data.packing import pack
from transformer.data.text import load_text
from transformer.data.tokenizer_training import make_tokenizer, stored_in
from transformer.data.tokenizers import Tokenizer
from transformer.runs.config import RunConfig
from transformer.runs.data import TextConfig

EVALUATION_BATCH = 32
"""Blocks of a held-out batch, as in `transformer.data.dataset`; fewer, since their logits are the largest arrays."""


@dataclass(frozen=True)
class Corpus(ShownAsText):
    """Token ids of the training and validation parts of a text."""

    train: np.ndarray
    """(tokens,) int32."""
    validation: np.ndarray
    """(tokens,) int32."""
    tokenizer: Tokenizer
    source: str
    """Where the text came from."""
    fingerprint: str
    """sha256 of text, tokenizer and split."""
    train_ends: np.ndarray | None = None
    """Indices after the last token of each training document; None for one running text."""
    validation_ends: np.ndarray | None = None
    """The same for the validation part."""
    description: TextConfig | None = None
    """What it was loaded from."""

    def __str__(self) -> str:
        """What it is; token ids are many lines."""
        sizes = f"{len(self.train):,} training and {len(self.validation):,} held-out tokens"
        return f"Corpus({self.source}: {sizes}, {self.tokenizer.vocab_size:,} in the vocabulary)"

    @property
    def tokenizers(self) -> dict[str, Tokenizer]:
        return {"tokenizer": self.tokenizer}

    def complete(self, config: RunConfig) -> RunConfig:
        """The config with the vocabulary of the corpus, unless it sets its own.

        Raises:
          ConfigError: blocks of `max_length` + 1 tokens, the vocabulary or the objective do not fit the corpus.
        """
        check_reads_tokens(config, self.source)
        config = described(config, self.description)
        config = config.replace({"model.vocab_size": config.model.vocab_size or self.tokenizer.vocab_size})
        assert config.model.vocab_size is not None
        if config.objective.special and not self.tokenizer.special:
            raise ConfigError(f"data.tokenizer: {config.objective} needs the special tokens; use char(special=True)")
        if config.objective.reads_prefixes and self.train_ends is not None:
            raise ConfigError(
                f"data.document_separator: {config.objective} takes a share of rows, not of the documents in "
                "them; use none"
            )
        parts = {"training": (self.train, self.train_ends), "validation": (self.validation, self.validation_ends)}
        for name, (tokens, ends) in parts.items():
            part = f"{name} part of {self.source}"
            _check_labels(tokens, ends, config.model.max_length, part)
            check_ids(tokens, config.model.vocab_size, f"{part}: token")
        return config

    def train_batches(self, config: RunConfig, seed: int) -> Batches:
        length = config.model.max_length
        if _consecutive(config):
            return Following(self.train, length, config.batch_size, seed)
        if self.train_ends is None:
            return Blocks(self.train, length, config.batch_size, seed)
        return Rows(packed(self.train, self.train_ends, length), config.batch_size, seed)

    def validation_batches(self, config: RunConfig) -> Batch:
        """Consecutive blocks, or packed documents."""
        length = config.model.max_length
        if self.validation_ends is not None:
            return whole(packed(self.validation, self.validation_ends, length), EVALUATION_BATCH)
        blocks = whole_split(self.validation, length, EVALUATION_BATCH)
        blocks = blocks if config.model.causal else blocks | {"valid": _real(blocks, len(self.validation))}
        return in_streams(blocks) if _consecutive(config) else blocks

    def reference(self) -> tuple[str, float] | None:
        """Name and loss of the interpolated Witten-Bell model of the usual order."""
        order = usual_order(self.tokenizer.vocab_size)
        texts, ends = (self.train, self.validation), (self.train_ends, self.validation_ends)
        loss = ngram_loss(*texts, self.tokenizer.vocab_size, order, *ends)
        return f"Witten-Bell, {order} tokens of context", loss


def _check_labels(tokens: np.ndarray, ends: np.ndarray | None, max_length: int, part: str) -> None:
    """Raise `ConfigError` where a part has no label: of a running text in no whole block, of documents in none."""
    if ends is not None:
        if np.diff(ends, prepend=0).max() < 2:
            raise ConfigError(f"data.document_separator: no document of the {part} has two tokens")
    elif len(tokens) <= max_length:
        raise ConfigError(
            f"model.max_length: a block of {max_length} tokens and its label do not fit in the {part}, {len(tokens)} "
            f"tokens; the longest that fits is {max(len(tokens) - 1, 0)}"
        )


def _consecutive(config: RunConfig) -> bool:
    """Whether each row of a batch continues that of the batch before."""
    return config.model.memory_length is not None or (isinstance(config.data, TextConfig) and config.data.consecutive)


NEARBY = 1_000
"""Characters within which a running text is cut between words."""


@load_data.register
def load_corpus(config: TextConfig, stored: str | Path | None = None) -> Corpus:
    """Read, tokenize and split a text; its last part is held out.

    Args:
      config: the text, its tokenizer and its split.
      stored: a folder whose tokenizer.json is used in place of training a tokenizer.

    Raises:
      ConfigError: the text cannot be read, a part has no document, or the tokenizer cannot be made.
    """
    separator = config.document_separator
    text = load_text(config.path, config.embedded)
    if separator is None:
        cut = int(len(text.content) * (1 - config.validation_fraction))
        cut = cut if config.tokenizer.closed else _between_words(text.content, cut)
        documents, first, split = [text.content[:cut], text.content[cut:]], 1, [cut]
    else:
        documents = text.documents(separator)
        first = _documents_for_training(documents, config, text.source)
        split = [separator, first, *([] if text.rows is None else map(len, documents))]
    seen = documents if config.tokenizer.closed else documents[:first]
    tokenizer = make_tokenizer(config.tokenizer, seen, stored_in(stored))
    pieces = [tokenizer.encode(document) for document in documents]
    train, validation = np.concatenate(pieces[:first]), np.concatenate(pieces[first:])
    identity = [text.fingerprint, tokenizer.to_json(), *split]
    made = Corpus(train, validation, tokenizer, text.source, fingerprint(identity), description=config)
    if separator is None:
        return made
    train_ends, validation_ends = (np.cumsum(list(map(len, part))) for part in (pieces[:first], pieces[first:]))
    return replace(made, train_ends=train_ends, validation_ends=validation_ends)


def _documents_for_training(documents: Sequence[str], config: TextConfig, source: str) -> int:
    """How many of the documents, from the first on, are for training: those that end before the held-out part.

    Raises:
      ConfigError: that is none of them.
    """
    where = "data.document_separator"
    if len(documents) < 2:
        raise ConfigError(f"{where}: {config.document_separator!r} does not part {source} into documents")
    characters = np.cumsum([len(document) for document in documents])
    cut = int(characters[-1] * (1 - config.validation_fraction))
    first = min(int(np.searchsorted(characters, cut, side="right")), len(documents) - 1)
    shares = np.diff(characters, prepend=0) / characters[-1]
    if first == 0:
        raise ConfigError(f"{where}: the first document is {shares[0]:.0%} of {source}, so that none is for training")
    if (held_out := shares[first:].sum()) > 2 * config.validation_fraction:
        warnings.warn(
            f"data.validation_fraction: {held_out:.0%} of {source} is held out, as documents are whole", stacklevel=3
        )
    return first


def _between_words(text: str, place: int) -> int:
    """The last place up to this one before which there is whitespace; the place itself where there is none nearby."""
    return next((i for i in range(place, max(place - NEARBY, 0), -1) if text[i - 1].isspace()), place)


class Blocks:
    """Random blocks of a token array in batches, a pure function of seed and step.

    A block may start at any token; every start is used once before any is used again.
    """

    def __init__(self, tokens: np.ndarray, length: int, batch_size: int, seed: int):
        self._blocks = np.lib.stride_tricks.sliding_window_view(tokens, length + 1)
        self._starts = Shuffled(len(self._blocks), batch_size, seed)

    def __getitem__(self, step: int) -> Batch:
        """`tokens` (B, L + 1) int32, the batch of that step."""
        return {"tokens": self._blocks[self._starts[step]]}


class Following:
    """Blocks in which each row continues that of the previous batch, a pure function of seed and step.

    The rows begin at equal distances, the first one anywhere, and the first token follows the last, so that
    all tokens are labels equally often.
    """

    def __init__(self, tokens: np.ndarray, length: int, batch_size: int, seed: int):
        first = np.random.default_rng(seed).integers(len(tokens))
        self.tokens, self.length = tokens, length
        self.starts = first + np.arange(batch_size, dtype=np.int64) * len(tokens) // batch_size

    def __getitem__(self, step: int) -> Batch:
        """`tokens` (B, L + 1) int32, the batch of that step."""
        inside = (self.starts + step * self.length)[:, None] + np.arange(self.length + 1)
        return {"tokens": self.tokens[inside % len(self.tokens)]}


def in_streams(batches: Batch) -> Batch:
    """Rows (N, B, …) reordered so that each continues that of the previous batch."""
    return {name: np.swapaxes(a.reshape(a.shape[1], a.shape[0], *a.shape[2:]), 0, 1) for name, a in batches.items()}


def whole_split(tokens: np.ndarray, length: int, batch_size: int) -> Batch:
    """All tokens of a split in consecutive blocks: `tokens` (N, B, L + 1), `weights` (N, B, L).

    Every token but the first is a label exactly once; padding of the last block has weight 0.
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


def _real(blocks: Batch, count: int) -> np.ndarray:
    """(N, B, L) which input tokens of the blocks of a split are among its `count` tokens; the others fill the last."""
    shape = blocks["weights"].shape
    return (np.arange(math.prod(shape)) < count).reshape(shape)


def packed(tokens: np.ndarray, ends: np.ndarray, length: int) -> Batch:
    """Documents packed into rows of `length` + 1 tokens; they do not see each other, and positions restart.

    A label counts if it belongs to the same document as the token before it.
    """
    rows = pack(np.split(tokens, ends[:-1]), length + 1)
    weights = rows["valid"][:, 1:] & (rows["segments"][:, 1:] == rows["segments"][:, :-1])
    own = {"valid": rows["valid"][:, :-1], "weights": weights.astype(np.float32)}
    return {name: rows[name] for name in ("tokens", "segments", "positions")} | own
