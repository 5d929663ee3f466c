"""What a value is made of: a config, the configs and choices in it, and theirs."""

import dataclasses
from collections.abc import Iterator
from typing import Any


def contents(value: Any) -> Iterator[Any]:
    """All dataclasses in a value, also in tuples and lists, each before those in its fields."""
    if isinstance(value, tuple | list):
        for item in value:
            yield from contents(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield value
        for field in dataclasses.fields(value):
            yield from contents(getattr(value, field.name))
