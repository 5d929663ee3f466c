"""Tokenizers: how a text becomes tokens."""

from dataclasses import dataclass
from typing import ClassVar

from transformer.core.errors import ConfigError
from transformer.core.values import Variant

SPECIAL = ("<pad>", "<s>", "</s>", "<unk>", "<mask>")
"""Padding, start, end, unknown and mask: ids 0 to 4 of every vocabulary that has them."""


class Tokenization(Variant):
    """What a token is. Tokenizers with a `vocab_size` are trained on texts, and their vocabularies hold `SPECIAL`."""

    closed: ClassVar[bool] = False
    """Whether it can encode only what occurs in its texts, so that it is built from the held-out part too."""


@dataclass(frozen=True)
class Char(Tokenization):
    """One token per character of the texts."""

    closed = True
    special: bool = False
    """Whether the vocabulary begins with the special tokens."""


@dataclass(frozen=True)
class Byte(Tokenization):
    """One token per UTF-8 byte."""

    special: bool = False
    """Whether the vocabulary begins with the special tokens."""


@dataclass(frozen=True)
class Symbols(Tokenization):
    """One token per word between whitespace; only words of the texts are known."""

    closed = True


@dataclass(frozen=True)
class Word(Tokenization):
    """One token per word between whitespace, the most frequent words first."""

    vocab_size: int | None = None
    """Largest size, special tokens included; None: every word."""
    min_frequency: int = 1
    """Words that occur less often are unknown."""
    lowercase: bool = False
    """Whether the text is lowercased first."""

    def __post_init__(self):
        if self.vocab_size is not None:
            _check(self, "vocab_size", len(SPECIAL) + 1)
        _check(self, "min_frequency", 1)


@dataclass(frozen=True)
class BPE(Tokenization):
    """Byte-pair encoding of the characters of words (Sennrich et al. 2016); a word starts with ▁."""

    vocab_size: int = 8000
    """Largest size, special tokens included."""
    lowercase: bool = False
    """Whether the text is lowercased first."""

    def __post_init__(self):
        _check(self, "vocab_size", len(SPECIAL) + 1)


@dataclass(frozen=True)
class ByteBPE(Tokenization):
    """Byte-pair encoding of UTF-8 bytes (Radford et al. 2019): no text is unknown."""

    name = "byte_bpe"
    vocab_size: int = 8000
    """Largest size, special tokens and the 256 bytes included."""

    def __post_init__(self):
        _check(self, "vocab_size", len(SPECIAL) + 256)


@dataclass(frozen=True)
class WordPiece(Tokenization):
    """The longest pieces of words, from the left (Devlin et al. 2019); pieces inside a word start with ##.

    Pieces are found by merging the most frequent pair, as in the library, where the original takes the pair that raises
    the likelihood most. Words are what is between whitespace: punctuation is a part of them, and accents stay. A word
    of the text that begins with ## is decoded without it, as a part of the one before. One of more than 1,000
    characters, which need not be a word where nothing is between words, is one unknown token.
    """

    vocab_size: int = 8000
    """Largest size, special tokens included."""
    lowercase: bool = False
    """Whether the text is lowercased first."""

    def __post_init__(self):
        _check(self, "vocab_size", len(SPECIAL) + 1)


@dataclass(frozen=True)
class FromFile(Tokenization):
    """Read from a file of the `tokenizers` library, such as the tokenizer.json of a published model."""

    name = "file"
    path: str = "tokenizer.json"
    """Path of the file."""
    special: bool = False
    """Whether to add the tokens that the file puts around a text, such as [CLS] and [SEP]."""


def _check(config: Tokenization, field: str, smallest: int) -> None:
    if (value := getattr(config, field)) < smallest:
        raise ConfigError(f"{config.name}.{field}: {value} is less than {smallest}")
