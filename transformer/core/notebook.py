"""How values show in a notebook."""

import dataclasses
from typing import Any


def without_defaults(self: Any) -> str:
    """The expression that makes a dataclass, without the fields that are at their default."""
    own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.repr}
    defaults = {field.name: field.default for field in dataclasses.fields(self)}
    changed = [f"{name}={given!r}" for name, given in own.items() if given != defaults[name]]
    return f"{type(self).__qualname__}({', '.join(changed)})"


class ShownAsText:
    """Shown by its `str`, without all fields: configs are a page, data is thousands of numbers."""

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        cls.__repr__ = cls.__repr__  # a dataclass makes none where the class has one

    def __repr__(self) -> str:
        return str(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))
