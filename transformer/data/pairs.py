"""Pairs of a source and a target text: parallel files, or SCAN."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from transformer.core.arrays import check_ids
from transformer.core.checks import check_kind
from transformer.core.errors import ConfigError
from transformer.core.json import fingerprint
from transformer.core.notebook import ShownAsText
from transformer.data.buckets import least_padded
from transformer.data.dataset import Batch, Batches, Rows, described, load_data, pad_rows, real_places, whole
from transformer.data.order import ORDER
from transformer.data.pairs_text import load_parallel
from transformer.data.scan import scan_split
from transformer.data.tokenizer_training import make_tokenizer, stored_in
from transformer.data.tokenizers import END, START, Tokenizer
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.objectives.objective import Objective
from transformer.objectives.pairs import SequenceToSequence
from transformer.runs.config import RunConfig
from transformer.runs.data import DataConfig, check_at_least, check_default, check_fraction, count_held_out
from transformer.runs.tokenizers import Symbols, Tokenization

EVALUATION_BATCH = 64
"""Pairs of a held-out batch, as in `transformer.data.dataset`; fewer, since each is two texts."""


@dataclass(frozen=True, kw_only=True)
class PairsConfig(DataConfig):
    """Parallel text, aligned by lines, and how it becomes tokens."""

    source: str | None = None
    """Text file of the source language, or without a target of source<TAB>target lines; None: SCAN."""
    target: str | None = None
    """Text file of the target language."""
    validation_source: str | None = None
    """The source of the validation part; None: held out of the training pairs."""
    validation_target: str | None = None
    """Its target."""
    test_source: str | None = None
    """The source of the test part; None: the validation part."""
    test_target: str | None = None
    """Its target."""
    validation_fraction: float = 0.05
    """Share of the training pairs, the last ones, held out without validation files; in (0, 1)."""
    split: Literal["simple", "length", "add_jump"] = "simple"
    """Split of SCAN, whose test part is also the validation part."""
    tokenizer: Tokenization = Symbols()
    """The tokenizer, which defines what a token is."""
    shared_vocabulary: bool = False
    """Whether source and target share one tokenizer, trained on both."""
    buckets: int = 4
    """Largest number of groups of pairs of similar length; a batch is of one group, drawn anew at every step."""
    batch_tokens: int | None = None
    """About this many tokens of the longer side per step, padding included, in multiples of batch_size pairs; None:
    batch_size pairs."""

    def __post_init__(self):
        super().__post_init__()
        check_fraction("validation_fraction", self.validation_fraction)
        check_at_least(self, 1, "buckets", "batch_tokens")
        for name in ("source", "validation_source", "test_source"):
            if getattr(self, name) is None and getattr(self, name.replace("source", "target")) is not None:
                raise ConfigError(f"data.{name}: a target is given and no source")
            if self.source is None and getattr(self, name) is not None:
                raise ConfigError(f"data.{name}: SCAN, read without data.source, holds out its own; set both")
        if self.source is not None:
            check_default(self, "split", "it is of SCAN, and data.source is given")
        if self.source is None or self.validation_source is not None:
            why = "SCAN has parts of its own" if self.source is None else "data.validation_source is given"
            check_default(self, "validation_fraction", why)


@dataclass(frozen=True, kw_only=True)
class TranslationRun(RunConfig):
    """A run that trains an encoder-decoder on pairs."""

    model: EncoderDecoderConfig = EncoderDecoderConfig()
    data: PairsConfig = PairsConfig()
    objective: Objective = SequenceToSequence()
    steps_per_dispatch: int = 1
    """Steps per call of the compiled program; one, where `data.buckets` have shapes of their own."""


@dataclass(frozen=True)
class Pairs(ShownAsText):
    """Token ids of sources and targets, each with its end token, and the texts of the test part."""

    train: tuple[Sequence[np.ndarray], Sequence[np.ndarray]]
    """Sources and targets, each (L,) int32."""
    validation: tuple[Sequence[np.ndarray], Sequence[np.ndarray]]
    """Sources and targets, each (L,) int32."""
    test: tuple[Sequence[str], Sequence[str]]
    """Sources and targets as texts."""
    source_tokenizer: Tokenizer
    tokenizer: Tokenizer
    """The tokenizer of targets."""
    source: str
    """Where the pairs came from."""
    fingerprint: str
    description: PairsConfig | None = None
    """What they were loaded from."""
    order_version: ClassVar[int] = ORDER + 1
    """Version of the order of rows, of which pairs have had one more: that of their groups."""

    def __str__(self) -> str:
        """What they are; arrays are many lines."""
        train, held_out, test = (len(part[0]) for part in (self.train, self.validation, self.test))
        return f"Pairs({self.source}: {train:,} for training, {held_out:,} for validation and {test:,} for the test)"

    @property
    def tokenizers(self) -> dict[str, Tokenizer]:
        return {"source_tokenizer": self.source_tokenizer, "tokenizer": self.tokenizer}

    def complete(self, config: RunConfig) -> RunConfig:
        """The config with both vocabularies, unless it sets its own.

        Raises:
          ConfigError: a text is longer than the model allows, or a token is not in the vocabulary.
        """
        config = described(config, self.description)
        check_kind(config.model, EncoderDecoderConfig, "model of pairs")
        assert isinstance(config.model, EncoderDecoderConfig)
        assert isinstance(config.data, PairsConfig)
        if config.steps_per_dispatch > 1 and config.data.buckets > 1:
            raise ConfigError(
                f"steps_per_dispatch: {config.steps_per_dispatch} steps are one program of one shape, and batches of "
                f"{config.data.buckets} groups of lengths have others; use 1, or data.buckets=1"
            )
        if not (self.source_tokenizer.special and self.tokenizer.special):
            raise ConfigError("data.tokenizer: pairs need the special tokens; use char(special=True)")
        if config.model.share_embeddings and self.source_tokenizer.to_json() != self.tokenizer.to_json():
            raise ConfigError(
                "model.share_embeddings: source and target have tokenizers of their own; set data.shared_vocabulary"
            )
        sizes = {
            "model.vocab_size": config.model.vocab_size or self.tokenizer.vocab_size,
            "model.source_vocab_size": config.model.source_vocab_size or self.source_tokenizer.vocab_size,
        }
        config = config.replace(sizes)
        longest = {
            "max_source_length": max(map(len, (*self.train[0], *self.validation[0]))),
            "max_length": max(map(len, (*self.train[1], *self.validation[1]))),
        }
        for name, length in longest.items():
            if length > getattr(config.model, name):
                raise ConfigError(
                    f"model.{name}: {getattr(config.model, name)}, but the longest text of {self.source} has "
                    f"{length} tokens, its end included"
                )
        for side, size in zip((1, 0), sizes.values(), strict=True):
            for part, name in ((self.train, "training"), (self.validation, "validation")):
                check_ids(np.concatenate(part[side]), size, f"{name} part of {self.source}: token")
        return config

    def train_batches(self, config: RunConfig, seed: int) -> Batches:
        return BucketedBatches(self.train, config, seed)

    def validation_batches(self, config: RunConfig) -> Batch:
        return whole(pair_arrays(*self.validation), EVALUATION_BATCH)

    def reference(self) -> None:
        return None

    def test_sources(self) -> tuple[np.ndarray, np.ndarray]:
        """The sources of the test part, `source_BS` and `source_valid_BS`."""
        ids = [with_end(self.source_tokenizer, text) for text in self.test[0]]
        padded = pad_rows(ids, max(map(len, ids)))
        return padded, real_places(ids, padded.shape[1])

    def text(self, tokens: np.ndarray) -> str:
        """The text of a target, without special tokens."""
        return self.tokenizer.decode(tokens)


@load_data.register
def load_pairs(config: PairsConfig, stored: str | Path | None = None) -> Pairs:
    """Read pairs, tokenize and split them."""
    train, validation, test = _scan(config) if config.source is None else _files(config)
    seen = (*train, *validation, *test) if config.tokenizer.closed else train
    source_texts, target_texts = ([pair[side] for pair in seen] for side in (0, 1))

    def trained(texts, name):
        return make_tokenizer(config.tokenizer, texts, stored_in(stored, name))

    tokenizer = trained(source_texts + target_texts if config.shared_vocabulary else target_texts, "tokenizer")
    source_tokenizer = tokenizer if config.shared_vocabulary else trained(source_texts, "source_tokenizer")

    def encode(pairs):
        return [with_end(source_tokenizer, s) for s, _ in pairs], [with_end(tokenizer, t) for _, t in pairs]

    identity = fingerprint([train, validation, test, source_tokenizer.to_json(), tokenizer.to_json()])
    name = f"SCAN, {config.split} split" if config.source is None else config.source
    texts = ([s for s, _ in test], [t for _, t in test])
    return Pairs(encode(train), encode(validation), texts, source_tokenizer, tokenizer, name, identity, config)


def _scan(config: PairsConfig) -> tuple[list, list, list]:
    train, test = scan_split(config.split)
    return train, test, test


def _files(config: PairsConfig) -> tuple[list, list, list]:
    assert config.source is not None
    train = list(zip(*load_parallel(config.source, config.target), strict=True))
    if config.validation_source is not None:
        files = config.validation_source, config.validation_target
        validation = list(zip(*load_parallel(*files, "data.validation_"), strict=True))
    else:
        cut = len(train) - count_held_out(len(train), config.validation_fraction)
        train, validation = train[:cut], train[cut:]
        if not train or not validation:
            raise ConfigError(f"data.validation_fraction: {len(train) + len(validation)} pairs leave a part empty")
    if config.test_source is None:
        return train, validation, validation
    files = config.test_source, config.test_target
    return train, validation, list(zip(*load_parallel(*files, "data.test_"), strict=True))


def with_end(tokenizer: Tokenizer, text: str) -> np.ndarray:
    """The tokens of a text, followed by the end token."""
    return np.append(tokenizer.encode(text), END).astype(np.int32)


def pair_arrays(sources: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> Batch:
    """Arrays padded to the longest: `source` (N, S), `source_valid`, `target` (N, L + 1) from its start, `weights`."""
    source_length, length = max(map(len, sources)), max(map(len, targets))
    return {
        "source": pad_rows(sources, source_length),
        "source_valid": real_places(sources, source_length),
        "target": np.pad(pad_rows(targets, length), ((0, 0), (1, 0)), constant_values=START),
        "weights": real_places(targets, length).astype(np.float32),
    }


class BucketedBatches:
    """Batches of pairs of similar length, a pure function of seed and step.

    The bucket is drawn at every step, with its share of all batches as probability, and is the same for all replicas,
    because the compiled program depends on its lengths. Several steps of one bucket would look alike to the optimizer's
    means of gradients: of ten, and at a high rate, attention to the source is not learned.
    """

    def __init__(self, pairs: tuple[Sequence[np.ndarray], Sequence[np.ndarray]], config: RunConfig, seed: int):
        assert isinstance(config.data, PairsConfig)
        sources, targets = pairs
        size_of = functools.partial(_batch_size, config.batch_size, config.data.batch_tokens)
        longer = np.array([max(len(s), len(t)) for s, t in zip(sources, targets, strict=True)])
        self._buckets, shares = [], []
        for bucket, rows in enumerate(least_padded(longer, config.data.buckets, size_of)):
            size = size_of(int(longer[rows].max()))
            arrays = pair_arrays([sources[i] for i in rows], [targets[i] for i in rows])
            self._buckets.append(Rows(arrays, size, seed + bucket))
            shares.append(len(rows) / size)
        draw = np.random.default_rng(0).choice(len(shares), config.steps, p=np.array(shares) / sum(shares))
        drawn = draw == np.arange(len(shares))[:, None]
        self._bucket_of = draw
        self._batches_before = (drawn.cumsum(1) - drawn)[draw, np.arange(config.steps)]

    def __getitem__(self, step: int) -> Batch:
        """`source` (B, S), `source_valid`, `target` (B, L + 1), `weights` (B, L)."""
        return self._buckets[self._bucket_of[step]][self._batches_before[step]]


def _batch_size(batch_size: int, batch_tokens: int | None, length: int) -> int:
    if batch_tokens is None:
        return batch_size
    return max(1, round(batch_tokens / length / batch_size)) * batch_size
