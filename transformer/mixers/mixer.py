"""Mixers: how the tokens of a sequence exchange information, what a mixer may know, and what it hands back."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
from flax import nnx

from transformer.core.errors import ConfigError
from transformer.core.modules import Parameters, at
from transformer.core.parameters import OwnParams, Parameter
from transformer.core.values import Variant
from transformer.functional.cache import KeyValue, Memory, append
from transformer.functional.masks import Mask, Tokens

if TYPE_CHECKING:
    from transformer.models.config import ModelConfig


class Source(NamedTuple):
    """The source that a decoder attends to: states, or the keys and values that were made of them."""

    tokens: Tokens
    states_BSD: jax.Array | None = None
    keys_values: KeyValue | None = None


class Shared(NamedTuple):
    """What attention in one layer hands on to later layers."""

    scores: jax.Array | None = None
    """`transformer.functional.attention.Attended.scores` of the previous layer."""
    values: jax.Array | None = None
    """(B, L, G, K) of the first layer."""
    keys_values: KeyValue | None = None
    """The keys and values that the previous layer attended to."""
    token_values: jax.Array | None = None
    """(B, L, G, K) of a table of the tokens, the same in all layers."""
    token_ids: jax.Array | None = None
    """(B, L): the tokens, for tables of values that layers own."""


OF_TOKENS = ("token_values", "token_ids")
"""What of `Shared` a model of tokens hands to its first layer."""


class Writing(NamedTuple):
    """The memory of a sublayer, and where new tokens go in slots of it."""

    memory: Any
    """What the sublayer remembers of tokens read before (`Mixer.memory`); of a block, all of these by name."""
    new_slots: jax.Array
    """The slots of the new tokens, from `transformer.functional.cache.slots_of`."""
    crowded: bool
    """Whether the last of them overwrite slots that the first still attend to (`append`)."""

    def append(self, array: jax.Array, new: jax.Array, *, axis: int) -> tuple[jax.Array, jax.Array]:
        """What the new tokens may attend to, and the array of the memory with them."""
        return append(array, new, self.new_slots, axis=axis, crowded=self.crowded)


class Context(NamedTuple):
    """What every block is given besides the stream, in one pass through a stack."""

    tokens: Tokens
    """Positions and segments of the stream's tokens."""
    mask: Mask | None = None
    """Who may see whom: the model's direction, padding, documents and beams."""
    position_params: Any = None
    """Parameters of the positional scheme that all layers share."""
    remap: Callable[[jax.Array], jax.Array] | None = None
    """What the positional scheme takes in place of positions 0, 1, …, a function of them; None: these themselves."""
    source: Source | None = None
    """The source of an encoder-decoder."""
    slots: Tokens | None = None
    """What attention attends to, where that is more than `tokens`: a cache, or an earlier segment."""
    writing: Writing | None = None
    """The memory to read and to extend; None outside of decoding."""
    shared: Shared = Shared()
    """What earlier layers handed on."""
    first: jax.Array | bool = True
    """Whether this is the first layer, to which nothing is handed on."""
    earlier_BMD: jax.Array | None = None
    """This layer's inputs to attention for the previous segment's tokens, which come first in `slots`."""

    @property
    def keys(self) -> Tokens:
        """What attention attends to."""
        return self.tokens if self.slots is None else self.slots

    def positions_of(self, tokens: Tokens) -> jax.Array:
        """Positions as the positional scheme takes them."""
        return tokens.positions if self.remap is None else self.remap(tokens.positions)


class Aux(NamedTuple):
    """What a sublayer or block returns besides its output."""

    memory: Any = None
    """The memory with these tokens, of a block those of its sublayers by name; None where nothing is remembered."""
    shared: Shared | None = None
    """What later layers may use."""
    penalty: jax.Array | float = 0.0
    """What is added to the loss, such as the imbalance of experts."""
    earlier_BMD: jax.Array | None = None
    """The states the next segment attends to; None unless `Context.earlier_BMD` was given."""


class Mixer(Variant):
    """How tokens exchange information: a sublayer of every block. A new one is a frozen dataclass.

    The least it defines is `parameters` and `__call__`, and where a decoder has to remember, `memory`. One with modules
    of its own defines `build` instead, which returns a module that is called as `MixerLayer` is.
    """

    sublayer: ClassVar[str | None] = None
    """Name of its parameters and activations in a block; None: its own name."""
    causal: ClassVar[bool | None] = None
    """True: it reads from left to right only; False: every token is mixed with all others; None: the mask decides."""
    takes_masks: ClassVar[bool] = False
    """Whether a caller may give any mask; otherwise the direction of the model, padding and documents decide."""
    sees_all: ClassVar[bool] = True
    """Whether a token depends on every token that the mask allows."""
    relative: ClassVar[bool] = True
    """Whether it depends on positions only through their distances."""
    ordered: ClassVar[bool] = True
    """Whether it distinguishes the order of tokens without any positional scheme."""
    mixes_tokens: ClassVar[bool] = False
    """Whether packed documents of one row see each other."""
    shares: ClassVar[str | None] = None
    """The field of `Shared` that it takes over from earlier layers."""

    def check(self, model: "ModelConfig") -> None:
        """Raise `ConfigError` where it does not fit the model, as one layer sees it."""

    def alone(self) -> "Mixer":
        """What it is in a layer that takes over nothing from earlier ones."""
        return self

    def span(self, model: "ModelConfig") -> int | None:
        """Number of latest tokens whose slots a causal model needs; None: all, 1: none but the token's own."""
        return None

    @property
    def first_kept(self) -> int:
        """Number of first tokens whose slots a causal model needs for ever."""
        return 0

    def memory(self, model: "ModelConfig", batch_size: int, slots: int, dtype: Any) -> Memory | None:
        """The empty memory of one sublayer of a decoder; None: no earlier token is read.

        Raises:
          ConfigError: the mixer does not define it.
        """
        raise ConfigError(
            f"model.mixer: {self.name} defines no memory, so it cannot decode; None is for no earlier tokens"
        )

    def parameters(self, model: "ModelConfig") -> dict[str, Parameter]:
        """The parameters it owns in every layer, by name."""
        return {}

    def num_maps(self, model: "ModelConfig") -> int:
        """Number of attention maps within, to whose scores or queries and keys the model's position applies."""
        return 0

    def build(self, model: "ModelConfig", *, key: jax.Array) -> nnx.Module:
        """The module of one layer."""
        return MixerLayer(self, model, key=key)

    def __call__(self, x_BLD: jax.Array, context: Context, params: OwnParams) -> tuple[jax.Array, Memory | None]:
        """(the output (B, L, D), the memory with these tokens where `context.writing` has one)."""
        raise NotImplementedError(f"{type(self).__name__} defines neither __call__(x, context, params) nor build")


class MixerLayer(nnx.Module):
    """A mixer with its parameters."""

    def __init__(self, mixer: Mixer, model: "ModelConfig", *, key: jax.Array):
        self.mixer = mixer
        self.params = Parameters(mixer.parameters(model), key=at(key, "params"))

    def __call__(self, x_BLD: jax.Array, *, context: Context, key: jax.Array | None = None) -> tuple[jax.Array, Aux]:
        """The output (B, L, D), and the memory; a key turns dropout on."""
        made = self.mixer(x_BLD, context, self.params())
        if not isinstance(made, tuple) or len(made) != 2:
            given = "an array" if isinstance(made, jax.Array) else type(made).__name__
            raise ConfigError(f"{self.mixer}: returns {given}, not (the output, the memory or None)")
        return made[0], Aux(made[1])
