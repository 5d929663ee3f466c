"""A choice is a value: frozen dataclasses with a text form and a JSON form.

A *family* (`Norm`, `Position`, …) is a direct subclass of `Variant`; a variant is a frozen dataclass
below a family. There is no registry: every subclass that is defined, shipped or written in a
notebook, is known to its family by its name.
"""

import ast
import dataclasses
import difflib
import functools
import importlib
import inspect
import itertools
import math
import pkgutil
import typing
import weakref
from typing import Any, ClassVar, Self, TypeVar

from transformer.core.sources import PACKAGE, source_of


class ConfigError(ValueError):
    """A choice that is not possible; its one line says what is wrong, where, and the nearest valid name."""


def nearest(word: str, known) -> str:
    """'; did you mean X?', or without a similar name the list of known ones."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"


T = TypeVar("T", bound="Variant")


_DEFINITIONS = itertools.count()
NONE = "none"
"""The text form of None: nothing is chosen."""


@dataclasses.dataclass(frozen=True)
class Variant:
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

    @classmethod
    def family(cls) -> type["Variant"]:
        """The direct subclass of `Variant` that this class belongs to."""
        return next(base for base in reversed(cls.__mro__) if issubclass(base, Variant) and base is not Variant)

    @classmethod
    def variants(cls) -> dict[str, type[Self]]:
        """All variants of this class by name; of two with the same name, the one defined last."""
        _load_room(cls.family().__module__)
        return {sub.name: sub for sub in sorted(_concrete(cls), key=lambda sub: sub._defined)}

    @classmethod
    def parse(cls, text: str) -> Self:
        """The value of a text form such as `rope(base=500000)`.

        Raises:
          ConfigError: the syntax, the name, an argument or its type is wrong.
        """
        try:
            node = ast.parse(text.strip(), mode="eval").body
        except SyntaxError:
            raise ConfigError(
                f"{cls.__name__.lower()}: {text!r} is not of the form name or name(field=value)"
            ) from None
        return _from_node(node, cls, text)


@functools.cache
def _load_room(module: str) -> None:
    """Import all modules of the room of a family of this package, so that all its variants are known."""
    package = module.rpartition(".")[0]
    if module.startswith(f"{PACKAGE}."):
        for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)


def _concrete(cls: type[T]) -> list[type[T]]:
    """The variants among a class and its subclasses at any depth."""
    own = [cls] if "__dataclass_params__" in cls.__dict__ and not inspect.isabstract(cls) else []
    own = [] if cls is Variant else own
    return own + [deeper for sub in cls.__subclasses__() for deeper in _concrete(sub)]


def _from_node(node: ast.expr, family: type[Variant], text: str) -> Any:
    label = family.__name__.lower()
    call = node if isinstance(node, ast.Call) else None
    head = call.func if call else node
    if not isinstance(head, ast.Name):
        raise ConfigError(f"{label}: {text!r} is not of the form name or name(field=value)")
    known = family.variants()
    if head.id not in known:
        raise ConfigError(f"{label}: unknown name {head.id!r}{nearest(head.id, known)}")
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
    types = typing.get_type_hints(cls)
    return make(cls, {k: _argument(v, types[k], f"{cls.name}.{k}", text) for k, v in arguments.items()})


def variant_of(expected: Any) -> type[Variant] | None:
    """The class of variants that a field's type allows, whether or not it also allows None."""
    if typing.get_origin(expected) is tuple:
        return None
    options = [o for o in typing.get_args(expected) or (expected,) if inspect.isclass(o) and issubclass(o, Variant)]
    return options[0] if options else None


def item_of(expected: Any) -> type[Variant] | None:
    """The class of variants that a field's type allows in a tuple; None if it is no such tuple."""
    return variant_of(typing.get_args(expected)[0]) if typing.get_origin(expected) is tuple else None


def _argument(node: ast.expr, expected, where: str, text: str) -> Any:
    if expected is Any:  # typed later, by the config that it is part of
        return None if _is_none(node) else node.value if isinstance(node, ast.Constant) else ast.unparse(node)
    if _is_none(node) and allows_none(expected):
        return None
    if (family := variant_of(expected)) is not None:
        return _from_node(node, family, text)
    several = item_of(expected) is not None or typing.get_args(expected)[:1] == (Any,)
    if several and isinstance(node, ast.Tuple | ast.List):
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


def allows_none(expected: Any) -> bool:
    """Whether a field may be None, which is written `none`."""
    return type(None) in typing.get_args(expected)


def _takes_words(expected: Any) -> bool:
    """Whether a field is a text, which needs no quotes if it is one word."""
    options = typing.get_args(expected) if typing.get_origin(expected) is not typing.Literal else (expected,)
    return any(o is str or typing.get_origin(o) is typing.Literal for o in (*options, expected))


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
        return tuple(check_type(v, parameters[0], where) for v in value)
    if origin is typing.Literal:
        if value not in parameters:
            raise ConfigError(f"{where}: unknown value {value!r}{nearest(str(value), map(str, parameters))}")
        return value
    options = parameters if parameters and origin is not tuple else (expected,)
    if any(typing.get_origin(o) is typing.Literal and value in typing.get_args(o) for o in options):
        return value
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
        raise ConfigError(f"{where}: {value!r} is not {wanted}{hint}")
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
    hints = typing.get_type_hints(cls)
    fields = []
    for name in (f.name for f in dataclasses.fields(cls)):
        options = {o for o in typing.get_args(hints[name]) or (hints[name],) if isinstance(o, type)}
        whole = {int} if float in options else set()
        is_tuple = typing.get_origin(hints[name]) is tuple
        fields.append((name, hints[name], set() if is_tuple else options & {int, float, bool, str, type(None)} | whole))
    return fields


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


def to_json(value: Any) -> Any:
    """Plain JSON of a config: every field of every value, so that a changed default is a changed config."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        types = typing.get_type_hints(type(value))
        fields = {f.name: to_json_as(types[f.name], getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"variant": value.name, **fields} if isinstance(value, Variant) else fields
    if isinstance(value, tuple | list):
        return [to_json(v) for v in value]
    return value


def to_json_as(declared: Any, value: Any) -> Any:
    """`to_json` where a type is declared; a value of a subclass has the name of its class as `kind`."""
    data = to_json(value)
    plain = dataclasses.is_dataclass(value) and not isinstance(value, Variant)
    return {"kind": type(value).__name__, **data} if plain and type(value) is not declared else data


def _subclasses(cls: type) -> dict[str, type]:
    """The class and all its subclasses by name."""
    return {cls.__name__: cls} | {name: sub for c in cls.__subclasses__() for name, sub in _subclasses(c).items()}


def from_json(cls: Any, data: Any, where: str = "config") -> Any:
    """The inverse of `to_json` for a value of type `cls`.

    Raises:
      ConfigError: an unknown or missing field, an unknown variant, or a wrong type.
    """
    if item_of(cls) is not None and isinstance(data, list):
        return tuple(from_json(typing.get_args(cls)[0], one, where) for one in data)
    family: Any = variant_of(cls)
    if family is not None and not (data is None and allows_none(cls)):
        cls = family
        if not isinstance(data, dict) or "variant" not in data:
            raise ConfigError(f"{where}: {data!r} is not a variant")
        known = cls.variants()
        if not isinstance(data["variant"], str) or data["variant"] not in known:
            raise ConfigError(
                f"{where}: unknown {cls.__name__.lower()} {data['variant']!r}{nearest(str(data['variant']), known)}"
            )
        cls, data = known[data["variant"]], {k: v for k, v in data.items() if k != "variant"}
    if not dataclasses.is_dataclass(cls):
        return check_type(data, cls, where)
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: {data!r} is not an object with fields")
    if "kind" in data and family is None:
        known = _subclasses(typing.cast(type, cls))
        if data["kind"] not in known:
            raise ConfigError(f"{where}: unknown kind {data['kind']!r}{nearest(str(data['kind']), known)}")
        cls, data = known[data["kind"]], {k: v for k, v in data.items() if k != "kind"}
    types = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    if unknown := [k for k in data if k not in fields]:
        raise ConfigError(f"{where}: unknown field {unknown[0]!r}{nearest(unknown[0], fields)}")
    return make(cls, {k: from_json(types[k], v, f"{where}.{k}") for k, v in data.items()})


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
    types = typing.get_type_hints(type(config)) if dataclasses.is_dataclass(config) else {}
    if head not in types or head not in getattr(config, "__dataclass_fields__", {}):
        raise ConfigError(f"{path}: no field {head!r}{nearest(head, getattr(config, '__dataclass_fields__', ()))}")
    if rest:
        return typed(getattr(config, head), rest, value)
    return from_json(types[head], value, path) if isinstance(value, dict) else _given(value, types[head], path)


def _given(value: Any, expected: Any, where: str) -> Any:
    """The new value of a field; variants in it may be given in their text form."""
    if isinstance(value, str) and (family := variant_of(expected)) is not None:
        return None if value == NONE and allows_none(expected) else family.parse(value)
    if isinstance(value, tuple | list) and item_of(expected) is not None:
        return tuple(_given(one, typing.get_args(expected)[0], where) for one in value)
    return check_type(value, expected, where)


def _instead(config: Any, name: str, fields: list[str]) -> str:
    """'; did you mean X?' with a field of that name further below, or one of a similar name."""
    below = [f"{head}.{name}" for head in fields if hasattr(getattr(config, head), "__dataclass_fields__")]
    there = [path for path in below if name in getattr(config, path.partition(".")[0]).__dataclass_fields__]
    return f"; did you mean {there[0]!r}?" if there else nearest(name, fields) if fields else ""


def _replace(config: Any, changes: dict[str, Any], prefix: str) -> Any:
    fields = [f.name for f in dataclasses.fields(config)] if dataclasses.is_dataclass(config) else []
    types = typing.get_type_hints(type(config))
    values: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    for path, value in changes.items():
        head, _, rest = path.partition(".")
        if head not in fields:
            raise ConfigError(f"{prefix}{path}: no field {head!r}{_instead(config, head, fields)}")
        if rest:
            inner.setdefault(head, {})[rest] = value
        else:
            values[head] = _given(value, types[head], prefix + path)
    for head, below in inner.items():
        values[head] = _replace(values.get(head, getattr(config, head)), below, f"{prefix}{head}.")
    return dataclasses.replace(config, **values)  # pyright: ignore[reportArgumentType]


def nearest_divisor(number: int, wanted: int) -> int:
    """The divisor of `number` nearest to `wanted`."""
    return min((d for d in range(1, number + 1) if number % d == 0), key=lambda d: abs(d - wanted))
