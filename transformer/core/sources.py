"""The source code of variants from outside the package, because an edited variant is a different choice."""

import ast
import contextlib
import hashlib
import inspect
import sysconfig
import textwrap
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any, TypeGuard

import numpy as np

from transformer.core.contents import contents

PACKAGE = __name__.partition(".")[0]
INSTALLED = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
GENERATED = ("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__")
"""Methods that a dataclass makes."""


def source_of(cls: type) -> str:
    """The functions and plain class attributes a class defines, as text; empty for a class of this package.

    Fields are left out, which a config says, and comments, docstrings and layout, which change nothing. Functions typed
    into an interpreter have no source: their code stands in.
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
        source = inspect.getsource(function)
    except (OSError, TypeError):
        return f"{function.__name__}: {_code(function.__code__)}\n"
    try:
        tree = ast.parse(textwrap.dedent(source))
    except SyntaxError:  # a function within an expression
        return source
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return f"{ast.unparse(tree)}\n"


def _code(code: CodeType) -> str:
    """What is done, without where it stands."""
    constants = ", ".join(map(_constant, code.co_consts))
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} ({constants})"


def _constant(value: Any) -> str:
    if isinstance(value, frozenset):  # in an order of its own in every process
        return repr(sorted(map(repr, value)))
    return _code(value) if isinstance(value, CodeType) else repr(value)


def used_by(cls: type) -> dict[str, str]:
    """What the functions of a class use of the files they are in, at any depth, by name.

    That is the code of other functions and plain values, as they are now; what is installed is left out.
    """
    found: dict[str, str] = {}
    waiting = [function for each in cls.__mro__ for function in _functions(each)]
    while waiting:
        function = waiting.pop()
        for name, value in _names(function):
            where = f"{function.__module__}.{name}"
            if where in found:
                continue
            if _is_own(value):
                found[where] = _code(value.__code__)
                waiting.append(value)
            elif isinstance(value, np.ndarray):
                found[where] = f"{value.dtype}{value.shape}{hashlib.sha256(value.tobytes()).hexdigest()}"
            elif _plain(value):
                found[where] = repr(value)
    return dict(sorted(found.items()))


def _is_own(value: Any) -> TypeGuard[FunctionType]:
    """Whether something is a function of one's own: of neither this package nor what is installed."""
    if not isinstance(value, FunctionType) or (value.__module__ or "").partition(".")[0] == PACKAGE:
        return False
    return not value.__code__.co_filename.startswith(INSTALLED)


def _functions(cls: type) -> Iterator[FunctionType]:
    """The functions of one's own that a class defines, without what a dataclass makes."""
    for name, value in vars(cls).items():
        function = inspect.unwrap(getattr(value, "fget", None) or getattr(value, "__func__", value))
        if _is_own(function) and not (name in GENERATED and function.__code__.co_filename.startswith("<")):
            yield function


def _names(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """The global names and those of enclosing functions that a function mentions, with their values."""
    codes = [function.__code__]
    for code in codes:
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
        for name in code.co_names:
            if name in function.__globals__ and not name.startswith("__"):
                yield name, inspect.unwrap(function.__globals__[name])
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # of a name that has no value yet
            if not name.startswith("__"):
                yield name, inspect.unwrap(cell.cell_contents)


def _plain(value: Any) -> bool:
    several = isinstance(value, tuple) and all(map(_plain, value))
    return several or isinstance(value, int | float | complex | str | bytes | None)


def sources(config: Any) -> dict[str, str]:
    """sha256 of the source of every class in a config or a sequence, by name, where there is one.

    That is its own (`source_of`) with what it uses (`used_by`).
    """
    found: dict[str, str] = {}
    for own in dict.fromkeys(map(type, contents(config))):
        text = "".join(getattr(cls, "_source", "") for cls in own.__mro__)
        if text:
            text += "".join(f"{name}: {used}\n" for name, used in used_by(own).items())
            of_same_name = found.get(own.__qualname__, "")
            found[own.__qualname__] = hashlib.sha256((of_same_name + text).encode()).hexdigest()
    return dict(sorted(found.items()))


Code = tuple[tuple[str, str], ...]


def code_of(*values: Any) -> Code:
    """`sources` as a key of a cache: another one after an edit of a class of one's own, or of what it uses."""
    return tuple(sources(values).items())
