"""How far self-attention looks."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from einops import rearrange

from transformer.config.parameters import FanIn, Parameter
from transformer.config.variant import ConfigError, Variant
from transformer.functional.cache import KeyValue
from transformer.functional.masks import Blocks, Columns, First, Mask, RandomBlocks, Strides, Tokens, Window


class Reach(Variant):
    """How far self-attention looks, whatever its direction."""

    everywhere: ClassVar[bool] = False
    """Whether it looks at every token."""
    relative: ClassVar[bool] = True
    """Whether only the distance of two tokens counts."""
    mixes_tokens: ClassVar[bool] = False
    """Whether what is attended to depends on all tokens, whatever the mask."""

    may_be_zero: ClassVar[tuple[str, ...]] = ()
    """Which of its numbers; all others are positive."""

    def __post_init__(self):
        for name, value in vars(self).items():
            least = 0 if name in self.may_be_zero else 1
            if type(value) in (int, float) and value < least:
                raise ConfigError(f"{self.name}.{name}: {value} is less than {least}")

    @property
    def span(self) -> int | None:
        """How many of the latest tokens a causal model needs; None: all."""
        return None

    @property
    def longest(self) -> int | None:
        """Tokens of the longest sequence; None: any."""
        return None

    def parameters(self) -> dict[str, Parameter]:
        """The parameters it owns in every layer, by name."""
        return {}

    def mask(self) -> Mask | None:
        return None

    def condense(
        self, memory: KeyValue, keys: Tokens, batch_size: int, params: dict[str, jax.Array]
    ) -> tuple[KeyValue, Tokens]:
        """What is attended to in place of the keys and values of the tokens."""
        return memory, keys


@dataclass(frozen=True)
class FullReach(Reach):
    """At every token."""

    name = "full"
    everywhere = True


@dataclass(frozen=True)
class SlidingWindow(Reach):
    """At tokens less than `size` positions away (Beltagy et al. 2020; Mistral, Jiang et al. 2023)."""

    name = "sliding_window"
    size: int = 128

    @property
    def span(self):
        return self.size

    def mask(self):
        return Window(self.size)


@dataclass(frozen=True)
class DilatedWindow(Reach):
    """At `size` tokens on each side, every `dilation`-th, its own among them (Beltagy et al. 2020, figure 2c)."""

    name = "dilated_window"
    size: int = 64
    dilation: int = 2

    @property
    def span(self):
        return (self.size - 1) * self.dilation + 1

    def mask(self):
        return Window(self.size * self.dilation) & Strides(self.dilation)


@dataclass(frozen=True)
class LocalBlocks(Reach):
    """At its own block of `size` positions and `neighbours` on each side (Llama 4, 2025; LongT5, Guo et al. 2021)."""

    name = "blocks"
    size: int = 128
    neighbours: int = 0
    relative = False
    may_be_zero = ("neighbours",)

    @property
    def span(self):
        return self.size * (1 + self.neighbours)

    def mask(self):
        return Blocks(self.size, self.neighbours)


@dataclass(frozen=True)
class Strided(Reach):
    """At tokens less than `stride` positions away and at every `stride`-th token (Child et al. 2019, section 4.3)."""

    stride: int = 32

    def mask(self):
        return Window(self.stride) | Strides(self.stride)


@dataclass(frozen=True)
class Fixed(Reach):
    """At its own block of `stride` positions and at the last `summary` of every block (Child et al. 2019, the same)."""

    stride: int = 32
    summary: int = 4
    relative = False

    def __post_init__(self):
        super().__post_init__()
        if self.summary > self.stride:
            raise ConfigError(f"fixed.summary: {self.summary} is more than the stride {self.stride}")

    def mask(self):
        return Blocks(self.stride, 0) | Columns(self.stride, self.summary)


@dataclass(frozen=True)
class GlobalTokens(Reach):
    """A window, and the first tokens, which see all and are seen by all (Longformer, Beltagy et al. 2020; ETC).

    In a decoder the first tokens are the sinks of StreamingLLM (Xiao G. et al. 2023).
    """

    name = "global_tokens"
    size: int = 128
    first: int = 4
    relative = False
    may_be_zero = ("first",)

    def mask(self):
        return Window(self.size) | First(self.first)


@dataclass(frozen=True)
class BigBird(Reach):
    """Blocks: its own and its neighbours, the first ones, and a random share of the others (Zaheer et al. 2020).

    Each pair of blocks is drawn by itself, by its numbers and the seed, so that nothing depends on the
    length; the paper draws the same number of blocks for every query.
    """

    name = "big_bird"
    size: int = 64
    first: int = 1
    """Blocks that see all and are seen by all."""
    share: float = 0.1
    seed: int = 0
    relative = False
    may_be_zero = ("first", "share", "seed")

    def __post_init__(self):
        super().__post_init__()
        if self.share > 1:
            raise ConfigError(f"big_bird.share: {self.share} is more than 1")

    def mask(self):
        return Blocks(self.size, 1) | First(self.first * self.size) | RandomBlocks(self.size, self.share, self.seed)


@dataclass(frozen=True)
class Linformer(Reach):
    """At `rank` trained mixtures of all keys and values (Wang S. et al. 2020, equation 7), the same for all heads."""

    rank: int = 16
    length: int = 64
    """Tokens of the longest sequence."""
    everywhere = True
    relative = False
    mixes_tokens = True

    @property
    def longest(self):
        return self.length

    def parameters(self):
        return dict.fromkeys(("keys", "values"), Parameter((self.length, self.rank), FanIn()))

    def condense(self, memory, keys, batch_size, params):
        mixtures = {name: self._rows(table, keys) for name, table in params.items()}
        keys_XKS = rearrange(memory.keys_XKS, "(b g) k s -> b g k s", b=batch_size)
        values_XSK = rearrange(memory.values_XSK, "(b g) s k -> b g s k", b=batch_size)
        keys_XKR = jnp.einsum("bgks,bsr->bgkr", keys_XKS, mixtures["keys"].astype(keys_XKS.dtype))
        values_XRK = jnp.einsum("bgsk,bsr->bgrk", values_XSK, mixtures["values"].astype(values_XSK.dtype))
        mixed = KeyValue(rearrange(keys_XKR, "b g k r -> (b g) k r"), rearrange(values_XRK, "b g r k -> (b g) r k"))
        return mixed, Tokens.at(jnp.arange(self.rank))

    def _rows(self, table: jax.Array, keys: Tokens) -> jax.Array:
        """(B, S, rank): the row of each position, 0 for padding."""
        rows = table[keys.positions]
        return rows if keys.valid is None else rows * keys.valid[..., None].astype(rows.dtype)
