"""What changes from layer to layer."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transformer.core.changes import typed
from transformer.core.errors import ConfigError, nearest
from transformer.core.values import Variant

if TYPE_CHECKING:
    from transformer.models.config import ModelConfig

CHANGING = ("mixer", "feed_forward", "block", "residual", "position")
"""Fields of a model, with all below them, that may change from layer to layer."""


@dataclass(frozen=True)
class Alternate(Variant):
    """A choice that layers take in turn, repeated from the first layer on; a model's pattern is a tuple of these.

    Local and global attention are `alternate('mixer.sparsity', [sliding_window(8), none])` (Gemma 2), a hybrid
    `alternate('mixer', [hgrn, hgrn, hgrn, attention])`, layers without positions
    `alternate('position', [rope, rope, rope, none])` (Yang et al. 2025), experts in every second layer
    `alternate('feed_forward', [dense, top_k])`, Mix-LN of four layers (Li P. et al. 2024)
    `alternate('residual', [post, pre, pre, pre])`, and sublayers left out (Press et al. 2020)
    `alternate('feed_forward', [none, dense])`.
    """

    path: str
    """Dotted path of a field of the model; it begins with mixer, feed_forward, block, residual or position."""
    values: tuple[Any, ...]
    """Its values in turn. A scheme of positions has to act in attention and share no parameters between layers;
    residual connections have the kind of stream that the model's has."""

    def __post_init__(self):
        head = self.path.partition(".")[0] if isinstance(self.path, str) else ""
        if head not in CHANGING:
            raise ConfigError(f"alternate.path: {self.path!r} cannot change{nearest(head, CHANGING)}")
        if not isinstance(self.values, tuple | list) or not self.values:
            raise ConfigError(f"alternate.values: {self.values!r} are no values in turn")
        object.__setattr__(self, "values", tuple(self.values))

    def resolved(self, model: "ModelConfig") -> "Alternate":
        """With values of the type that the model's field has, also where they were given as text or JSON."""
        try:
            return dataclasses.replace(self, values=tuple(typed(model, self.path, value) for value in self.values))
        except ConfigError as error:
            raise ConfigError(f"model.pattern: {error}") from None


def mapped(pattern: Sequence[Alternate], ways: Mapping[str, Callable[[Any], Any]]) -> tuple[Alternate, ...]:
    """The pattern with each value at one of the paths changed in the way of that path."""
    return tuple(
        dataclasses.replace(one, values=tuple(map(ways[one.path], one.values))) if one.path in ways else one
        for one in pattern
    )
