"""A config as lines: dotted path and text form of every setting, as the command line takes them."""

import dataclasses
from typing import Any

from transformer.core.values import Variant, to_text


def settings(config: Any, prefix: str = "") -> dict[str, str]:
    """The text of every setting of a config by its dotted path."""
    found: dict[str, str] = {}
    for field in dataclasses.fields(config):
        value, path = getattr(config, field.name), prefix + field.name
        inner = dataclasses.is_dataclass(value) and not isinstance(value, Variant)
        found |= settings(value, f"{path}.") if inner else {path: value if isinstance(value, str) else to_text(value)}
    return found


def lines(found: dict[str, str]) -> str:
    """One line each."""
    width = max(map(len, found), default=0)
    return "\n".join(f"  {path:{width}}  {text}" for path, text in found.items())


def changed(config: Any, base: Any) -> dict[str, str]:
    """The settings in which a config differs from another one."""
    before = settings(base)
    return {path: text for path, text in settings(config).items() if before.get(path) != text}
