"""Positional schemes that add a vector of each position."""

from dataclasses import dataclass, replace

import jax.numpy as jnp

from transformer.core.checks import check_positive
from transformer.core.parameters import Normal, Parameter
from transformer.functional import positions
from transformer.positions.position import Position


@dataclass(frozen=True)
class Sinusoidal(Position):
    """Fixed sines and cosines added to the embedding (Vaswani et al. 2017, section 3.5)."""

    base: float = 10_000.0
    """Base of the frequencies base^(-2i/D)."""
    interleaved: bool = True
    """Whether sines and cosines alternate, as in the paper; otherwise sines come first, as in its authors' code and
    in Marian, whose frequencies are base^(-i/(D/2 - 1)), however."""

    def __post_init__(self):
        check_positive(self, "base")

    def recipe(self, d_model):
        return {"model.embedding.scaled": True, "model.embedding.initializer": Normal(d_model**-0.5)}  # section 3.4

    def to_embedding(self, positions_BL, d_model, params):
        return positions.sinusoidal(positions_BL, d_model, self.base, interleaved=self.interleaved)


@dataclass(frozen=True)
class StepSinusoidal(Position):
    """Sinusoids of the position plus those of the number of the block, from 1, added to the stream before every block.

    (Universal Transformer, Dehghani et al. 2018, equations 6 and 7; its blocks share their parameters, which is
    `distinct_layers=1`.)
    """

    name = "step_sinusoidal"
    base: float = 10_000.0
    """Base of the frequencies base^(-2i/D)."""

    def __post_init__(self):
        check_positive(self, "base")

    def to_block(self, positions_BL, layer, d_model, params):
        steps_11 = jnp.full((1, 1), layer + 1, jnp.int32)
        place, step = (positions.sinusoidal(at, d_model, self.base) for at in (positions_BL, steps_11))
        return place + step


@dataclass(frozen=True)
class Sinusoidal2D(Position):
    """Sinusoids of the row in one half of the features, of the column in the other (He et al. 2021, MAE)."""

    name = "sinusoidal_2d"
    base: float = 10_000.0
    """Base of the frequencies."""
    columns: int = 1
    """Patches in a row of the image; a vision model sets it."""
    first: int = 0
    """Position of the first patch; tokens before it are in rows -1, -2, …, as if there were patches."""

    def __post_init__(self):
        check_positive(self, "base", "columns")

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
    """Sinusoids added to the input of the queries and keys of every layer, but not of the values.

    (Shortformer, Press et al. 2020, section 5; DETR, Carion et al. 2020.)
    """

    name = "query_key_sinusoidal"
    base: float = 10_000.0
    """Base of the frequencies base^(-2i/D)."""
    enters_queries = True

    def __post_init__(self):
        check_positive(self, "base")

    def to_query_key_input(self, positions_BL, d_model, params):
        return positions.sinusoidal(positions_BL, d_model, self.base)


@dataclass(frozen=True)
class Learned(Position):
    """One trained vector per position below `max_length` (Gehring et al. 2017)."""

    std: float = 0.02
    """Standard deviation of the initial vectors."""
    extrapolates = False

    def parameters(self, d_model, num_heads, max_length):
        return {"table": Parameter((max_length, d_model), Normal(self.std))}

    def to_embedding(self, positions_BL, d_model, params):
        return params["table"].at[positions_BL].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)
