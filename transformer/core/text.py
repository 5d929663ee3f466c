"""The text form of values, read: `rope(base=500000)`; literals only, nothing is evaluated."""

import ast
import dataclasses
import difflib
import typing
from collections.abc import Callable, Mapping
from typing import Any

from transformer.core.checks import allows_none, check_type, hints, variant_of
from transformer.core.errors import ConfigError, form_of, nearest
from transformer.core.values import NONE, Variant, make

LONGEST = 10_000
"""Characters of a text form."""


def from_text(text: str, family: type[Variant], where: str = "") -> Any:
    """The value of a text form.

    Args:
      text: a name, or a name with fields.
      family: what the value has to be.
      where: the field that it is for, which errors name; without it they name the family.

    Raises:
      ConfigError: the syntax, the name, an argument or its type is wrong.
    """
    label, form = where or family.__name__.lower(), "of the form name or name(field=value)"
    return _read(text, label, form, lambda node: _variant(node, family, text, where))


def field_from_text(text: str, expected: Any, where: str) -> Any:
    """The value of a field as it is written on a command line, where texts need no quotes.

    Args:
      text: a number, a truth value, `none`, a text, a text form, or several of them in brackets.
      expected: the type of the field.
      where: the field, which errors name.

    Raises:
      ConfigError: it is none of the kind that the field takes.
    """
    if text == NONE and allows_none(expected):
        return None
    if (family := variant_of(expected)) is not None:
        return family.parse(text, where)
    if str in (expected, *typing.get_args(expected)):
        return text
    form = "a number, a word, or a list of them"
    return _read(text, where, form, lambda node: _argument(node, expected, where, text))


def _read(text: str, label: str, form: str, read: Callable[[ast.expr], Any]) -> Any:
    """What `read` makes of the syntax of a text; raises `ConfigError` where it is not of that form."""
    if len(text) > LONGEST:
        raise ConfigError(f"{label}: a text form of {len(text):,} characters, more than {LONGEST:,}")
    try:
        return read(ast.parse(text.strip(), mode="eval").body)
    except ConfigError:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        shown = text if len(text) < 100 else f"{text[:100]}…"
        raise ConfigError(f"{label}: {shown!r} is not {form}") from None


def _variant(node: ast.expr, family: type[Variant], text: str, where: str) -> Any:
    label = where or family.__name__.lower()
    call = node if isinstance(node, ast.Call) else None
    head = call.func if call else node
    if not isinstance(head, ast.Name):
        raise ConfigError(f"{label}: {text!r} is not of the form name or name(field=value)")
    known = family.variants()
    if head.id not in known:
        raise ConfigError(f"{label}: unknown name {head.id!r}{_nearest(head.id, known, family)}")
    cls = known[head.id]
    fields = [f.name for f in dataclasses.fields(cls)]
    arguments: dict[str, Any] = {}
    if call:
        ordered = [f.name for f in dataclasses.fields(cls) if not f.kw_only]
        if len(call.args) > len(ordered):
            raise ConfigError(f"{label}: {cls.name} takes {len(ordered)} values, not {len(call.args)}")
        arguments = dict(zip(ordered, call.args, strict=False))
        for keyword in call.keywords:
            if keyword.arg not in fields:
                raise ConfigError(
                    f"{label}: {cls.name} has no field {keyword.arg!r}{nearest(str(keyword.arg), fields)}"
                )
            if keyword.arg in arguments:
                raise ConfigError(f"{label}: {cls.name} is given {keyword.arg!r} twice")
            arguments[keyword.arg] = keyword.value
    types = hints(cls)
    return make(cls, {k: _argument(v, types[k], f"{where or cls.name}.{k}", text) for k, v in arguments.items()})


def _nearest(word: str, known: Mapping[str, type[Variant]], family: type[Variant]) -> str:
    """The hint at a name that is not known, which may be that of elsewhere, or that of a class, as in Python."""
    if (form := form_of(word, [cls.__name__ for cls in family.__mro__])) is not None:
        return f"; here it is {form}"
    names = {cls.__name__.lower(): name for name, cls in known.items()} | {name: name for name in known}
    close = difflib.get_close_matches(word.lower(), names, n=1)
    return f"; did you mean {names[close[0]]!r}?" if close else nearest(word, known)


def _argument(node: ast.expr, expected, where: str, text: str) -> Any:
    if expected is Any:  # typed later, by the config that it is part of
        return None if _is_none(node) else node.value if isinstance(node, ast.Constant) else ast.unparse(node)
    if _is_none(node) and allows_none(expected):
        return None
    if (family := variant_of(expected)) is not None:
        return _variant(node, family, text, where)
    if typing.get_origin(expected) is tuple and isinstance(node, ast.Tuple | ast.List):
        return tuple(_argument(item, typing.get_args(expected)[0], where, text) for item in node.elts)
    if isinstance(node, ast.Name) and _takes_words(expected):
        return check_type(node.id, expected, where)
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError):
        raise ConfigError(
            f"{where}: {ast.unparse(node)} is not a number, a text in quotes, or a list of them"
        ) from None
    return check_type(value, expected, where)


def _is_none(node: ast.expr) -> bool:
    return (isinstance(node, ast.Name) and node.id == NONE) or (isinstance(node, ast.Constant) and node.value is None)


def _takes_words(expected: Any) -> bool:
    """Whether a field is a text, which needs no quotes if it is one word."""
    options = typing.get_args(expected) if typing.get_origin(expected) is not typing.Literal else (expected,)
    return any(o is str or typing.get_origin(o) is typing.Literal for o in (*options, expected))
