"""The source code of variants from outside the package, because an edited variant is a different choice."""

import hashlib
import inspect
from types import CodeType, FunctionType
from typing import Any

from transformer.core.contents import contents

PACKAGE = __name__.partition(".")[0]


def source_of(cls: type) -> str:
    """The functions and plain class attributes a class defines, as text; empty for a class of this package.

    Fields are left out: a config says them. Functions typed into an interpreter have no source: their code stands in.
    """
    if cls.__module__.partition(".")[0] == PACKAGE:
        return ""
    texts, fields = [], inspect.get_annotations(cls)
    for name, value in vars(cls).items():
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if inspect.isfunction(function):
            texts.append(_text_of(function))
        elif not name.startswith("_") and name not in fields:
            texts.append(f"{name} = {value!r}\n")
    return "".join(texts)


def _text_of(function: FunctionType) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return f"{function.__name__}: {_code(function.__code__)}\n"


def _code(code: CodeType) -> str:
    """What is done, without where it stands."""
    constants = ", ".join(map(_constant, code.co_consts))
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} ({constants})"


def _constant(value: Any) -> str:
    if isinstance(value, frozenset):  # in an order of its own in every process
        return repr(sorted(map(repr, value)))
    return _code(value) if isinstance(value, CodeType) else repr(value)


def sources(config: Any) -> dict[str, str]:
    """sha256 of the source (`source_of`) of every class in a config or a sequence, by name, where there is one."""
    found: dict[str, str] = {}
    for value in contents(config):
        text = "".join(getattr(cls, "_source", "") for cls in type(value).__mro__)
        if text:
            found[type(value).__qualname__] = hashlib.sha256(text.encode()).hexdigest()
    return dict(sorted(found.items()))
