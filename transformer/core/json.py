"""The JSON form of configs and values: every field of every value, so that a changed default is a changed config."""

import dataclasses
import hashlib
import json
import typing
from collections.abc import Mapping
from typing import Any

from transformer.core.checks import allows_none, check_type, hints, item_of, plain_of, variant_of
from transformer.core.errors import ConfigError, nearest
from transformer.core.values import Variant, make

LATER = "later"


def later(default: Any) -> Any:
    """A field that a class got after values of it had been hashed: at its default it is not in the JSON form, which is
    that of before."""
    return dataclasses.field(default=default, metadata={LATER: True})


def to_json(value: Any) -> Any:
    """Plain JSON of a config: every field of every value, so that a changed default is a changed config."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        types = hints(type(value))
        said = [
            f for f in dataclasses.fields(value) if not f.metadata.get(LATER) or getattr(value, f.name) != f.default
        ]
        fields = {f.name: to_json_as(types[f.name], getattr(value, f.name)) for f in said}
        return {"variant": value.name, **fields} if isinstance(value, Variant) else fields
    if isinstance(value, tuple | list):
        return [to_json(v) for v in value]
    if isinstance(value, Mapping):
        return {name: to_json(one) for name, one in value.items()}
    return value


def to_json_as(declared: Any, value: Any) -> Any:
    """`to_json` where a type is declared: whole numbers of a float, alone or in a tuple, are floats, as they are when
    they are read, and a value of a subclass has the name of its class as `kind`."""
    if type(value) is int and plain_of(declared) & {int, float} == {float}:
        return float(value)
    if isinstance(value, tuple) and declared == tuple[float, ...]:
        return [float(one) for one in value]
    data = to_json(value)
    plain = dataclasses.is_dataclass(value) and not isinstance(value, Variant)
    return {"kind": type(value).__name__, **data} if plain and type(value) is not declared else data


def fingerprint(value: Any) -> str:
    """sha256 of the canonical JSON of a config, a tuple of replicas, or plain JSON data; else raises TypeError."""
    text = json.dumps(to_json(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


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
            hint = f"{nearest(str(data['variant']), known)}; one of your own is known once imported (--import FILE.py)"
            raise ConfigError(f"{where}: unknown {cls.__name__.lower()} {data['variant']!r}{hint}")
        cls, data = known[data["variant"]], {k: v for k, v in data.items() if k != "variant"}
    if not dataclasses.is_dataclass(cls):
        return _from_container(cls, data, where)
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: {data!r} is not an object with fields")
    if "kind" in data and family is None:
        known = _subclasses(typing.cast(type, cls))
        if not isinstance(data["kind"], str) or data["kind"] not in known:
            raise ConfigError(f"{where}: unknown kind {data['kind']!r}{nearest(str(data['kind']), known)}")
        cls, data = known[data["kind"]], {k: v for k, v in data.items() if k != "kind"}
    types = hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    if unknown := [k for k in data if k not in fields]:
        raise ConfigError(f"{where}: unknown field {unknown[0]!r}{nearest(unknown[0], fields)}")
    return make(cls, {k: from_json(types[k], v, f"{where}.{k}") for k, v in data.items()})


def _from_container(cls: Any, data: Any, where: str) -> Any:
    """`from_json` of a list, an object with any names, or a value that may be None; of anything else its type."""
    if data is not None and allows_none(cls) and len(typing.get_args(cls)) == 2:
        return from_json(next(one for one in typing.get_args(cls) if one is not type(None)), data, where)
    origin, parameters = typing.get_origin(cls), typing.get_args(cls)
    if origin is list and isinstance(data, list):
        (item,) = parameters
        plain = plain_of(item)  # nearly all: a run has hundreds of numbers
        return [one if type(one) in plain else from_json(item, one, f"{where}[{i}]") for i, one in enumerate(data)]
    if origin is dict and isinstance(data, dict):
        return {name: from_json(parameters[1], one, f"{where}.{name}") for name, one in data.items()}
    return check_type(data, cls, where)
