"""What the sublayers of a block may know besides their input, and what they hand back besides their output."""

from typing import Any, NamedTuple

import jax

from transformer.functional.cache import KeyValue, append
from transformer.functional.masks import Mask, Tokens


class Source(NamedTuple):
    """The source that a decoder attends to: states, or the keys and values that were made of them."""

    tokens: Tokens
    states_BSD: jax.Array | None = None
    keys_values: KeyValue | None = None


class Carried(NamedTuple):
    """What attention in one layer hands on to later layers."""

    scores: jax.Array | None = None
    """`transformer.functional.attention.Attended.scores` of the previous layer."""
    values: jax.Array | None = None
    """(B, L, G, K) of the first layer."""
    keys_values: KeyValue | None = None
    """The keys and values that the previous layer attended to."""
    token_values: jax.Array | None = None
    """(B, L, G, K) of a table of the tokens, the same in all layers."""


class Writing(NamedTuple):
    """The cache of a layer, and where new tokens go in it."""

    past: KeyValue
    """Keys and values of tokens read before."""
    new_slots: jax.Array
    """The slots of the new tokens, from `transformer.functional.cache.places_of`."""
    crowded: bool
    """Whether the last of them overwrite slots that the first still attend to (`append`)."""

    def append(self, array: jax.Array, new: jax.Array, *, axis: int) -> tuple[jax.Array, jax.Array]:
        """What the new tokens may attend to, and the array of the cache with them."""
        return append(array, new, self.new_slots, axis=axis, crowded=self.crowded)


class Context(NamedTuple):
    """What every block is given besides the stream, in one pass through a stack."""

    tokens: Tokens
    """Positions and segments of the stream's tokens."""
    mask: Mask | None = None
    """The mask of self-attention."""
    position_params: Any = None
    """Parameters of the positional scheme that all layers share."""
    places: jax.Array | None = None
    """What the positional scheme uses in place of positions 0, 1, …, where training randomizes them."""
    source: Source | None = None
    """The source of an encoder-decoder."""
    slots: Tokens | None = None
    """What self-attention attends to, where that is more than `tokens`: a cache, or an earlier segment."""
    writing: Writing | None = None
    """Of a layer that keeps keys and values in a cache; None attends to the input alone, or to what is carried."""
    carried: Carried = Carried()
    """What earlier layers handed on."""
    first: jax.Array | bool = True
    """Whether this is the first layer, to which nothing is carried."""
    earlier_BMD: jax.Array | None = None
    """This layer's inputs to attention for the previous segment's tokens, which come first in `slots`."""

    @property
    def own_keys(self) -> bool:
        """Whether self-attention attends to `tokens` alone."""
        return self.slots is None

    @property
    def keys(self) -> Tokens:
        """What self-attention attends to."""
        return self.tokens if self.slots is None else self.slots


class Kept(NamedTuple):
    """What a sublayer or block returns besides its output."""

    past: KeyValue | None = None
    """The cache of the layer with the keys and values of these tokens; None where nothing is written."""
    carried: Carried | None = None
    """What later layers may use."""
    penalty: jax.Array | float = 0.0
    """What is added to the loss, such as the imbalance of experts."""
    earlier_BMD: jax.Array | None = None
    """The states the next segment attends to; None unless `Context.earlier_BMD` was given."""

    def then(self, later: "Kept") -> "Kept":
        """What a sublayer and a later one return together: the later one's where it has any, and both penalties."""
        return Kept(
            self.past if later.past is None else later.past,
            self.carried if later.carried is None else later.carried,
            self.penalty + later.penalty,
            self.earlier_BMD if later.earlier_BMD is None else later.earlier_BMD,
        )
