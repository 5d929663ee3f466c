"""Positional schemes: what they add to the embedding, to queries and keys, or to the scores."""

import inspect
from collections.abc import Callable
from typing import ClassVar

import jax

from transformer.core.parameters import Parameter
from transformer.core.values import Variant
from transformer.functional.attention import ScoreFunction
from transformer.functional.biases import Bias
from transformer.functional.masks import Tokens

WAYS = (
    "remap",
    "to_embedding",
    "to_block",
    "to_query_key_input",
    "to_query",
    "to_key",
    "bias",
    "score",
    "key_features",
    "feature_bias",
    "to_output",
)
"""Methods of a positional scheme by which positions enter a model."""
OUTSIDE = frozenset(("remap", "to_embedding", "to_block"))
"""Those that do not concern attention."""


class Position(Variant):
    """A positional scheme. Each way for positions to enter a model is one method; by default none is used.

    `positions_BL` is (B or 1, L) int32.
    """

    extrapolates: ClassVar[bool] = True
    """Whether positions past `max_length` are defined."""
    enters_queries: ClassVar[bool] = False
    """Whether it acts on products with queries."""
    relative: ClassVar[bool] = False
    """Whether only distances matter, so that all positions may be shifted together."""
    scaled: ClassVar[bool] = False
    """Whether its bias is a product with the queries, so that the factor on q·k applies to it too."""
    orders: ClassVar[bool] = True
    """Whether it distinguishes tokens by their position."""
    fades: ClassVar[bool] = False
    """Whether its bias decreases with distance already at initialization."""
    counts_grid: ClassVar[bool] = False
    """Whether layers count rows and columns of patches."""

    acts: ClassVar[frozenset[str]] = frozenset()
    """The ways by which it enters a model: names of the methods that it defines."""

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if not isinstance(inspect.getattr_static(cls, "acts"), property):
            cls.acts = frozenset(name for name in WAYS if getattr(cls, name) is not getattr(Position, name))

    @property
    def biased(self) -> bool:
        """Whether it adds a bias to the scores or changes them."""
        return not self.acts.isdisjoint(("bias", "score", "feature_bias"))

    @property
    def enters_embedding(self) -> bool:
        """Whether it is added to the embedding, or to the stream before every block."""
        return not self.acts.isdisjoint(("to_embedding", "to_block"))

    def enters_layers(self, d_model: int, max_length: int) -> bool:
        """Whether some layers can have it and others not, because nothing of it lies outside of the layers."""
        return not self.parameters(d_model, 1, max_length) and not self.enters_embedding

    def check(self, head_dim: int) -> None:
        """Raise `ConfigError` where the scheme does not fit the head size."""

    def on_grid(self, columns: int, first: int) -> "Position":
        """The scheme for image patches, counted row by row with `columns` in a row; the first has position `first`."""
        return self

    def parameters(self, d_model: int, num_heads: int, max_length: int) -> dict[str, Parameter]:
        """The parameters it owns, by name, shared by all layers; `num_heads` counts maps of attention."""
        return {}

    def layer_parameters(self, num_heads: int, head_dim: int, d_model: int, value_dim: int) -> dict[str, Parameter]:
        """The parameters it owns in every layer, by name; `num_heads` counts maps of attention."""
        return {}

    def remap(self, length: int, key: jax.Array | None) -> Callable[[jax.Array], jax.Array]:
        """A function, itself a pytree, from positions 0, 1, … to those that the scheme takes in their place.

        Args:
          length: the number of tokens that it is for, in evaluation the model's `max_length`.
          key: of training; None in evaluation.

        Raises:
          ConfigError: there are fewer positions than `length`.
        """
        raise NotImplementedError

    def to_embedding(self, positions_BL: jax.Array, d_model: int, params) -> jax.Array:
        """What is added to the token embedding, (B or 1, L, D) float32."""
        raise NotImplementedError

    def to_block(self, positions_BL: jax.Array, layer: int | jax.Array, d_model: int, params) -> jax.Array:
        """What is added to the stream before the block number `layer` from 0, (B or 1, L, D) float32."""
        raise NotImplementedError

    def to_query_key_input(self, positions_BL: jax.Array, d_model: int, params) -> jax.Array:
        """What is added to the input of query and key projections in all layers, (B or 1, L, D) float32."""
        raise NotImplementedError

    def to_query(self, q_BLHK: jax.Array, positions_BL: jax.Array, params) -> jax.Array:
        """Queries that carry their position."""
        return q_BLHK

    def to_key(self, k_BLHK: jax.Array, positions_BL: jax.Array, params) -> jax.Array:
        """Keys that carry their position."""
        return k_BLHK

    def bias(self, q_BLHK: jax.Array, causal: bool, params) -> Bias:
        """The bias added to the scaled scores (before scaling if `scaled`); it may depend on the queries."""
        raise NotImplementedError

    def score(self, q_BLHK: jax.Array, in_slots: bool, params) -> ScoreFunction:
        """A function of all scaled scores of a query before the bias; `in_slots` as in `feature_bias`.

        The queries given here are already multiplied by the factor on q·k.
        """
        raise NotImplementedError

    def to_output(self, weights_BHLS: jax.Array, queries: Tokens, keys: Tokens, params) -> jax.Array:
        """What is added to the output of every map, (B, L, H, V) float32, from its weights."""
        raise NotImplementedError

    def key_features(self, x_BLD: jax.Array, params) -> jax.Array:
        """Numbers of every token that are kept with its keys, (B, L, H) float32."""
        raise NotImplementedError

    def feature_bias(self, features_BSH: jax.Array, queries: Tokens, keys: Tokens, in_slots: bool) -> Bias:
        """The bias added to the scaled scores, made of the kept numbers (`key_features`).

        `in_slots`: the keys lie in the slots of a cache, in any order, and the queries are among them; otherwise
        queries and keys are the same tokens in their order.
        """
        raise NotImplementedError
