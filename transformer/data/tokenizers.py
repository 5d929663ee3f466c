"""Tokenizers that need no training: one token per byte or per character."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from transformer.config.variant import ConfigError


class Tokenizer(Protocol):
    """Text to token ids and back."""

    @property
    def vocab_size(self) -> int: ...

    def encode(self, text: str) -> np.ndarray:
        """(L,) int32."""
        ...

    def decode(self, tokens: np.ndarray) -> str: ...

    def to_json(self) -> dict: ...


@dataclass(frozen=True)
class ByteTokenizer:
    """The UTF-8 bytes of a text."""

    vocab_size = 256

    def encode(self, text: str) -> np.ndarray:
        return np.frombuffer(text.encode(), np.uint8).astype(np.int32)

    def decode(self, tokens: np.ndarray) -> str:
        return bytes(np.asarray(tokens, np.uint8)).decode(errors="replace")

    def to_json(self) -> dict:
        return {"tokenizer": "byte"}


@dataclass(frozen=True)
class CharTokenizer:
    """The characters of a text, numbered in the order of `characters`."""

    characters: str

    @classmethod
    def of(cls, text: str) -> "CharTokenizer":
        """All characters of the text, sorted."""
        return cls("".join(sorted(set(text))))

    @property
    def vocab_size(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> np.ndarray:
        """Raises `ConfigError` for a character that has no number."""
        codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        known = np.frombuffer(self.characters.encode("utf-32-le"), np.uint32)
        ids = np.searchsorted(known, codes).clip(max=len(known) - 1)
        if len(wrong := np.flatnonzero(known[ids] != codes)):
            raise ConfigError(f"tokenizer: no token for {text[wrong[0]]!r} at character {wrong[0]}")
        return ids.astype(np.int32)

    def decode(self, tokens: np.ndarray) -> str:
        return "".join(self.characters[t] for t in tokens)

    def to_json(self) -> dict:
        return {"tokenizer": "char", "characters": self.characters}
