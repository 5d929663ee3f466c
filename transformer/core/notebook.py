"""How values show in a notebook."""

import dataclasses
from typing import Any


def without_defaults(value: Any) -> str:
    """The expression that makes a dataclass, without the fields that are at their default."""
    own = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.repr}
    defaults = {field.name: field.default for field in dataclasses.fields(value)}
    changed = [f"{name}={given!r}" for name, given in own.items() if given != defaults[name]]
    return f"{type(value).__qualname__}({', '.join(changed)})"


class ShownAsText:
    """Shows as `str` says, and not with all fields: configs are a page, data is thousands of numbers."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))
