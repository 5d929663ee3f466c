"""Configs with fields changed, named by dotted path, and the fields in which they differ."""

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any, Self

from transformer.core.checks import check_type, hints, item_of, variant_of
from transformer.core.errors import ConfigError, instead, nearest
from transformer.core.json import from_json
from transformer.core.notebook import ShownAsText, without_defaults
from transformer.core.text import field_from_text
from transformer.core.values import Choices, Variant, to_text


class Config(ShownAsText, metaclass=Choices):
    """Base of configs, which are frozen dataclasses of values."""

    __repr__ = without_defaults

    def replace(self, changes: dict[str, Any] | None = None, **more: Any) -> Self:
        """A copy with fields changed by dotted path: `replace({"model.norm": RMSNorm()}, steps=100)`.

        Variants are given as values or in their text form.
        """
        return replace(self, {**(changes or {}), **more})

    def __str__(self) -> str:
        """The settings that differ from the defaults."""
        return f"{type(self).__name__}({', '.join(_own(self))})"


def _own(config: Any, base: Any = None, prefix: str = "") -> Iterator[str]:
    """`path=text` of each setting that is not as in `base`, or the default; a config of another kind is named whole."""
    for field in dataclasses.fields(config):
        value, path = getattr(config, field.name), prefix + field.name
        default = field.default if base is None else getattr(base, field.name)
        if isinstance(value, Config) and type(value) is type(default):
            yield from _own(value, default, f"{path}.")
        elif value != default:
            yield f"{path}={value if isinstance(value, str | Config) else to_text(value)}"


def settings(config: Any, prefix: str = "") -> dict[str, str]:
    """The text of every setting of a config by its dotted path, as the command line takes them."""
    found: dict[str, str] = {}
    for field in dataclasses.fields(config):
        value, path = getattr(config, field.name), prefix + field.name
        inner = dataclasses.is_dataclass(value) and not isinstance(value, Variant)
        found |= settings(value, f"{path}.") if inner else {path: value if isinstance(value, str) else to_text(value)}
    return found


def changed(config: Any, base: Any) -> dict[str, str]:
    """The settings in which a config differs from another one."""
    before = settings(base)
    return {path: text for path, text in settings(config).items() if before.get(path) != text}


def replace(config: Any, changes: dict[str, Any]) -> Any:
    """A copy of a config with fields changed, named by dotted path: `{"model.norm": RMSNorm()}`.

    All changes are made at once, so that fields that must fit each other can change together. A
    variant may be given as a value or as its text form, also in a tuple.

    Raises:
      ConfigError: there is no such field, or the value has another type.
    """
    return _replace(config, changes, "")


def typed(config: Any, path: str, value: Any) -> Any:
    """A value as one for the field of a config that a dotted path names, also from its text form or from JSON.

    Raises:
      ConfigError: there is no such field, or it takes no such value.
    """
    head, _, rest = path.partition(".")
    types = hints(type(config)) if dataclasses.is_dataclass(config) else {}
    if head not in types or head not in getattr(config, "__dataclass_fields__", {}):
        raise ConfigError(f"{path}: no field {head!r}{nearest(head, getattr(config, '__dataclass_fields__', ()))}")
    if rest:
        return typed(getattr(config, head), rest, value)
    return from_json(types[head], value, path) if isinstance(value, dict) else _given(value, types[head], path)


def _given(value: Any, expected: Any, where: str) -> Any:
    """The new value of a field; variants in it may be given in their text form."""
    if isinstance(value, str) and (variant_of(expected) or item_of(expected)) is not None:
        return field_from_text(value, expected, where)
    if isinstance(value, tuple | list) and item_of(expected) is not None:
        return tuple(_given(one, typing.get_args(expected)[0], where) for one in value)
    return check_type(value, expected, where)


def _replace(config: Any, changes: dict[str, Any], prefix: str) -> Any:
    fields = [f.name for f in dataclasses.fields(config)] if dataclasses.is_dataclass(config) else []
    if config is None:
        raise ConfigError(f"{prefix}{next(iter(changes))}: {prefix[:-1]} is none")
    types = hints(type(config))
    values: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    for path, value in changes.items():
        head, _, rest = path.partition(".")
        if head not in fields:
            where = f"{prefix}{path}"
            shown = where if where.isprintable() else repr(where)
            hint = instead(head, {name: getattr(config, name) for name in fields})
            raise ConfigError(f"{shown}: no field {head!r}{hint}")
        if rest:
            inner.setdefault(head, {})[rest] = value
        else:
            values[head] = _given(value, types[head], prefix + path)
    for head, below in inner.items():
        values[head] = _replace(values.get(head, getattr(config, head)), below, f"{prefix}{head}.")
    return dataclasses.replace(config, **values)  # pyright: ignore[reportArgumentType]
