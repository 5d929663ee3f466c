"""Tokenizers: bytes, characters, a closed vocabulary, or pieces of words; `tokenizer_training` makes them of texts."""

import abc
import functools
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from transformer.core.errors import ConfigError, nearest
from transformer.core.files import parsed, read_text
from transformer.core.json import from_json
from transformer.runs.tokenizers import SPECIAL

PAD, START, END, UNKNOWN, MASK = range(len(SPECIAL))
CONTROL = (PAD, START, END, MASK)
"""Special tokens that stand for no text."""


class Tokenizer(Protocol):
    """Text to token ids and back."""

    @property
    def special(self) -> bool:
        """Whether the vocabulary begins with the special tokens."""
        ...

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        ...

    def encode(self, text: str) -> np.ndarray:
        """The tokens of a text, (L,) int32."""
        ...

    def decode(self, tokens: np.ndarray) -> str:
        """The text of tokens (L,)."""
        ...

    def to_json(self) -> dict:
        """The tokenizer as JSON data, which identifies it."""
        ...

    @property
    def definition(self) -> str:
        """The JSON text it is kept as in the folder of a run, which `read_tokenizer` reads."""
        ...


def encode_open(tokenizer: Tokenizer, text: str) -> np.ndarray:
    """The tokens of a text that goes on, (L,) int32: without what the tokenizer puts after a whole one."""
    return getattr(tokenizer, "encode_open", tokenizer.encode)(text)


class _Untrained(abc.ABC):
    """A tokenizer that its JSON data says whole."""

    @abc.abstractmethod
    def to_json(self) -> dict: ...

    @property
    def definition(self) -> str:
        return json.dumps(self.to_json())


class UnknownText(ConfigError):
    """A text has what a tokenizer has no token for, or the tokenizer kept for it is of another kind."""


@dataclass(frozen=True)
class ByteTokenizer(_Untrained):
    """The UTF-8 bytes of a text."""

    special: bool = False
    """The special tokens come first; decoding leaves them out, but for the unknown one, which is U+FFFD."""

    @property
    def vocab_size(self) -> int:
        return _shift(self.special) + 256

    def encode(self, text: str) -> np.ndarray:
        return np.frombuffer(_encoded(text, "utf-8"), np.uint8).astype(np.int32) + _shift(self.special)

    def decode(self, tokens: np.ndarray) -> str:
        ids = _ordinary(tokens, self.special)
        return bytes(np.where((ids >= 0) & (ids < 256), ids, 255).astype(np.uint8)).decode(errors="replace")

    def to_json(self) -> dict:
        return {"tokenizer": "byte"} | _flag(self.special)


@dataclass(frozen=True)
class CharTokenizer(_Untrained):
    """The characters of a text, numbered in the order of `characters`."""

    characters: str
    special: bool = False
    """The special tokens come first; decoding leaves them out, but for the unknown one, which is U+FFFD."""

    def __post_init__(self):
        if not self.characters or len(set(self.characters)) < len(self.characters):
            raise ConfigError(f"tokenizer: {self.characters!r} is not a text of different characters")

    @classmethod
    def of(cls, text: str, special: bool = False) -> "CharTokenizer":
        """The tokenizer of all characters of a text, sorted."""
        return cls("".join(sorted(set(text))), special)

    @property
    def vocab_size(self) -> int:
        return _shift(self.special) + len(self.characters)

    def encode(self, text: str) -> np.ndarray:
        """The tokens of a text, (L,) int32; raises `ConfigError` for a character that is not known."""
        codes = np.frombuffer(_encoded(text, "utf-32-le"), np.uint32)
        known = np.frombuffer(self.characters.encode("utf-32-le"), np.uint32)
        order = np.argsort(known)
        ids = order[np.searchsorted(known, codes, sorter=order).clip(max=len(known) - 1)]
        if len(wrong := np.flatnonzero(known[ids] != codes)):
            raise UnknownText(f"tokenizer: no token for {text[wrong[0]]!r} at character {wrong[0]}")
        return ids.astype(np.int32) + _shift(self.special)

    def decode(self, tokens: np.ndarray) -> str:
        return "".join(_named(tokens, self.characters, self.special))

    def to_json(self) -> dict:
        return {"tokenizer": "char", "characters": self.characters} | _flag(self.special)


def _encoded(text: str, encoding: str) -> bytes:
    """A text in an encoding; half of a character, as a shell makes it of bytes that are not UTF-8, is in none."""
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        what = f"{text[error.start]!r} at character {error.start}"
        raise UnknownText(f"tokenizer: {what} is no character; is the text UTF-8?") from None


def _shift(special: bool) -> int:
    return len(SPECIAL) if special else 0


def _ordinary(tokens: np.ndarray, special: bool) -> np.ndarray:
    """The tokens but padding, start, end and mask, numbered from 0; the unknown one is less than 0."""
    ids = np.asarray(tokens, np.int32)
    return (ids[~np.isin(ids, CONTROL)] if special else ids) - _shift(special)


def _named(tokens: np.ndarray, names: str | tuple[str, ...], special: bool) -> list[str]:
    """The names of tokens but padding, start, end and mask, with U+FFFD for an unknown token."""
    return [names[t] if 0 <= t < len(names) else "\ufffd" for t in _ordinary(tokens, special)]


def _flag(special: bool) -> dict:
    return {"special": True} if special else {}


@dataclass(frozen=True)
class SymbolTokenizer(_Untrained):
    """A closed vocabulary: the special tokens, then `symbols`; a text is symbols separated by spaces."""

    symbols: tuple[str, ...]

    @property
    def special(self) -> bool:
        return True

    def __post_init__(self):
        seen: set[str] = set(SPECIAL)
        for symbol in self.symbols:
            if not isinstance(symbol, str):
                raise ConfigError(f"tokenizer: symbol {symbol!r} is no text")
            if symbol in seen or symbol.split() != [symbol]:
                raise ConfigError(f"tokenizer: symbol {symbol!r} is given twice, special, or not one word")
            seen.add(symbol)

    @property
    def vocab_size(self) -> int:
        return len(SPECIAL) + len(self.symbols)

    def encode(self, text: str) -> np.ndarray:
        """The tokens of a text, (L,) int32; raises `ConfigError` for a symbol that is not in the vocabulary."""
        symbols = text.split()
        if wrong := [i for i, symbol in enumerate(symbols) if symbol not in self._ids]:
            symbol = symbols[wrong[0]]
            hint = nearest(symbol, self.symbols)
            raise UnknownText(f"tokenizer: no token for {symbol!r} at symbol {wrong[0]}{hint}")
        return np.array([self._ids[symbol] for symbol in symbols], np.int32)

    def decode(self, tokens: np.ndarray) -> str:
        return " ".join(_named(tokens, self.symbols, special=True))

    def to_json(self) -> dict:
        return {"tokenizer": "symbol", "symbols": list(self.symbols)}

    @functools.cached_property
    def _ids(self) -> dict[str, int]:
        return {symbol: i for i, symbol in enumerate(self.symbols, len(SPECIAL))}


@dataclass(frozen=True)
class TrainedTokenizer:
    """A tokenizer of the `tokenizers` library, given by its JSON text.

    `<s>` inside a text is read as ordinary characters, and as unknown where tokens are whole words or their longest
    pieces (`WordPiece`); it is never the special token.
    """

    definition: str = field(repr=False)
    around: bool = False
    """Whether a text is encoded with the tokens that the definition puts around it, such as [CLS] and [SEP]."""

    @property
    def special(self) -> bool:
        """Whether ids 0 to 4 are the special tokens, which they may not be in files from elsewhere."""
        return [self._tokenizer.id_to_token(i) for i in range(len(SPECIAL))] == list(SPECIAL)

    def checked(self) -> "TrainedTokenizer":
        """The tokenizer, whose definition the library can read; otherwise raises `ConfigError`."""
        assert self._tokenizer is not None
        return self

    @property
    def vocab_size(self) -> int:
        return self._tokenizer.get_vocab_size()

    def encode(self, text: str) -> np.ndarray:
        """The tokens of a text, (L,) int32; raises `ConfigError` for a special token in it where none is unknown."""
        return self._encode(text)[0]

    def encode_open(self, text: str) -> np.ndarray:
        """The tokens of a text that goes on: without those that the definition puts after it, (L,) int32.

        None of an empty text.
        """
        tokens_L, own_L = self._encode(text)
        return tokens_L[: own_L.nonzero()[0][-1] + 1 if own_L.any() else 0]

    @functools.cached_property
    def opening(self) -> np.ndarray:
        """What the definition puts before a text, (L,) int32."""
        for token in range(self.vocab_size) if self.around else ():
            tokens_L, own_L = self._encode(self._tokenizer.decode([token]))
            if own_L.any():
                return tokens_L[: int(own_L.argmax())]
        return np.zeros(0, np.int32)

    def _encode(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """(tokens, which of them are of the text and not put around it), (L,) each."""
        _encoded(text, "utf-8")
        found = self._tokenizer.encode(text, add_special_tokens=self.around)
        tokens_L = np.array(found.ids, np.int32)
        own_L = np.array(found.special_tokens_mask) == 0 if self.around else np.ones(len(tokens_L), np.bool)
        if (spelled_L := own_L & np.isin(tokens_L, self._control)).any():
            if self._unknown is None:
                place = int(spelled_L.argmax())
                where = f"at character {found.offsets[place][0]}"
                raise UnknownText(f"tokenizer: {found.tokens[place]!r} {where} is a special token, and no text")
            tokens_L[spelled_L] = self._unknown
        return tokens_L, own_L

    def decode(self, tokens: np.ndarray) -> str:
        """The text without the special tokens, of which the unknown one is written."""
        ids = np.asarray(tokens, np.int32)
        return self._tokenizer.decode(ids[~np.isin(ids, self._control)].tolist(), skip_special_tokens=False)

    def normalized(self, text: str) -> str:
        """The text as it is before it is cut, such as in lower case."""
        rule = self._tokenizer.normalizer
        return text if rule is None else rule.normalize_str(text)

    def to_json(self) -> dict:
        digest = hashlib.sha256(self.definition.encode()).hexdigest()
        return {"tokenizer": "trained", "sha256": digest} | ({"around": True} if self.around else {})

    @functools.cached_property
    def _unknown(self) -> int | None:
        """The token of what has none."""
        if self.special:
            return UNKNOWN
        model = json.loads(self.definition)["model"]
        named = model.get("unk_token")
        if named is None:
            return model.get("unk_id")
        # Where it is also the end, as in CLIP, it is no text.
        return self._tokenizer.token_to_id(named) if "unk" in named.lower() else None

    @functools.cached_property
    def _control(self) -> list[int]:
        """The special tokens that stand for no text."""
        added = self._tokenizer.get_added_tokens_decoder()
        return [token for token, what in added.items() if what.special and token != self._unknown]

    @functools.cached_property
    def _tokenizer(self) -> Any:
        read = library().Tokenizer.from_str
        try:
            tokenizer = read(self.definition)
        except Exception as error:  # the library raises no narrower class
            raise ConfigError(f"tokenizer: not a definition of the library tokenizers: {error}") from None
        tokenizer.encode_special_tokens = True
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer


def library() -> Any:
    """The library `tokenizers`; raises `ConfigError` where it is not installed."""
    try:
        import tokenizers
    except ImportError:
        raise ConfigError("tokenizer: needs the library tokenizers: pip install 'transformer[text]'") from None
    return tokenizers


def read_tokenizer(path: Path, around: bool = False) -> Tokenizer:
    """The tokenizer of a file in the folder of a run.

    Args:
      path: its file, of our own or of the `tokenizers` library.
      around: for a trained tokenizer, whether it puts its special tokens around a text.

    Raises:
      ConfigError: it cannot be read.
    """
    try:
        definition = read_text(path)
        fields = parsed(definition, str(path))
        if not isinstance(fields, dict):
            raise ConfigError(f"{path}: holds no object with fields")
        trained = isinstance(fields.get("model"), dict)
        kind = None if trained else fields.pop("tokenizer", None)
        if not trained and (kind is None or isinstance(kind, int)):
            raise ConfigError(f"{path}: its vocabulary or its settings alone; give the file tokenizer.json")
        if kind is None:
            return TrainedTokenizer(definition, around).checked()
        if not isinstance(kind, str) or kind not in _OWN:
            raise ConfigError(f"{path}: unknown tokenizer {kind!r}{nearest(str(kind), _OWN)}")
        return from_json(_OWN[kind], fields, str(path))
    except FileNotFoundError:
        raise ConfigError(f"tokenizer: no file {path}") from None
    except ConfigError as error:
        raise ConfigError(f"tokenizer: {str(error).removeprefix('tokenizer: ')}") from None


_OWN = {"byte": ByteTokenizer, "char": CharTokenizer, "symbol": SymbolTokenizer}
