"""The tokenizer of a config, trained on texts where it needs that."""

import functools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer.core.errors import ConfigError
from transformer.data.tokenizers import (
    UNKNOWN,
    ByteTokenizer,
    CharTokenizer,
    SymbolTokenizer,
    Tokenizer,
    TrainedTokenizer,
    UnknownText,
    library,
    read_tokenizer,
)
from transformer.runs.tokenizers import (
    BPE,
    SPECIAL,
    Byte,
    ByteBPE,
    Char,
    FromFile,
    Symbols,
    Tokenization,
    Word,
    WordPiece,
)

LONGEST_WORD = 1_000
"""Characters of a word that WordPiece takes apart, in a time that grows with their square; a longer one is unknown."""


@functools.singledispatch
def make_tokenizer(config: Tokenization, texts: Sequence[str], stored: Path | None = None) -> Tokenizer:
    """The tokenizer of a config, trained on `texts` where it needs that.

    A tokenizer is a function of config and texts. The one in the file `stored` is used as it is, so that ids keep their
    meaning when other texts are read.

    Raises:
      ConfigError: the library is missing, `vocab_size` is too small for the texts, the config has no rule, or `stored`
        is not there or holds a tokenizer of another kind.
    """
    made = TrainedTokenizer(_definition(config, texts if stored is None else ()))
    return made if stored is None else _kept(stored, config, made)


def stored_in(folder: str | Path | None, name: str = "tokenizer") -> Path | None:
    """The file of a tokenizer in the folder of a run; None without a folder."""
    return None if folder is None else Path(folder) / f"{name}.json"


def _kept(stored: Path, config: Tokenization, example: Tokenizer) -> Tokenizer:
    """The tokenizer of a file, which is like another one but for its vocabulary."""
    kept = read_tokenizer(stored)
    if _kind(kept) != _kind(example):
        raise UnknownText(f"tokenizer: {stored} holds one of another kind than {config}")
    return kept


def _kind(tokenizer: Tokenizer) -> list:
    """What a tokenizer does with any text, whatever its vocabulary."""
    if not isinstance(tokenizer, TrainedTokenizer):
        return [type(tokenizer), tokenizer.special]
    parts = json.loads(library().Tokenizer.from_str(tokenizer.definition).to_str())
    return [
        parts["normalizer"],
        *(parts[name] and parts[name]["type"] for name in ("model", "pre_tokenizer", "decoder")),
    ]


@make_tokenizer.register
def _(config: Char, texts: Sequence[str], stored: Path | None = None) -> Tokenizer:
    if stored is not None:
        return _kept(stored, config, CharTokenizer("a", config.special))
    return CharTokenizer.of("".join(texts), config.special)


@make_tokenizer.register
def _(config: Byte, texts: Sequence[str], stored: Path | None = None) -> Tokenizer:
    made = ByteTokenizer(config.special)
    return made if stored is None else _kept(stored, config, made)


@make_tokenizer.register
def _(config: Symbols, texts: Sequence[str], stored: Path | None = None) -> Tokenizer:
    if stored is not None:
        return _kept(stored, config, SymbolTokenizer(()))
    return SymbolTokenizer(tuple(sorted({word for text in texts for word in text.split()})))


@make_tokenizer.register
def _(config: FromFile, texts: Sequence[str], stored: Path | None = None) -> Tokenizer:
    return read_tokenizer(Path(config.path) if stored is None else stored, config.special)


@functools.singledispatch
def _definition(config: Tokenization, texts: Sequence[str]) -> str:
    """The JSON text of a tokenizer trained on texts."""
    raise ConfigError(f"tokenizer: {config.name} has no rule; register one with make_tokenizer.register")


@_definition.register
def _(config: Word, texts: Sequence[str]) -> str:
    lib = library()
    tokenizer = _untrained(lib.models.WordLevel(unk_token=SPECIAL[UNKNOWN]), config.lowercase)
    size = 2**32 if config.vocab_size is None else config.vocab_size
    # Special words of the texts have their ids already, and would get others.
    plain = [" ".join(word for word in text.split() if word.lower() not in SPECIAL) for text in texts]
    return _train(tokenizer, lib.trainers.WordLevelTrainer, plain, size, min_frequency=config.min_frequency)


@_definition.register
def _(config: BPE, texts: Sequence[str]) -> str:
    lib = library()
    tokenizer = _untrained(lib.models.BPE(unk_token=SPECIAL[UNKNOWN]), config.lowercase)
    tokenizer.pre_tokenizer = lib.pre_tokenizers.Sequence([tokenizer.pre_tokenizer, lib.pre_tokenizers.Metaspace()])
    tokenizer.decoder = lib.decoders.Metaspace()
    return _train(tokenizer, lib.trainers.BpeTrainer, _without_special(texts), config.vocab_size)


@_definition.register
def _(config: ByteBPE, texts: Sequence[str]) -> str:
    lib = library()
    tokenizer = lib.Tokenizer(lib.models.BPE())
    tokenizer.pre_tokenizer = lib.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = lib.decoders.ByteLevel()
    alphabet = lib.pre_tokenizers.ByteLevel.alphabet()
    return _train(tokenizer, lib.trainers.BpeTrainer, texts, config.vocab_size, initial_alphabet=alphabet)


@_definition.register
def _(config: WordPiece, texts: Sequence[str]) -> str:
    """Train with a fixed order of the characters inside words, which the library takes from a random hash table.

    Given beforehand, as if they were special, they have an order, and the vocabulary is a function of the texts.
    """
    lib = library()
    model = lib.models.WordPiece(unk_token=SPECIAL[UNKNOWN], max_input_chars_per_word=LONGEST_WORD)
    tokenizer = _untrained(model, config.lowercase)
    tokenizer.decoder = lib.decoders.WordPiece(prefix="##", cleanup=False)
    normal = (tokenizer.normalizer.normalize_str(text) for text in texts)
    words = {word for text in normal for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)}
    inside = sorted({f"##{character}" for word in words for character in word[1:]})
    trained = json.loads(_train(tokenizer, lib.trainers.WordPieceTrainer, texts, config.vocab_size, inside))
    trained["added_tokens"] = trained["added_tokens"][: len(SPECIAL)]
    return json.dumps(trained, ensure_ascii=False)


def _untrained(model: Any, lowercase: bool) -> Any:
    """An untrained tokenizer of the words between whitespace."""
    lib = library()
    tokenizer = lib.Tokenizer(model)
    tokenizer.normalizer = lib.normalizers.Sequence([lib.normalizers.Lowercase()] if lowercase else [])
    tokenizer.pre_tokenizer = lib.pre_tokenizers.WhitespaceSplit()
    return tokenizer


def _without_special(texts: Sequence[str]) -> list[str]:
    """Texts in which nothing spells a special token, for which pairs of characters would be merged to its id."""
    special = re.compile("|".join(map(re.escape, SPECIAL)), re.IGNORECASE)
    return [special.sub(lambda found: f"{found[0][:-1]} {found[0][-1]}", text) for text in texts]


def _train(tokenizer: Any, trainer: Any, texts: Sequence[str], size: int, first: Sequence[str] = (), **options) -> str:
    """The definition of a tokenizer after training, with the special tokens and then `first` before all others."""
    special = [*SPECIAL, *first]
    rule = trainer(vocab_size=size, special_tokens=special, show_progress=False, **options)
    tokenizer.train_from_iterator(texts, rule)
    if (needed := tokenizer.get_vocab_size()) > size:
        raise ConfigError(f"tokenizer: vocab_size {size} is less than the {needed} of special tokens and characters")
    return tokenizer.to_str()
