"""What a class says of its fields, in the text below each of them in its source."""

import ast
import dataclasses
import functools
import inspect
import textwrap

WIDTH = 100


@functools.cache
def documented(cls: type) -> dict[str, str]:
    """The text below each field of a dataclass in its source, in one line; that of a base where it has none.

    Classes without a source, such as those typed into an interpreter, say nothing.
    """
    found: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(each):
            continue
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]
        except (OSError, TypeError, SyntaxError):
            continue
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(said))):
                    found[name] = " ".join(said.split())
    return found


def with_fields(text: str | None, cls: type) -> str | None:
    """The docstring of a dataclass, and below it the text of each of its fields."""
    said = documented(cls)
    fields = [field.name for field in dataclasses.fields(cls) if field.name in said]
    if not fields:
        return text
    lines = [
        textwrap.fill(f"{name}: {said[name]}", WIDTH, initial_indent="  ", subsequent_indent="    ") for name in fields
    ]
    return "\n".join([inspect.cleandoc(text or ""), "", "Attributes:", *lines])
