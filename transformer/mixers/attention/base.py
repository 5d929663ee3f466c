"""What attention asks of each of its choices: the base classes, and the sizes that they share."""

import abc
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
from jax.tree_util import Partial

from transformer.core.errors import ConfigError
from transformer.core.parameters import OwnParams, Parameter
from transformer.core.values import Variant
from transformer.functional.attention import Attended, ScoreFunction, Weigh
from transformer.functional.cache import KeyValue
from transformer.functional.masks import Mask, Tokens

if TYPE_CHECKING:
    from transformer.models.config import ModelConfig


class HeadSizes(NamedTuple):
    """Numbers and sizes of the heads of attention."""

    num_heads: int
    """H: query heads."""
    num_kv_heads: int
    """G: key-value heads."""
    head_dim: int
    """K."""
    value_dim: int
    """V: size of a head's output."""


class HeadShape(NamedTuple):
    """What a kind of heads makes of the sizes."""

    widths: dict[str, int]
    """Widths of the projections `query`, `key` and `value`; 0: no projection."""
    num_maps: int
    """Attention maps; differential heads have two each."""
    num_kv_heads: int
    """Key-value heads in the cache."""
    key_size: int
    """Size of queries and keys."""
    value_size: int
    """Size of values."""
    compared_size: int
    """Size K of the vectors whose product is a score, which sets the factor on it."""
    rotary_dim: int
    """How many features of queries and keys, from the first, a positional scheme may change."""


class Heads(Variant):
    """How projections become queries, keys and values of attention maps, and how the maps' outputs are combined."""

    shares_keys: ClassVar[bool] = True
    """Whether groups of query heads may share key-value heads."""

    @property
    def longest(self) -> int | None:
        """Length of the longest sequence, in tokens; None: any."""
        return None

    @property
    def compares(self) -> bool:
        """Whether scores are products of projected queries and keys, into which a position may enter."""
        return True

    def check(self, sizes: HeadSizes) -> None:
        """Raise `ConfigError` where the sizes do not fit."""

    @abc.abstractmethod
    def shape(self, sizes: HeadSizes) -> HeadShape:
        """The maps of heads of these sizes, and what is projected for them."""

    def parameters(self, sizes: HeadSizes, d_model: int) -> dict[str, Parameter]:
        """The parameters it owns in every layer, by name."""
        return {}

    @abc.abstractmethod
    def queries(self, q_BLX: jax.Array, positions_BL: jax.Array, sizes: HeadSizes, params: OwnParams) -> jax.Array:
        """Queries (B, L, maps, key size)."""

    @abc.abstractmethod
    def keys_values(
        self, k_BSX: jax.Array, v_BSX: jax.Array, positions_BS: jax.Array, sizes: HeadSizes, params: OwnParams
    ) -> tuple[jax.Array, jax.Array]:
        """Keys (B, S, kv heads, key size) and values (B, S, kv heads, value size)."""

    def join(self, out_BLHV: jax.Array, x_BLD: jax.Array, sizes: HeadSizes, params: OwnParams) -> jax.Array:
        """The output (B, L, H, V) of each head from the outputs of its maps and the input."""
        return out_BLHV


class Projection(Variant):
    """Which linear layers make the queries, the keys and the values; None takes the input itself, cut into heads."""

    query: ClassVar[str | None] = "query"
    key: ClassVar[str | None] = "key"
    value: ClassVar[str | None] = "value"
    gain: float = 1.0
    """The factor on their initial values."""

    def check(self, d_model: int, sizes: HeadSizes) -> None:
        """Raise `ConfigError` where the shapes do not fit."""
        num_heads, num_kv_heads, head_dim, value_dim = sizes
        if self.value is None and value_dim != head_dim:
            raise ConfigError(
                f"mixer.projection: {self} cuts values of {head_dim} features, and mixer.merge wants {value_dim}; "
                "use merge=none"
            )
        if self.query == self.key and num_heads != num_kv_heads:
            raise ConfigError(
                f"mixer.projection: {self} needs as many key-value heads as query heads, "
                f"not {num_kv_heads} and {num_heads}"
            )
        if self.query is None and num_heads * head_dim != d_model:
            raise ConfigError(
                f"mixer.projection: {self} cuts d_model {d_model} into heads, and {num_heads} heads of {head_dim} "
                f"are {num_heads * head_dim}"
            )


class Scale(Variant):
    """The factor on q·k."""

    def parameters(self, head_dim: int) -> dict[str, Parameter]:
        """The parameters it owns in every layer, by name."""
        return {}

    @abc.abstractmethod
    def __call__(self, head_dim: int, params: OwnParams) -> float | jax.Array: ...


class ScoreMod(Variant):
    """A function of scores scale · q·k, before the bias of the position is added (Dong J. et al. 2024)."""

    positional: ClassVar[bool] = False
    """Whether it reads the tokens, and so is for self-attention alone."""
    relative: ClassVar[bool] = True
    """Whether it depends on positions only through their distances."""

    def parameters(self, num_heads: int) -> dict[str, Parameter]:
        """The parameters it owns in every layer, by name."""
        return {}

    @abc.abstractmethod
    def __call__(self, scores: jax.Array, queries: Tokens | None, keys: Tokens | None, params: OwnParams) -> jax.Array:
        """The scores used, in the shape (B, H, L, S) of those given, for the positions and segments of both sides.

        All scores of a query need not be here: attention may ask for one block of them. A function of a score alone
        (not `positional`, without parameters) may also be asked for logits, of any shape and without tokens.
        """

    def function(self, params: OwnParams) -> ScoreFunction:
        """The same with its parameters, for `attention`: a pytree of them, or a value that a kernel knows."""
        return Partial(self, params=params)


class Normalizer(Variant):
    """How the scores of a query become weights of the values."""

    online: ClassVar[bool] = False
    """Whether it is a softmax, which can be computed block by block."""
    linear: ClassVar[bool] = False
    """Whether weights are products of features of queries and keys, which can be summed token by token."""
    biased: ClassVar[bool] = True
    """Whether a bias of the position may be added to the scores."""
    ordered: ClassVar[bool] = False
    """Whether it depends on the distance of query and key."""
    scaled: ClassVar[bool] = True
    """Whether a factor on the scores changes the weights."""

    def parameters(self, num_heads: int) -> dict[str, Parameter]:
        """The parameters it owns in every layer, by name."""
        return {}

    def features(self, x_BLHK: jax.Array) -> jax.Array:
        """The features of queries or keys whose product is a score."""
        return x_BLHK

    @abc.abstractmethod
    def __call__(self, num_heads: int, params: OwnParams) -> Weigh: ...


class Merge(Variant):
    """How the outputs of the heads become one vector, where that is not concatenation and a projection."""

    def check(self, d_model: int, sizes: HeadSizes) -> None:
        """Raise `ConfigError` where the shapes do not fit."""

    def value_dim(self, d_model: int, head_dim: int) -> int:
        """Size of a head's values."""
        return head_dim

    def width(self, num_heads: int, value_dim: int) -> int:
        """Size of the one vector."""
        return num_heads * value_dim

    @abc.abstractmethod
    def __call__(self, out_BLHK: jax.Array) -> jax.Array:
        """Merges (B, L, H, V) into (B, L, `width`)."""


class Sparsity(Variant):
    """Which tokens self-attention can see, whatever its direction."""

    everywhere: ClassVar[bool] = False
    """Whether it reaches every token."""
    relative: ClassVar[bool] = True
    """Whether only the distance between two tokens matters."""
    mixes_tokens: ClassVar[bool] = False
    """Whether what is attended to depends on all tokens, whatever the mask."""
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    """Fields that may be 0; all other fields are positive."""
    sinks: ClassVar[int] = 0
    """Number of first tokens that a causal model needs too."""

    def __post_init__(self):
        for name, value in vars(self).items():
            least = 0 if name in self.may_be_zero else 1
            if type(value) in (int, float) and value < least:
                raise ConfigError(f"{self.name}.{name}: {value} is less than {least}")

    @property
    def span(self) -> int | None:
        """Number of latest tokens a causal model needs, the size of its cache without the sinks; None: all."""
        return None

    @property
    def longest(self) -> int | None:
        """Length of the longest sequence, in tokens; None: any."""
        return None

    def parameters(self) -> dict[str, Parameter]:
        """The parameters it owns in every layer, by name."""
        return {}

    def mask(self) -> Mask | None:
        """The mask it adds to the model's own; None: none."""
        return None

    def condense(
        self, keys_values: KeyValue, keys: Tokens, batch_size: int, params: OwnParams
    ) -> tuple[KeyValue, Tokens]:
        """What is attended to instead of the tokens' own keys and values, and its `Tokens`."""
        return keys_values, keys


class Sharing(Variant):
    """What attention takes over from earlier layers; the first layer has nothing to take."""

    takes: ClassVar[str]
    """The field of `transformer.mixers.mixer.Shared` that it reads."""
    own_keys_values: ClassVar[bool] = True
    """Whether the layer makes keys and values of its own."""

    def check(self, model: "ModelConfig") -> None:
        """Raise `ConfigError` where it does not fit."""

    def parameters(self, shape: HeadShape, model: "ModelConfig") -> dict[str, Parameter]:
        """The parameters it owns in every layer, by name."""
        return {}

    def scores(self, own: jax.Array, before: jax.Array) -> jax.Array:
        """The scores used, from those of this layer and of the previous one."""
        return own

    def values(self, own: jax.Array, other: jax.Array, x_BSD: jax.Array, params: OwnParams) -> jax.Array:
        """The values used, from those of this layer, and those of the first one or what it takes of the tokens."""
        return own


class Backend(Variant):
    """How attention is computed: the same numbers at another cost."""

    forms_weights: ClassVar[bool] = False
    """Whether it forms all scores and weights, so that they can be returned, dropped out, or changed together."""
    one_size: ClassVar[bool] = False
    """Whether keys and values must have the same size."""
    recurrent: ClassVar[bool] = False
    """Whether it reads from left to right and keeps only a sum over the tokens it has read."""

    def computes(self, normalizer: Normalizer | None) -> bool:
        """Whether it can compute this normalizer; None: softmax."""
        return True

    def changes_scores(self, score_mod: ScoreMod) -> bool:
        """Whether it can apply this function to every score before the scores become weights."""
        return True

    @abc.abstractmethod
    def __call__(self, *arrays: jax.Array, own_keys: bool, **how: Any) -> Attended:
        """`transformer.functional.attention.attention(*arrays, **how)`, in this way.

        Args:
          arrays: queries, keys and values.
          own_keys: whether the keys are those of the queries' own tokens, with nothing from a cache, an earlier
            segment or a source.
          how: the keyword arguments of that function.
        """
