"""Positional schemes: what they add to the embedding, to queries and keys, or to the scores."""

import abc
from dataclasses import dataclass
from typing import Any, ClassVar

import jax

from transformer.core.parameters import Parameter
from transformer.core.values import Variant
from transformer.functional.attention import ScoreFunction
from transformer.functional.biases import Bias
from transformer.functional.masks import Tokens


class Position(Variant, abc.ABC):
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

    @property
    def biased(self) -> bool:
        """Whether it adds a bias to the scores or changes them."""
        return self._defines("bias", "score", "feature_bias")

    @property
    def remembers(self) -> bool:
        """Whether a number for each map of attention is kept with every key (`key_features`)."""
        return self._defines("key_features")

    @property
    def rescores(self) -> bool:
        """Whether `score` needs all scores of a query at once, so that they have to be formed."""
        return self._defines("score")

    @property
    def reads_weights(self) -> bool:
        """Whether the weights of attention have to be formed for it (`to_output`)."""
        return self._defines("to_output")

    @property
    def moves(self) -> bool:
        """Whether training replaces the positions by others (`training_positions`)."""
        return self._defines("training_positions")

    def _defines(self, *names: str) -> bool:
        return any(getattr(type(self), name) is not getattr(Position, name) for name in names)

    def enters_layers(self, config: Any) -> bool:
        """Whether some layers can have it and others not, because nothing of it lies outside of the layers."""
        shared = self.parameters(config.d_model, config.num_heads, config.max_length)
        return not shared and not self.enters_embedding()

    def enters_embedding(self) -> bool:
        """Whether it is added to the embedding, or to the stream before every block."""
        return self._defines("to_embedding", "to_block")

    @property
    def enters_blocks(self) -> bool:
        """Whether it is added to the stream before every block (`to_block`)."""
        return self._defines("to_block")

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

    def training_positions(self, length: int, key: jax.Array) -> jax.Array | None:
        """Positions that replace 0, 1, … in training, (length,) int32; None: those are kept.

        Raises:
          ConfigError: there are fewer than `length`.
        """
        return None

    def to_embedding(self, positions_BL: jax.Array, d_model: int, params) -> jax.Array | None:
        """What is added to the token embedding, (B or 1, L, D) float32, or None."""
        return None

    def to_block(self, positions_BL: jax.Array, layer: int | jax.Array, d_model: int, params) -> jax.Array:
        """What is added to the stream before the block number `layer` from 0, (B or 1, L, D) float32."""
        raise NotImplementedError(f"{self.name} enters blocks, and does not define to_block")

    def to_query_key_input(self, positions_BL: jax.Array, d_model: int, params) -> jax.Array | None:
        """What is added to the input of query and key projections in all layers, (B or 1, L, D) float32, or None."""
        return None

    def to_query(self, q_BLHK: jax.Array, positions_BL: jax.Array, params) -> jax.Array:
        """Queries that carry their position."""
        return q_BLHK

    def to_key(self, k_BLHK: jax.Array, positions_BL: jax.Array, params) -> jax.Array:
        """Keys that carry their position."""
        return k_BLHK

    def bias(self, q_BLHK: jax.Array, causal: bool, params) -> Bias | None:
        """The bias added to the scaled scores (before scaling if `scaled`), or None; it may depend on the queries."""
        return None

    def score(self, q_BLHK: jax.Array, in_slots: bool, params) -> ScoreFunction | None:
        """A function of all scaled scores of a query before the bias, or None; `in_slots` as in `feature_bias`.

        The queries given here are already multiplied by the factor on q·k.
        """
        return None

    def to_output(self, weights_BHLS: jax.Array, queries: Tokens, keys: Tokens, params) -> jax.Array:
        """What is added to the output of every map, (B, L, H, V) float32, from its weights."""
        raise NotImplementedError(f"{self.name} reads the weights, and does not define to_output")

    def key_features(self, x_BLD: jax.Array, params) -> jax.Array:
        """Numbers of every token that are kept with its keys, (B, L, H) float32."""
        raise NotImplementedError(f"{self.name} remembers, and does not define key_features")

    def feature_bias(self, features_BSH: jax.Array, queries: Tokens, keys: Tokens, in_slots: bool) -> Bias:
        """The bias added to the scaled scores, made of the kept numbers (`key_features`).

        `in_slots`: the keys lie in the slots of a cache, in any order, and the queries are among them; otherwise
        queries and keys are the same tokens in their order.
        """
        raise NotImplementedError(f"{self.name} remembers, and does not define feature_bias")


@dataclass(frozen=True)
class NoPosition(Position):
    """No positional encoding; a causal mask still distinguishes positions (Kazemnejad et al. 2023)."""

    name = "none"
    relative = True
    orders = False
