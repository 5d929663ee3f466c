"""Texts with labels: a file, or ListOps expressions with their values."""

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from transformer.core.arrays import check_ids
from transformer.core.checks import check_kind
from transformer.core.errors import ConfigError
from transformer.core.json import fingerprint
from transformer.data.dataset import (
    Batch,
    Examples,
    described,
    fingerprint_arrays,
    load_data,
    pad_rows,
    real_places,
    weighted,
)
from transformer.data.tasks.list_operations import ListOps
from transformer.data.tasks.task import split
from transformer.data.text import load_lines
from transformer.data.tokenizer_training import make_tokenizer, stored_in
from transformer.data.tokenizers import PAD, SymbolTokenizer, Tokenizer
from transformer.models.classifier import ClassifierConfig
from transformer.objectives.classes import Classification
from transformer.objectives.objective import Objective
from transformer.runs.config import RunConfig
from transformer.runs.data import DataConfig, check_at_least, check_default, check_fraction, count_held_out
from transformer.runs.tokenizers import SPECIAL, Tokenization, Word

MANY = 20
"""Texts from which on an order by class is no chance."""


@dataclass(frozen=True, kw_only=True)
class LabelledConfig(DataConfig):
    """Texts and their classes."""

    path: str | None = None
    """File with lines of label<TAB>text; None: ListOps expressions, whose value is the class."""
    validation_path: str | None = None
    """File of the held-out part; None: the last part of `path`."""
    validation_fraction: float = 0.1
    """Share of the lines held out without such a file, in (0, 1)."""
    tokenizer: Tokenization = Word()
    """The tokenizer of texts; ListOps expressions have their own symbols."""
    task: ListOps = ListOps(max_depth=4, max_arguments=4, max_length=48)
    """The kind of expressions, where there is no path."""
    examples: int = 40_000
    """Number of expressions for training."""
    validation_examples: int = 2_000
    """Number of expressions held out."""

    def __post_init__(self):
        super().__post_init__()
        check_at_least(self, 1, "examples", "validation_examples")
        check_fraction("validation_fraction", self.validation_fraction)
        if self.path is None and self.validation_path is not None:
            raise ConfigError("data.validation_path: ListOps, drawn without data.path, holds out its own; set both")
        if self.validation_path is not None:
            check_default(self, "validation_fraction", "data.validation_path is given")
        of_expressions, of_texts = ("task", "examples", "validation_examples"), ("tokenizer", "validation_fraction")
        for name in of_expressions if self.path is not None else of_texts:
            why = "it is of expressions, and data.path is given" if self.path else "it is of texts of a data.path"
            check_default(self, name, why)


@dataclass(frozen=True, kw_only=True)
class ClassificationRun(RunConfig):
    """A run that trains a classifier of texts."""

    model: ClassifierConfig = ClassifierConfig()
    data: LabelledConfig = LabelledConfig()
    objective: Objective = Classification()


@dataclass(frozen=True, kw_only=True)
class Labelled(Examples):
    """Arrays `inputs` (N, L), `valid` (N, L), and `labels`: (N,) of texts, or (N, L) of tokens with `weights`."""

    tokenizer: Tokenizer
    classes: tuple[str, ...]

    def complete(self, config: RunConfig) -> RunConfig:
        """The config with the vocabulary and the classes of the data, unless it sets its own."""
        config = described(config, self.description)
        check_kind(config.model, ClassifierConfig, "model of labelled texts")
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
        check_ids(self.train["inputs"], sizes["model.vocab_size"], f"{self.source}: token")
        return config

    def reference(self) -> tuple[str, float]:
        """Name and loss (nats) of a guess by the frequency of the classes."""
        counts = np.bincount(real_labels(self.train), minlength=len(self.classes)) + 1
        share = counts / counts.sum()
        return "frequency of the classes", float(-np.log(share)[real_labels(self.validation)].mean())


def real_labels(part: Batch) -> np.ndarray:
    """The labels that count, (labels,)."""
    labels = part["labels"].reshape(len(part["labels"]), -1)
    return labels[part["weights"] > 0] if "weights" in part else labels.reshape(-1)


@load_data.register
def load_labelled(config: LabelledConfig, stored: str | Path | None = None) -> Labelled:
    """Read texts, or draw expressions; tokenize and split them."""
    if config.path is None:
        return _expressions(config)
    train, validation = read_parts(config, parse_labelled)
    classes = tuple(sorted({label for label, _ in train}))
    check_classes(classes, {label for label, _ in validation}, "text", held_out_field(config))
    if config.validation_path is None:
        _check_order([label for label, _ in (*train, *validation)], config.path)
    texts = [text for _, text in ((*train, *validation) if config.tokenizer.closed else train)]
    tokenizer = make_tokenizer(config.tokenizer, texts, stored_in(stored))
    tokens = [[tokenizer.encode(text) for _, text in part] for part in (train, validation)]
    first = 1 if config.validation_path is not None else len(train) + 1
    _check_tokens(tokens[0], train, 1, "data.path")
    _check_tokens(tokens[1], validation, first, held_out_field(config))
    length = max(len(row) for rows in tokens for row in rows)
    numbers = {label: number for number, label in enumerate(classes)}

    def arrays(part, rows):
        valid = real_places(rows, length)
        labels = np.array([numbers[label] for label, _ in part], np.int32)
        return {"inputs": pad_rows(rows, length), "valid": valid, "labels": labels}

    return Labelled(
        train=arrays(train, tokens[0]),
        validation=weighted(arrays(validation, tokens[1])),
        classes=classes,
        tokenizer=tokenizer,
        description=config,
        source=config.path,
        fingerprint=fingerprint([train, validation, tokenizer.to_json()]),
    )


def read_parts(config: LabelledConfig, parse: Callable[[str, str], list]) -> tuple[list, list]:
    """(training examples, held-out examples), from two files or from two parts of one.

    Args:
      config: names the files.
      parse: reads a file that a field names.

    Raises:
      ConfigError: a part has no example.
    """
    assert config.path is not None
    train = parse(config.path, "data.path")
    if config.validation_path is None:
        cut = len(train) - count_held_out(len(train), config.validation_fraction)
        train, validation = train[:cut], train[cut:]
    else:
        validation = parse(config.validation_path, "data.validation_path")
    if not train or not validation:
        where, path = (held_out_field(config), config.validation_path) if train else ("data.path", None)
        raise ConfigError(f"{where}: {path or config.path} leaves a part without texts")
    return train, validation


def held_out_field(config: LabelledConfig) -> str:
    """The field whose file the held-out part is of."""
    return "data.path" if config.validation_path is None else "data.validation_path"


def _check_tokens(rows: Sequence[np.ndarray], part: Sequence[tuple[str, str]], first: int, where: str) -> None:
    """Raise `ConfigError` where a text has no token, with its line, of which `first` is that of the first text."""
    for number, (row, (_, text)) in enumerate(zip(rows, part, strict=True), first):
        if not len(row):
            raise ConfigError(f"{where}: the tokenizer has no token for the text {text!r} of line {number}")


def _check_order(labels: Sequence[str], path: str) -> None:
    """Raise `ConfigError` where a file has one class after the other, of which its last lines would be one alone."""
    changes = sum(label != following for label, following in itertools.pairwise(labels))
    if len(labels) >= MANY and changes + 1 == len(set(labels)) > 1:
        raise ConfigError(
            f"data.path: {path} is sorted by class, so that only {labels[-1]!r} would be held out; shuffle its lines, "
            "or give a validation_path"
        )


def _is_number(label: str) -> bool:
    try:
        float(label)
    except ValueError:
        return False
    return True


def check_classes(classes: Sequence[str], held_out: Collection[str], what: str, where: str) -> None:
    """Raise `ConfigError`, which names the field `where`, for a held-out class without training examples."""
    if unknown := set(held_out) - set(classes):
        numbers = all(map(_is_number, (*classes, *held_out)))
        hint = "; its labels are numbers, and regression on texts is not shipped" if numbers else ""
        raise ConfigError(
            f"{where}: the class {min(unknown)!r} of the validation part has no {what} for training{hint}"
        )


def _expressions(config: LabelledConfig) -> Labelled:
    """ListOps expressions, without `=`, and their values."""
    parts = split(config.task, config.examples, config.validation_examples, 0)
    equals = len(SPECIAL) + config.task.symbols.index("=")

    def arrays(tokens, scored):
        inputs = np.where(scored | (tokens == equals), PAD, tokens)[:, : config.task.max_length]
        return {"inputs": inputs, "valid": inputs != PAD, "labels": tokens[scored] - len(SPECIAL)}

    train, validation = (arrays(*part) for part in parts)
    return Labelled(
        train=train,
        validation=weighted(validation),
        classes=tuple("0123456789"),
        tokenizer=SymbolTokenizer(config.task.symbols),
        description=config,
        source=str(config.task),
        fingerprint=fingerprint([config, fingerprint_arrays(train)]),
    )


def parse_labelled(path: str, where: str = "data.path") -> list[tuple[str, str]]:
    """(label, text) of each line `label<TAB>text` of a UTF-8 file; the text may hold further tabs.

    Raises:
      ConfigError: the file is missing, empty, or not UTF-8; a line has no tab, or nothing before or after it. It names
        the field `where`.
    """
    return [_pair(line, number, path, where) for number, line in enumerate(load_lines(path, where), 1)]


def _pair(line: str, number: int, path: str, where: str) -> tuple[str, str]:
    label, tab, text = line.partition("\t")
    if not (label.strip() and tab and text.strip()):
        table = path.endswith((".csv", ".json", ".jsonl", ".parquet"))
        way = "; columns of a table are named, hub:FOLDER:train:label,text" if table else ""
        raise ConfigError(f"{where}: line {number} of {path} is not label<TAB>text{way}")
    return label.strip(), text
