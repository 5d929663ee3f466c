"""Algorithmic tasks as data: questions that a language model answers, or a classifier."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from transformer.config.model import ClassifierConfig, ModelConfig
from transformer.config.objectives import Classification, Objective
from transformer.config.run import DataConfig, RunConfig, check_fraction, fingerprint
from transformer.config.tokenizers import Tokenization, Word
from transformer.config.variant import ConfigError
from transformer.data.algorithmic import Addition, AlgorithmicTask, ListOps, split
from transformer.data.dataset import (
    Batch,
    Batches,
    Rows,
    check_tokens,
    fingerprint_arrays,
    load_data,
    pad_rows,
    whole,
)
from transformer.data.labelled import parse_labelled
from transformer.data.tokenizers import PAD, SPECIAL, SymbolTokenizer, Tokenizer, make_tokenizer

EVALUATION_BATCH = 128
"""Examples per device."""


@dataclass(frozen=True, kw_only=True)
class AlgorithmicConfig(DataConfig):
    """Random examples of an algorithmic task; those for training and those held out are distinct."""

    task: AlgorithmicTask = Addition()
    examples: int = 10_000
    """For training."""
    validation_examples: int = 1_000
    """Held out."""
    seed: int = 0
    """Of the examples; a replica's seed orders them."""


@dataclass(frozen=True, kw_only=True)
class AlgorithmicRun(RunConfig):
    """A run that trains a language model on an algorithmic task."""

    model: ModelConfig = ModelConfig()
    data: AlgorithmicConfig = AlgorithmicConfig()


@dataclass(frozen=True)
class Puzzles:
    """Examples of a task: `tokens` (N, L), and which of them are answers."""

    train: Batch
    validation: Batch
    tokenizer: SymbolTokenizer
    source: str
    fingerprint: str

    @property
    def tokenizers(self) -> dict[str, Tokenizer]:
        return {"tokenizer": self.tokenizer}

    def complete(self, config: RunConfig) -> RunConfig:
        """The config with the vocabulary of the task, and its length where the model is too short for it."""
        config = config.replace({"model.vocab_size": config.model.vocab_size or self.tokenizer.vocab_size})
        assert config.model.vocab_size is not None
        check_tokens(self.train["tokens"], config.model.vocab_size, self.source)
        if config.model.max_length < (length := self.train["tokens"].shape[1] - 1):
            raise ConfigError(f"model.max_length: {config.model.max_length}, but {self.source} has {length} tokens")
        return config

    def train_batches(self, config: RunConfig, seed: int) -> Batches:
        return Rows(self.train, config.batch_size, seed)

    def validation_batches(self, config: RunConfig, multiple: int) -> Batch:
        return whole(self.validation, EVALUATION_BATCH * multiple)

    def reference(self) -> None:
        return None


@load_data.register
def load_puzzles(config: AlgorithmicConfig, stored: Path | None = None) -> Puzzles:
    """Draw the examples."""
    parts = split(config.task, config.examples, config.validation_examples, config.seed)
    train, validation = ({"tokens": t, "weights": scored[:, 1:].astype(np.float32)} for t, scored in parts)
    identity = fingerprint([config, fingerprint_arrays(train), fingerprint_arrays(validation)])
    return Puzzles(train, validation, SymbolTokenizer(config.task.symbols), str(config.task), identity)


@dataclass(frozen=True, kw_only=True)
class LabelledConfig(DataConfig):
    """Texts and their classes."""

    path: str | None = None
    """Lines of label<TAB>text; none: ListOps, whose value is the class."""
    validation_path: str | None = None
    """The same, held out; none: the last part of the file."""
    validation_fraction: float = 0.1
    tokenizer: Tokenization = Word()
    """What a token is; ListOps has its own symbols."""
    task: ListOps = field(default_factory=lambda: ListOps(max_depth=4, max_arguments=4, max_length=48))
    """The expressions, without a path."""
    examples: int = 40_000
    """Expressions for training."""
    validation_examples: int = 2_000
    """Expressions held out."""

    def __post_init__(self):
        check_fraction("validation_fraction", self.validation_fraction)


@dataclass(frozen=True, kw_only=True)
class ClassificationRun(RunConfig):
    """A run that trains a classifier of texts."""

    model: ClassifierConfig = ClassifierConfig()
    data: LabelledConfig = LabelledConfig()
    objective: Objective = Classification()


@dataclass(frozen=True)
class Labelled:
    """`inputs` (N, L), `valid` and `labels` (N,) of texts."""

    train: Batch
    validation: Batch
    classes: tuple[str, ...]
    tokenizer: Tokenizer
    source: str
    fingerprint: str

    @property
    def tokenizers(self) -> dict[str, Tokenizer]:
        return {"tokenizer": self.tokenizer}

    def complete(self, config: RunConfig) -> RunConfig:
        """The config with the vocabulary and the classes of the data, where it leaves them open."""
        assert isinstance(config.model, ClassifierConfig)
        sizes = {
            "model.vocab_size": config.model.vocab_size or self.tokenizer.vocab_size,
            "model.num_classes": config.model.num_classes or len(self.classes),
        }
        config = config.replace(sizes)
        if (length := self.train["inputs"].shape[1]) > config.model.max_length:
            raise ConfigError(f"model.max_length: {config.model.max_length}, but {self.source} has {length} tokens")
        if len(self.classes) > sizes["model.num_classes"]:
            raise ConfigError(f"model.num_classes: {sizes['model.num_classes']}, but {len(self.classes)} in the data")
        check_tokens(self.train["inputs"], sizes["model.vocab_size"], self.source)
        return config

    def train_batches(self, config: RunConfig, seed: int) -> Batches:
        return Rows(self.train, config.batch_size, seed)

    def validation_batches(self, config: RunConfig, multiple: int) -> Batch:
        ones = {"weights": np.ones((len(self.validation["labels"]), 1), np.float32)}
        return whole(self.validation | ones, EVALUATION_BATCH * multiple)

    def reference(self) -> tuple[str, float]:
        """A guess by the frequency of the classes."""
        counts = np.bincount(self.train["labels"], minlength=len(self.classes)) + 1
        share = counts / counts.sum()
        return "frequency of the classes", float(-np.log(share)[self.validation["labels"]].mean())


@load_data.register
def load_labelled(config: LabelledConfig, stored: Path | None = None) -> Labelled:
    """Read or draw, tokenize and split."""
    if config.path is None:
        return _expressions(config)
    train = parse_labelled(config.path)
    if config.validation_path is None:
        cut = int(len(train) * (1 - config.validation_fraction))
        train, validation = train[:cut], train[cut:]
    else:
        validation = parse_labelled(config.validation_path)
    if not train or not validation:
        raise ConfigError(f"data.path: {config.path} leaves a part without texts")
    classes = tuple(sorted({label for label, _ in train}))
    if unknown := {label for label, _ in validation} - set(classes):
        raise ConfigError(f"data.path: the class {min(unknown)!r} of the validation part has no text for training")
    texts = [text for _, text in train]
    tokenizer = make_tokenizer(config.tokenizer, texts, None if stored is None else stored / "tokenizer.json")
    length = max(len(tokenizer.encode(text)) for _, text in (*train, *validation))

    def arrays(part):
        rows = [tokenizer.encode(text) for _, text in part]
        valid = np.arange(length) < np.array([len(row) for row in rows])[:, None]
        labels = np.array([classes.index(label) for label, _ in part], np.int32)
        return {"inputs": pad_rows(rows, length), "valid": valid, "labels": labels}

    identity = fingerprint([train, validation, tokenizer.to_json()])
    return Labelled(arrays(train), arrays(validation), classes, tokenizer, config.path, identity)


def _expressions(config: LabelledConfig) -> Labelled:
    """ListOps: the question without `=` and its value."""
    parts = split(config.task, config.examples, config.validation_examples, 0)
    equals = len(SPECIAL) + config.task.symbols.index("=")

    def arrays(tokens, scored):
        inputs = np.where(scored | (tokens == equals), PAD, tokens)[:, : config.task.max_length]
        return {"inputs": inputs, "valid": inputs != PAD, "labels": tokens[scored] - len(SPECIAL)}

    train, validation = (arrays(*part) for part in parts)
    identity = fingerprint([dataclasses.replace(config, path=None), fingerprint_arrays(train)])
    tokenizer = SymbolTokenizer(config.task.symbols)
    return Labelled(train, validation, tuple("0123456789"), tokenizer, str(config.task), identity)
