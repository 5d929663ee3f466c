"""The types of fields, and whether values are of them."""

import dataclasses
import functools
import inspect
import math
import numbers
import types
import typing
import weakref
from typing import Any

from transformer.core.errors import ConfigError, nearest
from transformer.core.values import Variant

hints = functools.cache(typing.get_type_hints)
"""The types of the fields of a class."""


def variant_of(expected: Any) -> type[Variant] | None:
    """The class of variants that a field's type allows, whether or not it also allows None."""
    if typing.get_origin(expected) is tuple:
        return None
    options = [o for o in typing.get_args(expected) or (expected,) if inspect.isclass(o) and issubclass(o, Variant)]
    return options[0] if options else None


def item_of(expected: Any) -> type[Variant] | None:
    """The class of variants that a field's type allows in a tuple; None if it is no such tuple."""
    return variant_of(typing.get_args(expected)[0]) if typing.get_origin(expected) is tuple else None


def allows_none(expected: Any) -> bool:
    """Whether a field may be None, which is written `none`."""
    return type(None) in typing.get_args(expected)


def check_type(value, expected, where: str) -> Any:
    """`value` as the field's type; an int passes for a float, nothing else is cast.

    Raises:
      ConfigError: the value has another type.
    """
    if expected is Any:
        return value
    if expected is float and type(value) is int:
        return float(value)
    origin, parameters = typing.get_origin(expected), typing.get_args(expected)
    if origin is tuple and isinstance(value, tuple | list):
        each = parameters[:1] * len(value) if len(parameters) == 1 or parameters[1] is Ellipsis else parameters
        if len(each) != len(value):
            raise ConfigError(f"{where}: {value!r} has {len(value)} items, not {len(each)}")
        return tuple(check_type(v, one, where) for v, one in zip(value, each, strict=True))
    if origin in (list, dict):
        raise ConfigError(f"{where}: {value!r} is not {'a list' if origin is list else 'an object with fields'}")
    if origin is typing.Literal:
        if value not in parameters:
            raise ConfigError(f"{where}: unknown value {value!r}{nearest(str(value), map(str, parameters))}")
        return value
    options = parameters if parameters and origin is not tuple else (expected,)
    if any(typing.get_origin(o) is typing.Literal and value in typing.get_args(o) for o in options):
        return value
    literals = [str(one) for o in options if typing.get_origin(o) is typing.Literal for one in typing.get_args(o)]
    if literals and isinstance(value, str):
        raise ConfigError(f"{where}: unknown value {value!r}{nearest(value, literals)}")
    if isinstance(value, tuple | list) and (lists := [o for o in options if typing.get_origin(o) is tuple]):
        return check_type(value, lists[0], where)
    if float in options and type(value) is int and int not in options:
        return float(value)
    if type(value) not in options and not any(
        inspect.isclass(o) and o not in (int, float) and isinstance(value, o) for o in options
    ):
        raise _wrong_type(value, expected, options, where)
    return value


def _wrong_type(value: Any, expected: Any, options: tuple[Any, ...], where: str) -> ConfigError:
    """The error of a value that has none of the types of its field."""
    wanted = " or ".join("none" if o is type(None) else getattr(o, "__name__", str(o)) for o in options)
    if isinstance(value, type):
        fits = any(isinstance(o, type) and issubclass(value, o) for o in options)
        return ConfigError(f"{where}: the class {value.__name__} is not {wanted}{_made(value) if fits else ''}")
    family = variant_of(expected) if isinstance(value, str) else None
    hint = f"; a text becomes one by {family.__name__}.parse, or in replace" if family else ""
    of_optax = type(value).__name__.startswith("GradientTransformation")
    if of_optax:
        hint = "; one of optax is what the `direction` of a rule of your own returns"
    plain = of_optax or (dataclasses.is_dataclass(value) and not isinstance(value, Variant))
    given = f"a {type(value).__name__}" if plain else repr(value)
    return ConfigError(f"{where}: {given} is not {wanted}{hint}")


def check_fields(config: Any, where: str) -> None:
    """Check the type of every field, and of the fields of the variants in it (`check_type`).

    Raises:
      ConfigError: the value of a field has another type, or is a variant that is no frozen dataclass.
    """
    for name, expected, plain in _types(type(config)):
        value = getattr(config, name)
        if type(value) in plain:  # nearly all of them: configs are made by the thousand
            continue
        if isinstance(value, list) or getattr(value, "ndim", 0) > 0:
            given = "a list" if isinstance(value, list) else "an array"
            raise ConfigError(f"{where}{name}: {value!r} is {given}; give a tuple")
        if not (isinstance(value, Variant) and isinstance(expected, type) and isinstance(value, expected)):
            check_type(value, expected, f"{where}{name}")
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, Variant) and _CHECKED.get(id(one)) is not one:
                _check_class(type(one))
                check_fields(one, f"{one.name}.")
                _CHECKED[id(one)] = one


_CHECKED: weakref.WeakValueDictionary[int, Variant] = weakref.WeakValueDictionary()
"""Variants whose fields were checked, which frozen values need once: models by the thousand share them."""


@functools.cache
def _check_class(cls: type[Variant]) -> None:
    made = cls.__dict__.get("__dataclass_params__")
    if made is None or not made.frozen:
        raise ConfigError(f"{cls.__name__} is not a frozen dataclass; write @dataclass(frozen=True) above the class")


@functools.cache
def _types(cls: type) -> list[tuple[str, Any, set[type]]]:
    """The name and the type of each of a dataclass's fields, and the classes of plain values that it allows."""
    declared, fields = hints(cls), []
    for name in (f.name for f in dataclasses.fields(cls)):
        plain = plain_of(declared[name])
        fields.append((name, declared[name], plain | {int} if float in plain else plain))
    return fields


def plain_of(expected: Any) -> set[type]:
    """The classes of plain values that a field's type allows as they are."""
    several = typing.get_origin(expected) in (types.UnionType, typing.Union)
    return {int, float, bool, str, type(None)}.intersection(typing.get_args(expected) if several else (expected,))


def check_kind(value: Any, kind: type, where: str) -> None:
    """Raise `ConfigError` unless a value is of a class: the name of a preset is no config, and a run is not its model.

    Args:
      value: what was given.
      kind: the class that is needed.
      where: what it was given to.
    """
    if not isinstance(value, kind):
        raise wrong_kind(value, kind, where)


def _made(cls: type) -> str:
    return f"; {cls.__name__}() is a value of it"


def wrong_kind(value: Any, kind: type, where: str) -> ConfigError:
    """The error of a value that is not of a class (`check_kind`)."""
    given, hint = type(value).__name__, ""
    if isinstance(value, type):
        given, hint = f"the class {value.__name__}", _made(value) if kind in value.__mro__ else ""
    elif isinstance(value, str):
        given = repr(value)
        if issubclass(kind, Variant):
            hint = f"; {kind.__name__}.parse makes one of a text"
        elif dataclasses.is_dataclass(kind):
            hint = "; preset(name) is the config of that name"
    elif inside := [n for n in getattr(value, "__dataclass_fields__", ()) if isinstance(getattr(value, n), kind)]:
        hint = f"; its field {inside[0]} is one"
    return ConfigError(f"{where}: {kind.__name__} is needed, and {given} is given{hint}")


def is_count(value: Any) -> bool:
    """Whether it is a whole number, NumPy's too; a truth value is none."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def check_seed(seed: Any) -> None:
    """Raise `ConfigError` where a seed is no whole number in [0, 2³¹); JAX would read its last 32 bits alone."""
    if not is_count(seed) or not 0 <= seed < 2**31:
        raise ConfigError(f"seed: {seed!r} is not in [0, 2³¹)")


def check_positive(value: Variant, *names: str) -> None:
    """Raise `ConfigError` where one of the fields is not a positive number, or is infinite."""
    for name in names:
        if not 0 < _number(getattr(value, name)) < math.inf:
            raise ConfigError(f"{value.name}.{name}: {getattr(value, name)!r} is not a positive number")


def _number(value: Any) -> float:
    """The value, or NaN where it is not a number."""
    return value if isinstance(value, int | float) else math.nan


def check_not_negative(value: Variant, *names: str) -> None:
    """Raise `ConfigError` where one of the fields is less than zero, infinite, or not a number."""
    for name in names:
        if not 0 <= (number := _number(getattr(value, name))) < math.inf:
            what = "negative" if number < 0 else "not a number" if math.isnan(number) else "infinite"
            raise ConfigError(f"{value.name}.{name}: {getattr(value, name)!r} is {what}")
