"""What changes from layer to layer."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from transformer.core.values import Variant
from transformer.feed_forwards.feed_forward import FeedForwardKind
from transformer.mixers.attention.sharing import Carry
from transformer.mixers.attention.sparsity import Reach
from transformer.models.blocks import BlockLayout
from transformer.positions.position import Position
from transformer.residuals.residual import Residual


@dataclass(frozen=True)
class Pattern(Variant):
    """Choices that layers take in turn, repeated from the first layer on; an empty one leaves the model's own.

    Local and global attention are `pattern(reach=[sliding_window(8), full])` (Gemma 2), layers without
    positions `pattern(position=[rope, rope, rope, none])` (Yang et al. 2025), experts in every second layer
    `pattern(feed_forward=[dense, top_k])`, Mix-LN of four layers (Li P. et al. 2024)
    `pattern(residual=[post, pre, pre, pre])`, and sublayers reordered (Press et al. 2020)
    `pattern(block=[attention_only, sequential, feed_forward_only])`.
    """

    reach: tuple[Reach, ...] = ()
    """Reaches of the layers in turn."""
    position: tuple[Position, ...] = ()
    """Positional schemes of the layers; they have to act in attention and share no parameters between layers."""
    residual: tuple[Residual, ...] = ()
    """Residual connections of the layers, all with the kind of stream that the model's has."""
    block: tuple[BlockLayout, ...] = ()
    """Sublayers of the layers."""
    feed_forward: tuple[FeedForwardKind, ...] = ()
    """Kinds of feed-forward sublayers of the layers."""
    carry: tuple[Carry, ...] = ()
    """What the layers take over from earlier ones."""

    def __or__(self, other: "Pattern") -> "Pattern":
        """The choices of both patterns; where both have one, `other`'s."""
        return dataclasses.replace(self, **other._values())

    @property
    def period(self) -> int:
        """Number of layers after which it repeats."""
        return math.lcm(*map(len, self._values().values()))

    def changes(self, layer: int) -> dict[str, Any]:
        """The fields of the model's config that it sets in a layer, with their values."""
        return {name: values[layer % len(values)] for name, values in self._values().items()}

    def _values(self) -> dict[str, tuple[Variant, ...]]:
        return {name: values for name, values in vars(self).items() if values}
