"""Errors in one line: what is wrong, and the nearest valid name."""

import difflib
import traceback
from collections.abc import Iterable, Mapping
from typing import Any

from transformer.core.synonyms import FIELDS, FORMS


class OneLine(Exception):
    """An error whose one line says all: a traceback of this library's own frames adds nothing."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows in place of a page: where its own code stands, and the line."""
        frames = traceback.extract_tb(self.__traceback__)
        own = [f"line {f.lineno}: {f.line}" for f in frames if "ipykernel" in f.filename]
        return [*own, f"{type(self).__name__}: {self}", *getattr(self, "__notes__", ())]


def text_of(error: BaseException) -> str:
    """The text of any error, in one line."""
    return " ".join(str(error).split())


def one_line(error: BaseException) -> str:
    """The class and the text of any error, in one line."""
    return f"{type(error).__name__}: {text_of(error)}"


class ConfigError(OneLine, ValueError):
    """A choice that is not possible; its one line says what is wrong, where, and the nearest valid name."""


def same(word: str, known: Iterable[str]) -> list[str]:
    """The names that are the word in letters of another case, or a synonym of it."""
    return [name for name in sorted(known) if name.lower() == word.lower() or name == FIELDS.get(word)]


def similar(word: str, known: Iterable[str]) -> str | None:
    """The name that was meant: one that is the `same`, one that begins so, or a similar one."""
    known = sorted(known)
    lower = word.lower()
    begins = sorted((name for name in known if len(word) > 2 and name.lower().startswith(lower)), key=len)
    return next(iter(same(word, known) or begins or difflib.get_close_matches(word, known, n=1)), None)


def nearest(word: str, known: Iterable[str]) -> str:
    """'; did you mean X?', or without a similar name the list of known ones."""
    known = sorted(known)
    meant = similar(word, known)
    if meant is None:
        shown = [repr(name) if "," in name else name for name in known]
        return f"; known: {', '.join(shown)}" if known else ""
    return f"; did you mean {meant!r}?"


def form_of(word: str, families: Iterable[str]) -> str | None:
    """The text form of what papers or other libraries call `word`, among some families."""
    return next((FORMS[family][word.lower()] for family in families if word.lower() in FORMS.get(family, ())), None)


def instead(word: str, values: Mapping[str, Any]) -> str:
    """'; did you mean X?' with a field of that name in one of the values, 'mixer.num_heads', or as `nearest`."""
    meant = () if FIELDS.get(word) in values else (word, FIELDS.get(word))
    below = [f"{name}.{own}" for name, value in values.items() for own in _fields(value) if own in meant]
    return f"; did you mean {below[0]!r}?" if below else nearest(word, values) if values else ""


def _fields(value: Any) -> Iterable[str]:
    return getattr(value, "__dataclass_fields__", ())


def nearest_divisor(number: int, wanted: int) -> int:
    """The divisor of `number` nearest to `wanted`."""
    return min((d for d in range(1, number + 1) if number % d == 0), key=lambda d: abs(d - wanted))
