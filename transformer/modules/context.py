"""What the sublayers of a block may know besides their input, and what they hand back besides their output."""

from typing import Any, NamedTuple

import jax

from transformer.functional.cache import KeyValue
from transformer.functional.masks import Mask, Tokens


class Memory(NamedTuple):
    """The source that a decoder attends to: states, or the keys and values that were made of them."""

    tokens: Tokens
    states_BSD: jax.Array | None = None
    keys_values: KeyValue | None = None


class Carried(NamedTuple):
    """What the attention of one layer leaves to those after it."""

    scores: jax.Array | None = None
    """As `transformer.functional.attention` returns them, of the layer before."""
    values: jax.Array | None = None
    """(B, L, G, K) of the first layer."""
    memory: KeyValue | None = None
    """What the layer before attended to."""


class Context(NamedTuple):
    """Of one pass through a stack."""

    tokens: Tokens
    """Of the input."""
    mask: Mask | None = None
    """Of self-attention."""
    position_params: Any = None
    """Parameters of the positional scheme that all layers share."""
    places: jax.Array | None = None
    """What positions 0, 1, … are replaced by in the positional scheme, where training randomizes them."""
    memory: Memory | None = None
    past: KeyValue | None = None
    """Keys and values of tokens read before; None attends to the input alone."""
    slots: Tokens | None = None
    """Of what is attended to, where there is a past."""
    carried: Carried = Carried()
    """From the layers before."""
    first: jax.Array | bool = True
    """Whether there are none."""
    slot_places: jax.Array | None = None
    """The slots of these tokens, from `transformer.functional.cache.places_of`."""
    crowded: bool = False
    """Whether they push out of the slots what some of them still need (`append`)."""
    earlier_BMD: jax.Array | None = None
    """What attention read in this layer for the tokens before these, which come first in `slots`."""


class Kept(NamedTuple):
    """Of one sublayer or block."""

    past: KeyValue | None = None
    """The past with the keys and values of these tokens."""
    carried: Carried | None = None
    """What later layers may take over."""
    penalty: jax.Array | float = 0.0
    """What is added to the loss, such as the imbalance of experts."""
    earlier_BMD: jax.Array | None = None
    """Of the next segment, where there was one of this."""
