"""Sparsity: which tokens self-attention can see, besides the causal mask."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from einops import rearrange

from transformer.core.arrays import look_up
from transformer.core.errors import ConfigError
from transformer.core.parameters import FanIn, Parameter
from transformer.functional.cache import KeyValue
from transformer.functional.masks import Prefix, Tokens, Window
from transformer.functional.sparse_masks import Blocks, Columns, First, RandomBlocks, Strides
from transformer.mixers.attention.base import Sparsity


@dataclass(frozen=True)
class SlidingWindow(Sparsity):
    """Attends to tokens less than `size` positions away (Beltagy et al. 2020; Mistral, Jiang et al. 2023).

    With `sinks` also to the first tokens, which a cache keeps beside the latest ones (StreamingLLM, Xiao G. et al.
    2023); tokens keep their positions, where the paper counts them inside the cache.
    """

    name = "sliding_window"
    size: int = 128
    """Tokens on each side, the query's own included."""
    sinks: int = 0  # pyright: ignore[reportIncompatibleVariableOverride]
    """First tokens that all attend to."""
    may_be_zero = ("sinks",)

    @property
    def relative(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return not self.sinks

    @property
    def span(self):
        return self.size

    def mask(self):
        return Window(self.size) | Prefix(self.sinks) if self.sinks else Window(self.size)


@dataclass(frozen=True)
class DilatedWindow(Sparsity):
    """Attends to every `dilation`-th token on each side, up to `size` of them (Beltagy et al. 2020, figure 2c)."""

    name = "dilated_window"
    size: int = 64
    """Tokens on each side, the query's own included."""
    dilation: int = 2
    """Positions from one of these tokens to the next."""

    @property
    def span(self):
        return (self.size - 1) * self.dilation + 1

    def mask(self):
        return Window(self.size * self.dilation) & Strides(self.dilation)


@dataclass(frozen=True)
class LocalBlocks(Sparsity):
    """Attends to its own block of `size` positions and `neighbours` blocks on each side.

    (Llama 4, 2025, without neighbours; LongT5, Guo et al. 2021.)
    """

    name = "blocks"
    size: int = 128
    """Positions in a block."""
    neighbours: int = 0
    """Blocks on each side."""
    relative = False
    may_be_zero = ("neighbours",)

    @property
    def span(self):
        return self.size * (1 + self.neighbours)

    def mask(self):
        return Blocks(self.size, self.neighbours)


@dataclass(frozen=True)
class Strided(Sparsity):
    """Attends to tokens less than `stride` positions away and to every `stride`-th (Child et al. 2019, section 4.3)."""

    stride: int = 32
    """Positions; tokens whose distance is a multiple of it are attended to."""

    def mask(self):
        return Window(self.stride) | Strides(self.stride)


@dataclass(frozen=True)
class Fixed(Sparsity):
    """Attends to its own block and to the last `summary` positions of every block (Child et al. 2019, section 4.3)."""

    stride: int = 32
    """Positions in a block."""
    summary: int = 4
    """Positions of a block that all tokens attend to, at most `stride`."""
    relative = False

    def __post_init__(self):
        super().__post_init__()
        if self.summary > self.stride:
            raise ConfigError(f"fixed.summary: {self.summary} is more than the stride {self.stride}")

    def mask(self):
        return Blocks(self.stride, 0) | Columns(self.stride, self.summary)


@dataclass(frozen=True)
class GlobalTokens(Sparsity):
    """Attends to a window and to the first tokens, which attend to all (Longformer, Beltagy et al. 2020; ETC).

    A cache of it keeps all tokens, that of `sliding_window` with `sinks` only those it needs.
    """

    name = "global_tokens"
    size: int = 128
    """Tokens on each side of the window, the query's own included."""
    first: int = 4
    """Number of first tokens that attend to all and are attended to by all."""
    relative = False
    may_be_zero = ("first",)

    def mask(self):
        return Window(self.size) | First(self.first)


@dataclass(frozen=True)
class BigBird(Sparsity):
    """Attends to its own block, its neighbours, the first blocks, and a random share of all (Zaheer et al. 2020).

    Each pair of blocks is drawn separately, from its numbers and the seed, so that nothing depends on the
    length; the paper draws the same number of blocks for every query.
    """

    name = "big_bird"
    size: int = 64
    """Positions in a block."""
    first: int = 1
    """Blocks that attend to all and are attended to by all."""
    share: float = 0.1
    """Share of the pairs of blocks that is drawn, in [0, 1]."""
    seed: int = 0
    """Seed of the draw."""
    relative = False
    may_be_zero = ("first", "share", "seed")

    def __post_init__(self):
        super().__post_init__()
        if self.share > 1:
            raise ConfigError(f"big_bird.share: {self.share} is more than 1")

    def mask(self):
        return Blocks(self.size, 1) | First(self.first * self.size) | RandomBlocks(self.size, self.share, self.seed)


@dataclass(frozen=True)
class Linformer(Sparsity):
    """Attends to `rank` trained mixtures of all keys and values, the same in all heads (Wang S. et al. 2020, eq. 7)."""

    rank: int = 16
    """Number of mixtures."""
    length: int = 64
    """Length of the longest sequence, in tokens."""
    everywhere = True
    relative = False
    mixes_tokens = True

    @property
    def longest(self):
        return self.length

    def parameters(self) -> dict[str, Parameter]:
        return dict.fromkeys(("keys", "values"), Parameter((self.length, self.rank), FanIn()))

    def condense(self, keys_values, keys, batch_size, params):
        mixtures = {name: self._rows(table, keys) for name, table in params.items()}
        keys_XKS = rearrange(keys_values.keys_XKS, "(b g) k s -> b g k s", b=batch_size)
        values_XSK = rearrange(keys_values.values_XSK, "(b g) s k -> b g s k", b=batch_size)
        keys_XKR = jnp.einsum("bgks,bsr->bgkr", keys_XKS, mixtures["keys"].astype(keys_XKS.dtype))
        values_XRK = jnp.einsum("bgsk,bsr->bgrk", values_XSK, mixtures["values"].astype(values_XSK.dtype))
        mixed = KeyValue(rearrange(keys_XKR, "b g k r -> (b g) k r"), rearrange(values_XRK, "b g r k -> (b g) r k"))
        return mixed, Tokens.first(self.rank)

    def _rows(self, table: jax.Array, keys: Tokens) -> jax.Array:
        """The row of each position, (B, S, rank), 0 for padding."""
        rows = look_up(table, keys.positions)
        return rows if keys.valid is None else jnp.where(keys.valid[..., None], rows, 0)
