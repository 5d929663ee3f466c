"""How values show in a notebook."""

from typing import Any


class ShownAsText:
    """Shows as `str` says, and not with all fields: configs are a page, data is thousands of numbers."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))
