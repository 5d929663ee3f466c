"""Positional schemes: what they add to the embedding, to queries and keys, or to the scores."""

import abc
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from transformer.config.parameters import Normal, Parameter
from transformer.config.variant import Variant
from transformer.functional import positions
from transformer.functional.biases import Bias
from transformer.functional.masks import Tokens

ScoreFunction = Callable[[jax.Array], jax.Array]


class Position(Variant, abc.ABC):
    """A positional scheme. Each place where positions can enter is one method; the default is nowhere.

    `positions_BL` is (B or 1, L) int32.
    """

    extrapolates: ClassVar[bool] = True
    """Whether positions past `max_length` have a meaning."""
    enters_queries: ClassVar[bool] = False
    """Whether it enters in products of queries."""
    relative: ClassVar[bool] = False
    """Whether only distances count: all positions may be moved together."""
    scaled: ClassVar[bool] = False
    """Whether the factor on q·k multiplies its bias too, which is a product of queries."""
    orders: ClassVar[bool] = True
    """Whether it tells tokens apart by their position."""
    fades: ClassVar[bool] = False
    """Whether its bias falls with distance from the beginning."""

    @property
    def biased(self) -> bool:
        """Whether it adds to the scores or changes them."""
        return self._defines("bias", "score", "memory_bias")

    @property
    def remembers(self) -> bool:
        """Whether a number for each map of attention is kept with every key."""
        return self._defines("key_features")

    @property
    def rescores(self) -> bool:
        """Whether it needs all scores of a query at once, so that they have to be formed."""
        return self._defines("score")

    @property
    def moves(self) -> bool:
        """Whether training replaces positions by others."""
        return self._defines("training_positions")

    def _defines(self, *names: str) -> bool:
        return any(getattr(type(self), name) is not getattr(Position, name) for name in names)

    def enters_layers(self, config: Any) -> bool:
        """Whether a layer can have it and others not: nothing of it stands outside of the layers."""
        shared = self.parameters(config.d_model, config.num_heads, config.max_length)
        return not shared and not self.enters_embedding()

    def enters_embedding(self) -> bool:
        """Whether it is added to the embedding."""
        return self._defines("to_embedding")

    def check(self, head_dim: int) -> None:
        """Raise `ConfigError` where the scheme does not fit the head size."""

    def on_grid(self, columns: int, first: int) -> "Position":
        """The scheme for image patches, row by row, `columns` to a row; the first patch has position `first`."""
        return self

    def parameters(self, d_model: int, num_heads: int, max_length: int) -> dict[str, Parameter]:
        """The parameters it owns, by name, shared by all layers; `num_heads` counts maps of attention."""
        return {}

    def layer_parameters(self, num_heads: int, head_dim: int, d_model: int) -> dict[str, Parameter]:
        """The parameters it owns in every layer, by name."""
        return {}

    def training_positions(self, length: int, key: jax.Array) -> jax.Array | None:
        """What positions 0, 1, … are replaced by while training, (length,) int32; None: nothing.

        Raises:
          ConfigError: there are not as many.
        """
        return None

    def to_embedding(self, positions_BL: jax.Array, d_model: int, params) -> jax.Array | None:
        """(B or 1, L, D) float32 that is added to the token embedding."""
        return None

    def to_query_key_input(self, positions_BL: jax.Array, d_model: int, params) -> jax.Array | None:
        """(B or 1, L, D) float32 that is added to the input of the query and key projections of every layer."""
        return None

    def to_query(self, q_BLHK: jax.Array, positions_BL: jax.Array, params) -> jax.Array:
        """Queries with their position in them."""
        return q_BLHK

    def to_key(self, k_BLHK: jax.Array, positions_BL: jax.Array, params) -> jax.Array:
        """Keys with their position in them."""
        return k_BLHK

    def bias(self, q_BLHK: jax.Array, causal: bool, params) -> Bias | None:
        """A value added to the scaled scores (where `scaled`, before), one number a head; it may depend on queries."""
        return None

    def score(self, q_BLHK: jax.Array, queries: Tokens, keys: Tokens, in_slots: bool, params) -> ScoreFunction | None:
        """A function of all scaled scores (B, G, H/G, L, S) before the bias; `in_slots` as in `memory_bias`.

        Queries have the factor on q·k in them here.
        """
        return None

    def key_features(self, x_BLD: jax.Array, params) -> jax.Array:
        """(B, L, H) float32 of every token, which are kept with its keys."""
        raise NotImplementedError(f"{self.name} remembers, and does not define key_features")

    def memory_bias(self, features_BSH: jax.Array, queries: Tokens, keys: Tokens, in_slots: bool) -> Bias:
        """A value added to the scaled scores, made of what was kept.

        `in_slots`: the keys lie in the slots of a cache, in any order, and the queries are among them; otherwise
        queries and keys are the same tokens in their order.
        """
        raise NotImplementedError(f"{self.name} remembers, and does not define memory_bias")


@dataclass(frozen=True)
class NoPosition(Position):
    """No positional encoding; a causal mask still tells positions apart (Kazemnejad et al. 2023)."""

    name = "none"
    relative = True
    orders = False


@dataclass(frozen=True)
class Sinusoidal(Position):
    """Fixed sines and cosines added to the embedding (Vaswani et al. 2017, section 3.5)."""

    base: float = 10_000.0
    interleaved: bool = True
    """Whether sines and cosines take turns, as in the paper; otherwise sines come first (its authors' code; Marian)."""

    def to_embedding(self, positions_BL, d_model, params):
        return positions.sinusoidal(positions_BL, d_model, self.base, interleaved=self.interleaved)


@dataclass(frozen=True)
class Sinusoidal2D(Position):
    """Sinusoids of the row in one half of the features, of the column in the other (He et al. 2021, MAE)."""

    name = "sinusoidal_2d"
    base: float = 10_000.0
    columns: int = 1
    """Patches in a row of the image; a vision model sets it."""
    first: int = 0
    """Position of the first patch; what stands before it has row -1."""

    def on_grid(self, columns, first):
        return replace(self, columns=columns, first=first)

    def to_embedding(self, positions_BL, d_model, params):
        row, column = jnp.divmod(positions_BL - self.first, self.columns)
        half = d_model // 2
        return jnp.concatenate(
            [positions.sinusoidal(row, half, self.base), positions.sinusoidal(column, d_model - half, self.base)], -1
        )


@dataclass(frozen=True)
class QueryKeySinusoidal(Position):
    """Sinusoids that enter the queries and keys of every layer and never the values.

    (Shortformer, Press et al. 2020, section 5; DETR, Carion et al. 2020.)
    """

    name = "query_key_sinusoidal"
    base: float = 10_000.0
    enters_queries = True

    def to_query_key_input(self, positions_BL, d_model, params):
        return positions.sinusoidal(positions_BL, d_model, self.base)


@dataclass(frozen=True)
class Learned(Position):
    """One trained vector per position below `max_length` (Gehring et al. 2017)."""

    std: float = 0.02
    extrapolates = False

    def parameters(self, d_model, num_heads, max_length):
        return {"table": Parameter((max_length, d_model), Normal(self.std))}

    def to_embedding(self, positions_BL, d_model, params):
        return params["table"].at[positions_BL].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)
