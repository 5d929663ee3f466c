"""A choice is a value: frozen dataclasses with a text form and a JSON form.

A *family* (`Norm`, `Position`, …) is a direct subclass of `Variant`; a variant is a frozen dataclass
below a family. There is no registry: every subclass that is defined, shipped or written in a
notebook, is known to its family by its name.
"""

import abc
import dataclasses
import difflib
import functools
import importlib
import inspect
import itertools
import math
import operator
import pkgutil
import traceback
import types
import typing
import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from transformer.core.sources import PACKAGE, source_of


class ConfigError(ValueError):
    """A choice that is not possible; its one line says what is wrong, where, and the nearest valid name."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows in place of a page: where its own code stands, and the line."""
        frames = traceback.extract_tb(self.__traceback__)
        own = [f"line {f.lineno}: {f.line}" for f in frames if "ipykernel" in f.filename]
        return [*own, f"{type(self).__name__}: {self}"]


SYNONYMS = {
    "lr": "learning_rate",
    "wd": "weight_decay",
    "dim": "d_model",
    "n_embd": "d_model",
    "hidden_size": "d_model",
    "width": "d_model",
    "depth": "num_layers",
    "n_layer": "num_layers",
    "n_head": "num_heads",
    "block_size": "max_length",
    "context_length": "max_length",
    "seq_len": "max_length",
    "epochs": "steps",
    "theta": "base",
    "SwiGLU": "GLU",
    "MultiHeadAttention": "Attention",
    "num_parameters": "parameter_count",
}
"""Words of other libraries, and ours."""


def similar(word: str, known: Iterable[str]) -> str | None:
    """The name that was meant: one of other letters' case, a synonym, one that begins so, or a similar one."""
    known = sorted(known)
    lower = word.lower()
    same = [name for name in known if name.lower() == lower or name == SYNONYMS.get(word)]
    begins = sorted((name for name in known if len(word) > 2 and name.lower().startswith(lower)), key=len)
    return next(iter(same or begins or difflib.get_close_matches(word, known, n=1)), None)


def nearest(word: str, known: Iterable[str]) -> str:
    """'; did you mean X?', or without a similar name the list of known ones."""
    known = sorted(known)
    meant = similar(word, known)
    return f"; known: {', '.join(known)}" if meant is None else f"; did you mean {meant!r}?"


def instead(word: str, values: Mapping[str, Any]) -> str:
    """'; did you mean X?' with a field of that name in one of the values, 'mixer.num_heads', or as `nearest`."""
    meant = () if SYNONYMS.get(word) in values else (word, SYNONYMS.get(word))
    below = [f"{name}.{own}" for name, value in values.items() for own in _fields(value) if own in meant]
    return f"; did you mean {below[0]!r}?" if below else nearest(word, values) if values else ""


def _fields(value: Any) -> Iterable[str]:
    return getattr(value, "__dataclass_fields__", ())


T = TypeVar("T", bound="Variant")
hints = functools.cache(typing.get_type_hints)
"""The types of the fields of a class."""


_DEFINITIONS = itertools.count()
NONE = "none"
"""The text form of None: nothing is chosen."""


class Choices(abc.ABCMeta):
    """The class of classes with many fields: one that there is not is named in a `ConfigError`, with the nearest."""

    if not TYPE_CHECKING:  # type checkers see the fields

        def __call__(cls, *values, **fields):
            try:
                return super().__call__(*values, **fields)
            except TypeError:
                taken = inspect.signature(cls).parameters.values()
                known = {parameter.name: parameter.default for parameter in taken}
                open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken)
                if not open_ended and (unknown := [name for name in fields if name not in known]):
                    raise ConfigError(f"{cls.__name__}: no field {unknown[0]!r}{instead(unknown[0], known)}") from None
                raise

        @property
        def __signature__(cls):  # that of the fields, which notebooks and `help` show
            return inspect.signature(functools.partial(cls.__init__, None))


@dataclasses.dataclass(frozen=True)
class Variant(metaclass=Choices):
    """Base of all swappable choices."""

    begins_as: ClassVar[str | None] = None
    """The text form of a simpler variant that it equals at its initial parameters, where the paper says so."""
    name: ClassVar[str]
    """The name in the text form: the class name in lower case unless the class sets it."""
    _defined: ClassVar[int]
    """A number that grows with every definition."""
    _source: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls._defined = next(_DEFINITIONS)
        cls._source = source_of(cls)  # now: a process that the class is sent to may not have its file
        if "name" not in cls.__dict__:
            cls.name = cls.__name__.lower()

    def __str__(self) -> str:
        return to_text(self)

    def recipe(self, d_model: int) -> dict[str, Any]:
        """Changes to a run that its paper makes together with it, by dotted path; studies make them too.

        They are initial values and scales without which it is not what the paper trains.
        """
        return {}

    @classmethod
    def family(cls) -> type["Variant"]:
        """The direct subclass of `Variant` that this class belongs to."""
        return next(base for base in reversed(cls.__mro__) if issubclass(base, Variant) and base is not Variant)

    @classmethod
    def variants(cls) -> dict[str, type[Self]]:
        """All variants of this class by name; of two with the same name, the one defined last."""
        load_room(cls.family().__module__.rpartition(".")[0])
        return {sub.name: sub for sub in sorted(_concrete(cls), key=lambda sub: sub._defined)}

    @classmethod
    def parse(cls, text: str, where: str = "") -> Self:
        """The value of a text form such as `rope(base=500000)`; errors name the field `where` that it is for.

        Raises:
          ConfigError: the syntax, the name, an argument or its type is wrong.
        """
        from transformer.core.text import from_text  # text forms are read by what knows all values

        return from_text(text, cls, where)


def of_field(field: str, name: str) -> Any:
    """An attribute or method of a variant made of another one, where it is that of the other one.

    Args:
      field: holds the other one.
      name: of the attribute.
    """
    return property(operator.attrgetter(f"{field}.{name}"))


@functools.cache
def load_room(package: str) -> None:
    """Import all modules of a room of this package, so that all that is defined there is known."""
    if package.startswith(f"{PACKAGE}."):
        for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)


def _concrete(cls: type[T]) -> list[type[T]]:
    """The variants among a class and its subclasses at any depth."""
    own = [cls] if "__dataclass_params__" in cls.__dict__ and not inspect.isabstract(cls) else []
    own = [] if cls is Variant else own
    return own + [deeper for sub in cls.__subclasses__() for deeper in _concrete(sub)]


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
        wanted = " or ".join("none" if o is type(None) else getattr(o, "__name__", str(o)) for o in options)
        family = variant_of(expected) if isinstance(value, str) else None
        hint = f"; a text becomes one by {family.__name__}.parse, or in replace" if family else ""
        plain = dataclasses.is_dataclass(value) and not isinstance(value, type | Variant)
        given = f"a {type(value).__name__}" if plain else repr(value)
        if isinstance(value, type):
            given = f"the class {value.__name__}"
            hint = _made(value) if any(isinstance(o, type) and issubclass(value, o) for o in options) else hint
        raise ConfigError(f"{where}: {given} is not {wanted}{hint}")
    return value


def check_fields(config: Any, where: str) -> None:
    """Check the type of every field, and of the fields of the variants in it (`check_type`).

    Raises:
      ConfigError: the value of a field has another type, or is a variant that is no frozen dataclass.
    """
    for name, expected, plain in _types(type(config)):
        value = getattr(config, name)
        if type(value) in plain:  # nearly all of them: configs are made by the thousand
            continue
        if isinstance(value, list):
            raise ConfigError(f"{where}{name}: {value!r} is a list; give a tuple")
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


def check_positive(value: Variant, *names: str) -> None:
    """Raise `ConfigError` where one of the fields is not a positive number."""
    for name in names:
        if not _number(getattr(value, name)) > 0:
            raise ConfigError(f"{value.name}.{name}: {getattr(value, name)!r} is not a positive number")


def _number(value: Any) -> float:
    """The value, or NaN where it is not a number."""
    return value if isinstance(value, int | float) else math.nan


def check_not_negative(value: Variant, *names: str) -> None:
    """Raise `ConfigError` where one of the fields is less than zero or not a number."""
    for name in names:
        if not (number := _number(getattr(value, name))) >= 0:
            what = "negative" if number < 0 else "not a number"
            raise ConfigError(f"{value.name}.{name}: {getattr(value, name)!r} is {what}")


def make(cls, values: dict[str, Any]) -> Any:
    """`cls(**values)`, with a missing or rejected value as a `ConfigError`."""
    missing = [
        f.name
        for f in dataclasses.fields(cls)
        if f.name not in values and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ConfigError(f"{getattr(cls, 'name', cls.__name__)}: missing {', '.join(missing)}")
    return cls(**values)


def to_text(value: Any) -> str:
    """The shortest text that parses back to the value: fields at their default are left out."""
    if isinstance(value, tuple) and any(isinstance(item, Variant) for item in value):
        return "[" + ", ".join(map(to_text, value)) + "]"
    if not isinstance(value, Variant):
        return NONE if value is None else repr(value)
    changed = [
        f"{f.name}={to_text(getattr(value, f.name))}"
        for f in dataclasses.fields(value)
        if getattr(value, f.name) != f.default
    ]
    return f"{value.name}({', '.join(changed)})" if changed else value.name


def nearest_divisor(number: int, wanted: int) -> int:
    """The divisor of `number` nearest to `wanted`."""
    return min((d for d in range(1, number + 1) if number % d == 0), key=lambda d: abs(d - wanted))
