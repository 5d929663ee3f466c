"""Positional schemes: what they add to the embedding, to queries and keys, or to the scores."""

import abc
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from transformer.config.parameters import Normal, Parameter
from transformer.config.variant import ConfigError, Variant
from transformer.functional import positions
from transformer.functional.biases import Bias, LinearDistance, alibi_slopes


class Position(Variant, abc.ABC):
    """A positional scheme. Each place where positions can enter is one method; the default is nowhere.

    `positions_BL` is (B or 1, L) int32.
    """

    extrapolates = True
    """Whether positions past `max_length` have a meaning."""

    def check(self, head_dim: int) -> None:
        """Raise `ConfigError` where the scheme does not fit the head size."""

    def on_grid(self, columns: int, first: int) -> "Position":
        """The scheme for image patches, row by row, `columns` to a row; the first patch has position `first`."""
        return self

    def parameters(self, d_model: int, num_heads: int, max_length: int) -> dict[str, Parameter]:
        """The parameters it owns, by name, shared by all layers."""
        return {}

    def to_embedding(self, positions_BL: jax.Array, d_model: int, params) -> jax.Array | None:
        """(B or 1, L, D) float32 that is added to the token embedding."""
        return None

    def to_query_key_input(self, positions_BL: jax.Array, d_model: int, params) -> jax.Array | None:
        """(B or 1, L, D) float32 that is added to the input of the query and key projections of every layer."""
        return None

    def rotate(self, x_BLHK: jax.Array, positions_BL: jax.Array, params) -> jax.Array:
        """Queries or keys with their position in them."""
        return x_BLHK

    def bias(self, num_heads: int, params) -> Bias | None:
        """A value added to the scaled scores."""
        return None


@dataclass(frozen=True)
class NoPosition(Position):
    """No positional encoding; a causal mask still tells positions apart (Kazemnejad et al. 2023)."""

    name = "none"


@dataclass(frozen=True)
class Sinusoidal(Position):
    """Fixed sines and cosines added to the embedding (Vaswani et al. 2017, section 3.5)."""

    base: float = 10_000.0

    def to_embedding(self, positions_BL, d_model, params):
        return positions.sinusoidal(positions_BL, d_model, self.base)


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


@dataclass(frozen=True)
class RoPE(Position):
    """Rotary positions (Su et al. 2021); see `transformer.functional.positions.rotary`."""

    base: float = 10_000.0
    fraction: float = 1.0
    interleaved: bool = False

    def check(self, head_dim):
        size = int(head_dim * self.fraction)
        if size < 2 or size % 2 or size > head_dim:
            raise ConfigError(
                f"rope: fraction {self.fraction} of head_dim {head_dim} is {size} features, not an even number up to it"
            )

    def rotate(self, x_BLHK, positions_BL, params):
        return positions.rotary(
            x_BLHK, positions_BL, base=self.base, fraction=self.fraction, interleaved=self.interleaved
        )


@dataclass(frozen=True)
class ALiBi(Position):
    """A bias that falls linearly with distance (Press et al. 2021)."""

    def bias(self, num_heads, params):
        return LinearDistance(jnp.asarray(alibi_slopes(num_heads), jnp.float32))
