"""Span corruption (T5): the source is a text with holes, and the target is what was in them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transformer.core.checks import check_kind
from transformer.core.errors import ConfigError
from transformer.core.json import fingerprint
from transformer.data.corpus import Blocks, Corpus, load_corpus
from transformer.data.dataset import Batch, Batches, described, load_data, whole
from transformer.data.pairs import EVALUATION_BATCH
from transformer.data.tokenizers import END, START, Tokenizer
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.objectives.objective import Objective
from transformer.objectives.pairs import SequenceToSequence
from transformer.runs.config import RunConfig
from transformer.runs.data import TextConfig, check_at_least, check_fraction
from transformer.runs.tokenizers import Char, Tokenization

HELD_OUT = 2**31
"""Seed of the validation holes, larger than any replica's."""


@dataclass(frozen=True, kw_only=True)
class SpanConfig(TextConfig):
    """A text some of whose spans are hidden (Raffel et al. 2019, section 3.1.4)."""

    tokenizer: Tokenization = Char(special=True)
    """The tokenizer, which defines what a token is."""
    rate: float = 0.15
    """Share of tokens that are hidden."""
    mean_span: float = 3.0
    """Mean length of hidden spans, in tokens, at least 1."""

    def __post_init__(self):
        super().__post_init__()
        check_fraction("rate", self.rate)
        check_at_least(self, 1, "mean_span")
        if self.document_separator is not None:
            raise ConfigError("data.document_separator: spans are hidden in one running text; unset it")
        if self.consecutive:
            raise ConfigError("data.consecutive: spans are hidden in blocks from anywhere in the text; unset it")


@dataclass(frozen=True, kw_only=True)
class SpanRun(RunConfig):
    """A run that trains an encoder-decoder to reproduce what is hidden in a text."""

    model: EncoderDecoderConfig = EncoderDecoderConfig()
    data: SpanConfig = SpanConfig()
    objective: Objective = SequenceToSequence()


class Sizes(NamedTuple):
    """Sizes of a block of text, the same for all blocks, so that all batches have the same shapes."""

    tokens: int
    hidden: int
    spans: int

    @property
    def source(self) -> int:
        """Length of a source: the shown tokens, a sentinel for each span, and the end token."""
        return self.tokens - self.hidden + self.spans + 1

    @property
    def target(self) -> int:
        """Length of a target: the hidden tokens, a sentinel before each span, and the end token."""
        return self.hidden + self.spans + 1


def sizes_of(tokens: int, rate: float, mean_span: float) -> Sizes:
    """The sizes of a block of at least two tokens, of which at least one is hidden, and not all."""
    hidden = min(max(round(tokens * rate), 1), tokens - 1)
    spans = min(max(round(hidden / mean_span), 1), tokens - hidden)
    return Sizes(tokens, hidden, spans)


def longest_block(config: RunConfig) -> Sizes:
    """The sizes of the longest block whose source fits the model.

    Raises:
      ConfigError: no block fits the model, or the target is longer than its `max_length`.
    """
    model, data = config.model, config.data
    assert isinstance(model, EncoderDecoderConfig)
    assert isinstance(data, SpanConfig)
    longest = int(model.max_source_length / (1 - data.rate)) + 1
    fitting = [sizes_of(tokens, data.rate, data.mean_span) for tokens in range(2, longest + 1)]
    fitting = [sizes for sizes in fitting if sizes.source <= model.max_source_length]
    if not fitting:
        raise ConfigError(f"model.max_source_length: {model.max_source_length} has no room for a text with a hole")
    if fitting[-1].target > model.max_length:
        raise ConfigError(f"model.max_length: {model.max_length}, but the targets have {fitting[-1].target} tokens")
    return fitting[-1]


def hidden_places(sizes: Sizes, keys: Sequence[tuple[int, ...]]) -> np.ndarray:
    """Hidden spans of random lengths at random places, (B, L) bool, drawn for each row from its key alone.

    Shown and hidden spans alternate, beginning with a shown one; all ways to cut either into pieces are equally
    likely.
    """
    kinds = np.arange(2 * sizes.spans) % 2 == 1
    return np.stack([np.repeat(kinds, _span_lengths(sizes, np.random.default_rng(key))) for key in keys])


def _span_lengths(sizes: Sizes, rng: np.random.Generator) -> np.ndarray:
    """Lengths of shown and hidden spans in turn, each at least 1, (2 · spans,)."""

    def pieces(total: int) -> np.ndarray:
        cuts = np.sort(rng.choice(total - 1, sizes.spans - 1, replace=False)) + 1
        return np.diff(np.concatenate([[0], cuts, [total]]))

    return np.stack([pieces(sizes.tokens - sizes.hidden), pieces(sizes.hidden)], 1).reshape(-1)


def corrupt(tokens_BL: np.ndarray, hidden_BL: np.ndarray, first_sentinel: int) -> tuple[np.ndarray, np.ndarray]:
    """(sources, targets): sentinel i replaces span i in a source, and span i follows sentinel i in a target.

    Both end with the end token. All rows have equal numbers of spans and hidden tokens.
    """
    begins_BL = hidden_BL & ~np.pad(hidden_BL, ((0, 0), (1, 0)))[:, :-1]
    sentinels_BL = (first_sentinel - 1 + np.cumsum(begins_BL, 1)).astype(np.int32)
    source = np.where(begins_BL, sentinels_BL, tokens_BL)[begins_BL | ~hidden_BL]
    target = np.stack([sentinels_BL, tokens_BL], -1)[np.stack([begins_BL, hidden_BL], -1)]
    rows, after = len(tokens_BL), ((0, 0), (0, 1))
    source_BS, target_BL = (np.pad(a.reshape(rows, -1), after, constant_values=END) for a in (source, target))
    return source_BS, target_BL


def span_batch(tokens_BL: np.ndarray, hidden_BL: np.ndarray, first_sentinel: int) -> Batch:
    """`source` (B, S), `source_valid`, `target` (B, L + 1) from the start token, `weights` (B, L)."""
    source_BS, target_BL = corrupt(tokens_BL, hidden_BL, first_sentinel)
    return {
        "source": source_BS,
        "source_valid": np.ones(source_BS.shape, bool),
        "target": np.pad(target_BL, ((0, 0), (1, 0)), constant_values=START),
        "weights": np.ones(target_BL.shape, np.float32),
    }


class SpanBatches:
    """Random blocks with random holes; each row is a function of seed, step and its number."""

    def __init__(self, corpus: Corpus, config: RunConfig, seed: int):
        self._sizes, self._seed, self._first_sentinel = longest_block(config), seed, corpus.tokenizer.vocab_size
        self._blocks = Blocks(corpus.train, self._sizes.tokens - 1, config.batch_size, seed)

    def __getitem__(self, step: int) -> Batch:
        tokens_BL = self._blocks[step]["tokens"]
        keys = [(self._seed, int(step), row) for row in range(len(tokens_BL))]
        return span_batch(tokens_BL, hidden_places(self._sizes, keys), self._first_sentinel)


@dataclass(frozen=True)
class Spans:
    """A text and how it is corrupted. Sentinels have the ids after those of the tokenizer."""

    corpus: Corpus
    fingerprint: str

    @property
    def source(self) -> str:
        return self.corpus.source

    @property
    def tokenizers(self) -> dict[str, Tokenizer]:
        return self.corpus.tokenizers

    def complete(self, config: RunConfig) -> RunConfig:
        """The config with vocabularies of tokens and sentinels, unless it sets its own.

        Raises:
          ConfigError: blocks, targets, the vocabularies or the tokenizer do not fit.
        """
        config = described(config, self.corpus.description)
        check_kind(config.model, EncoderDecoderConfig, "model of spans")
        assert isinstance(config.model, EncoderDecoderConfig)
        if not self.corpus.tokenizer.special:
            raise ConfigError("data.tokenizer: targets need the special tokens; use char(special=True)")
        sizes = longest_block(config)
        needed = self.corpus.tokenizer.vocab_size + sizes.spans
        own = {name: getattr(config.model, name) or needed for name in ("vocab_size", "source_vocab_size")}
        for name, size in own.items():
            if size < needed:
                raise ConfigError(f"model.{name}: {size} is less than the {needed} of tokens and sentinels")
        for name, tokens in (("training", self.corpus.train), ("validation", self.corpus.validation)):
            if len(tokens) < sizes.tokens:
                raise ConfigError(
                    f"model.max_source_length: the {name} part of {self.source} has {len(tokens)} tokens, and sources "
                    f"of {config.model.max_source_length} are made of {sizes.tokens}"
                )
        return config.replace({f"model.{name}": size for name, size in own.items()})

    def train_batches(self, config: RunConfig, seed: int) -> Batches:
        return SpanBatches(self.corpus, config, seed)

    def validation_batches(self, config: RunConfig) -> Batch:
        """Consecutive blocks, always with the same holes; tokens after the last whole block are left out."""
        sizes, tokens = longest_block(config), self.corpus.validation
        blocks_NL = tokens[: len(tokens) // sizes.tokens * sizes.tokens].reshape(-1, sizes.tokens)
        hidden_NL = hidden_places(sizes, [(HELD_OUT, 0, row) for row in range(len(blocks_NL))])
        return whole(span_batch(blocks_NL, hidden_NL, self.corpus.tokenizer.vocab_size), EVALUATION_BATCH)

    def reference(self) -> None:
        return None

    def text(self, tokens: np.ndarray) -> str:
        """The text of a source or a target, with `<i>` for sentinel i."""
        first = self.corpus.tokenizer.vocab_size
        places = np.flatnonzero(tokens >= first)
        head, *rest = np.split(tokens, places)
        named = [f"<{piece[0] - first}>{self.corpus.tokenizer.decode(piece[1:])}" for piece in rest]
        return "".join([self.corpus.tokenizer.decode(head), *named])


@load_data.register
def load_spans(config: SpanConfig, stored: str | Path | None = None) -> Spans:
    """Read, tokenize and split; the last part of the text is held out."""
    corpus = load_corpus(config, stored)
    assert isinstance(corpus, Corpus)
    return Spans(corpus, fingerprint([corpus.fingerprint, config.rate, config.mean_span]))
