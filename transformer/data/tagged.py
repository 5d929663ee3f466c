"""Texts with a label for each token: a file, or ListOps expressions with the values of all their parts."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from transformer.core.errors import ConfigError
from transformer.core.json import fingerprint
from transformer.data.dataset import Batch, fingerprint_arrays, load_data, pad_rows, real_places
from transformer.data.hub import PREFIX, hub_lines
from transformer.data.labelled import Labelled, LabelledConfig, check_classes, held_out_field, read_parts
from transformer.data.tasks.list_operations import expression_values
from transformer.data.tasks.task import split
from transformer.data.text import lines_of, load_text
from transformer.data.tokenizer_training import make_tokenizer, stored_in
from transformer.data.tokenizers import SymbolTokenizer, Tokenizer, TrainedTokenizer, UnknownText
from transformer.models.classifier import ClassifierConfig
from transformer.models.pooling import PerToken
from transformer.objectives.classes import TokenClassification
from transformer.objectives.objective import Objective
from transformer.runs.config import RunConfig
from transformer.runs.tokenizers import SPECIAL

Tagged = list[tuple[str, str]]
"""A text: its words with their labels."""


@dataclass(frozen=True, kw_only=True)
class TaggedConfig(LabelledConfig):
    """Texts and the classes of their words."""

    path: str | None = None
    """File with lines of word<TAB>label and an empty line after each text; None: ListOps, where an operator and the
    bracket that ends its expression have the value of the expression as their class."""


@dataclass(frozen=True, kw_only=True)
class TaggingRun(RunConfig):
    """A run that trains a classifier of tokens."""

    model: ClassifierConfig = ClassifierConfig(pooling=PerToken())
    data: TaggedConfig = TaggedConfig()
    objective: Objective = TokenClassification()


@load_data.register
def load_tagged(config: TaggedConfig, stored: str | Path | None = None) -> Labelled:
    """Read texts, or draw expressions; tokenize and split them."""
    if config.path is None:
        return _expressions(config)
    train, validation = read_parts(config, parse_tagged)
    classes = tuple(sorted({label for text in train for _, label in text}))
    check_classes(classes, {label for text in validation for _, label in text}, "word", held_out_field(config))
    seen = (*train, *validation) if config.tokenizer.closed else train
    texts = [" ".join(word for word, _ in text) for text in seen]
    tokenizer = make_tokenizer(config.tokenizer, texts, stored_in(stored))
    files = (
        (train, config.path, "data.path"),
        (validation, config.validation_path or config.path, held_out_field(config)),
    )
    parts = [_all_pieces(part, tokenizer, classes, *file) for part, *file in files]
    length = max(len(tokens) for part in parts for tokens, _, _ in part)
    train_arrays, validation_arrays = (_arrays(part, length) for part in parts)
    return Labelled(
        train=train_arrays,
        validation=validation_arrays,
        classes=classes,
        tokenizer=tokenizer,
        description=config,
        source=config.path,
        fingerprint=fingerprint([train, validation, tokenizer.to_json(), *_spaces(tokenizer, train)]),
    )


Pieces = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Tokens of a text, their labels, and which labels count."""


class NoToken(UnknownText):
    """A tokenizer makes nothing of a word."""

    def __init__(self, word: str):
        super().__init__(f"tokenizer: no token for the word {word!r}")
        self.word = word


def _all_pieces(
    texts: Sequence[Tagged], tokenizer: Tokenizer, classes: Sequence[str], path: str, where: str
) -> list[Pieces]:
    """The tokens of the texts of a file; a word without one is named with its line."""
    try:
        return [_pieces(text, tokenizer, classes) for text in texts]
    except NoToken as error:
        words = [line.partition("\t")[0].strip() for line in _lines(path, where)]
        line = words.index(error.word) + 1
        raise ConfigError(f"{where}: the tokenizer has no token for the word {error.word!r} of line {line}") from None


def _pieces(text: Tagged, tokenizer: Tokenizer, classes: Sequence[str]) -> Pieces:
    """The tokens of a text; the first token of a word has its label (Devlin et al. 2018, section 5.3)."""
    if getattr(tokenizer, "around", False):
        raise ConfigError("data.tokenizer: the tokens around a text have no labels; use special=False")
    tokens_L, word_L, scored_L = word_tokens([word for word, _ in text], tokenizer)
    numbers = np.array([classes.index(label) for _, label in text], np.int32)
    return tokens_L, numbers[word_L], scored_L


def word_tokens(words: Sequence[str], tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(tokens of a text, the number of the word of each, which are the first of a word), (L,) each.

    Raises:
      ConfigError: the tokenizer makes nothing of a word.
    """
    tokens, of_word, first = [], [], []
    for number, (before, word) in enumerate(itertools.pairwise(["", *words])):
        space, own = _within(tokenizer, before, word)
        if not len(own):
            raise NoToken(word)
        tokens += [space, own]
        of_word += [number] * (len(space) + len(own))
        first += [False] * len(space) + [True] + [False] * (len(own) - 1)
    return np.concatenate(tokens), np.array(of_word, np.int32), np.array(first)


def _spaces(tokenizer: Tokenizer, texts: Sequence[Tagged]) -> list[str]:
    """What the fingerprint has of spaces between words, which were no tokens in runs of before."""
    before, word = next(((text[0][0], text[1][0]) for text in texts if len(text) > 1), ("", ""))
    space, _ = _within(tokenizer, before, word)
    return ["spaces are tokens"] if len(space) else []


def _within(tokenizer: Tokenizer, before: str, word: str) -> tuple[np.ndarray, np.ndarray]:
    """(tokens of the space before a word, those of the word) as they are after another word.

    Most kinds of pieces are joined with the space; of characters and bytes it is a token, without which words of
    different texts would be one.
    """
    own = tokenizer.encode(word)
    if not before:
        return own[:0], own
    spaced = tokenizer.encode(f" {word}")
    if not isinstance(tokenizer, TrainedTokenizer):
        cut = len(spaced) - len(own)
        return spaced[:cut], spaced[cut:]
    first, both = tokenizer.encode(before), tokenizer.encode(f"{before} {word}")
    cut_between = np.array_equal(both[: len(first)], first)
    return own[:0], both[len(first) :] if cut_between else spaced


def _arrays(texts: Sequence[Pieces], length: int) -> Batch:
    tokens, labels, scored = zip(*texts, strict=True)
    weights = pad_rows(scored, length).astype(np.float32)
    return {
        "inputs": pad_rows(tokens, length),
        "valid": real_places(tokens, length),
        "labels": pad_rows(labels, length),
        "weights": weights,
    }


def _expressions(config: TaggedConfig) -> Labelled:
    """ListOps expressions without `=` and answer; the label of a digit, its own value, does not count."""
    tokenizer = SymbolTokenizer(config.task.symbols)
    equals = len(SPECIAL) + config.task.symbols.index("=")

    def pieces(tokens: np.ndarray) -> Pieces:
        question = tokens[: int(np.argmax(tokens == equals))]
        symbols = tokenizer.decode(question).split()
        scored = np.array([not symbol.isdigit() for symbol in symbols])
        return question, np.array(expression_values(symbols), np.int32), scored

    parts = split(config.task, config.examples, config.validation_examples, 0)
    train, validation = (_arrays([pieces(row) for row in tokens], config.task.max_length) for tokens, _ in parts)
    return Labelled(
        train=train,
        validation=validation,
        classes=tuple("0123456789"),
        tokenizer=tokenizer,
        description=config,
        source=f"{config.task}, every part",
        fingerprint=fingerprint_arrays(train, fingerprint_arrays(validation)),
    )


def _lines(path: str, where: str) -> list[str]:
    """The lines of a file, or the rows of a data set of the hub; an empty one ends a text."""
    if path.startswith(PREFIX):
        return hub_lines(path, empty=True)
    return lines_of(load_text(path, where=where).content, path, where)


def parse_tagged(path: str, where: str = "data.path") -> list[Tagged]:
    """Texts of a UTF-8 file whose lines are word<TAB>label, with an empty line after each text.

    Raises:
      ConfigError: the file is missing, empty, or not UTF-8; a line is neither empty nor a word, a tab and a label. It
        names the field `where`.
    """
    texts: list[Tagged] = [[]]
    for number, line in enumerate(_lines(path, where), 1):
        if line in ("", "\t"):  # the second one is a row of two empty cells
            texts.append([])
            continue
        word, tab, label = line.partition("\t")
        if not (tab and word.strip() and label.strip()) or "\t" in label.strip():
            hint = ", nor empty: it has spaces" if not line.strip() else ""
            raise ConfigError(f"{where}: line {number} of {path} is not word<TAB>label{hint}")
        texts[-1].append((word.strip(), label.strip()))
    return [text for text in texts if text]
