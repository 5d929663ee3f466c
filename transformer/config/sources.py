"""The source of variants that do not come with the package: one that is edited is another choice."""

import hashlib
import inspect
from typing import Any

PACKAGE = __name__.partition(".")[0]


def source_of(cls: type) -> str:
    """The text of the functions that a class defines; empty for a class of this package, or where there is no text."""
    if cls.__module__.partition(".")[0] == PACKAGE:
        return ""
    texts = []
    for value in vars(cls).values():
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if inspect.isfunction(function):
            try:
                texts.append(inspect.getsource(function))
            except (OSError, TypeError):  # typed into an interpreter
                continue
    return "".join(texts)


def sources(config: Any) -> dict[str, str]:
    """sha256 of the source of every class in a config, or in a sequence, that has one (`source_of`), by its name."""
    found: dict[str, str] = {}
    for value in _values(config):
        text = "".join(getattr(cls, "_source", "") for cls in type(value).__mro__)
        if text:
            found[type(value).__qualname__] = hashlib.sha256(text.encode()).hexdigest()
    return dict(sorted(found.items()))


def _values(value: Any):
    """All dataclasses in a value."""
    if isinstance(value, tuple | list):
        for item in value:
            yield from _values(item)
    elif hasattr(value, "__dataclass_fields__"):
        yield value
        for name in value.__dataclass_fields__:
            yield from _values(getattr(value, name))
