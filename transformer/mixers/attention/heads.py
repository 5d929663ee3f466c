"""Kinds of heads: how queries, keys and values are made of what is projected."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from einops import rearrange, repeat

from transformer.core.parameters import ONES, FanIn, Normal, Parameter
from transformer.core.values import ConfigError, Variant, check_positive
from transformer.norms.norm import rms_norm

Params = dict[str, jax.Array]


class HeadSizes(NamedTuple):
    """Numbers and sizes of the heads of a model, from its config."""

    num_heads: int
    """H: query heads."""
    num_kv_heads: int
    """G: key-value heads."""
    head_dim: int
    """K."""
    value_dim: int
    """V: size of a head's output."""


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

    def widths(self, sizes: HeadSizes) -> dict[str, int]:
        """Widths of the projections `query`, `key` and `value`; 0: no projection."""
        H, G, K, V = sizes
        return {"query": H * K, "key": G * K, "value": G * V}

    def parameters(self, sizes: HeadSizes) -> dict[str, Parameter]:
        """The parameters it owns in every layer, by name."""
        return {}

    def count(self, num_heads: int) -> int:
        """Number of attention maps of `num_heads` query heads; differential heads have two each."""
        return num_heads

    def kv_heads(self, sizes: HeadSizes) -> int:
        """Key-value heads in the cache."""
        return sizes.num_kv_heads

    def key_size(self, sizes: HeadSizes) -> int:
        """Size of queries and keys."""
        return sizes.head_dim

    def value_size(self, sizes: HeadSizes) -> int:
        """Size of values."""
        return sizes.value_dim

    def compared_size(self, sizes: HeadSizes) -> int:
        """Size K of the vectors whose product is a score, which sets the factor on it."""
        return self.key_size(sizes)

    def placed_size(self, sizes: HeadSizes) -> int:
        """How many features of queries and keys, from the first, a positional scheme may change."""
        return self.key_size(sizes)

    def queries(self, q_BLX: jax.Array, positions_BL: jax.Array, sizes: HeadSizes, params: Params) -> jax.Array:
        """Queries (B, L, maps, key size)."""
        return rearrange(q_BLX, "b l (h k) -> b l h k", k=sizes.head_dim)

    def keys_values(
        self, k_BSX: jax.Array, v_BSX: jax.Array, positions_BS: jax.Array, sizes: HeadSizes, params: Params
    ) -> tuple[jax.Array, jax.Array]:
        """Keys (B, S, kv heads, key size) and values (B, S, kv heads, value size)."""
        k = rearrange(k_BSX, "b s (g k) -> b s g k", k=sizes.head_dim)
        return k, rearrange(v_BSX, "b s (g v) -> b s g v", v=sizes.value_dim)

    def join(self, out_BLHV: jax.Array, sizes: HeadSizes, params: Params) -> jax.Array:
        """The output (B, L, H, V) of each head from the outputs of its maps."""
        return out_BLHV


@dataclass(frozen=True)
class PlainHeads(Heads):
    """One attention map per head (Vaswani et al. 2017)."""

    name = "plain"


@dataclass(frozen=True)
class DifferentialHeads(Heads):
    """The difference of two maps: (A₁ - λA₂)V, normalized in each head (Ye et al. 2024, equations 1 to 3).

    Queries and keys are halved. λ = exp(λq₁·λk₁) - exp(λq₂·λk₂) + `initial`, where `initial` is the same for
    all layers; the paper finds no difference to one that grows with depth (table 6).
    """

    name = "differential"
    initial: float = 0.8
    """About the initial value of λ; the normalized output is scaled by 1 minus it."""

    def check(self, sizes):
        if sizes.head_dim % 2:
            raise ConfigError(f"model.heads: {self} halves head_dim, and {sizes.head_dim} is not even")

    def count(self, num_heads):
        return 2 * num_heads

    def kv_heads(self, sizes):
        return 2 * sizes.num_kv_heads

    def key_size(self, sizes):
        return sizes.head_dim // 2

    def parameters(self, sizes):
        vector = Parameter((sizes.head_dim // 2,), Normal(0.1))
        names = ("query_1", "key_1", "query_2", "key_2")
        return dict.fromkeys(names, vector) | {"scale": Parameter((sizes.value_dim,), ONES)}

    def queries(self, q_BLX, positions_BL, sizes, params):
        return self._halved(super().queries(q_BLX, positions_BL, sizes, params), sizes)

    def keys_values(self, k_BSX, v_BSX, positions_BS, sizes, params):
        k, v = super().keys_values(k_BSX, v_BSX, positions_BS, sizes, params)
        return self._halved(k, sizes), repeat(v, "b s g v -> b s (g two) v", two=2)

    def _halved(self, x_BLHK: jax.Array, sizes: HeadSizes) -> jax.Array:
        return rearrange(x_BLHK, "b l (g r) (two k) -> b l (g two r) k", g=sizes.num_kv_heads, two=2)

    def join(self, out_BLHV, sizes, params):
        first, second = rearrange(out_BLHV, "b l (g two r) v -> two b l (g r) v", g=sizes.num_kv_heads, two=2)
        products = [jnp.exp((params[f"query_{i}"] * params[f"key_{i}"]).sum()) for i in (1, 2)]
        factor = (products[0] - products[1] + self.initial).astype(first.dtype)
        return rms_norm(first - factor * second, scale_D=(1 - self.initial) * params["scale"])


@dataclass(frozen=True)
class LatentHeads(Heads):
    """Keys and values of all heads from one small vector c of a token (DeepSeek-V2, 2024, section 2.1).

    c is normalized and kept in the cache, with a key of `rotary` features that all heads share and that
    alone carries the position. The key up-projection is absorbed into the queries and the value
    up-projection into the output, so full keys and values are never formed. The cache holds c as a key
    and as a value, each in the shape in which it is multiplied: 2 `rank` + `rotary` numbers per token
    and layer, where the paper's has `rank` + `rotary`.
    """

    name = "latent"
    rank: int = 32
    """Size of c."""
    rotary: int = 8
    """Size of the shared key that carries the position."""
    shares_keys = False

    def __post_init__(self):
        check_positive(self, "rank", "rotary")

    def widths(self, sizes):
        return {"query": sizes.num_heads * (self.rotary + sizes.head_dim), "key": self.rotary + self.rank, "value": 0}

    def kv_heads(self, sizes):
        return 1

    def key_size(self, sizes):
        return self.rotary + self.rank

    def value_size(self, sizes):
        return self.rank

    def compared_size(self, sizes):
        return self.rotary + sizes.head_dim

    def placed_size(self, sizes):
        return self.rotary

    def parameters(self, sizes):
        H, _, K, V = sizes
        return {
            "norm": Parameter((self.rank,), ONES),
            "keys": Parameter((H, self.rank, K), FanIn(), stacked=True),
            "values": Parameter((H, self.rank, V), FanIn(), stacked=True),
        }

    def queries(self, q_BLX, positions_BL, sizes, params):
        q = rearrange(q_BLX, "b l (h k) -> b l h k", h=sizes.num_heads)
        latent = jnp.einsum("blhk,hrk->blhr", q[..., self.rotary :], params["keys"].astype(q.dtype))
        return jnp.concatenate([q[..., : self.rotary], latent], -1)

    def keys_values(self, k_BSX, v_BSX, positions_BS, sizes, params):
        latent = rms_norm(k_BSX[..., self.rotary :], scale_D=params["norm"])[:, :, None]
        return jnp.concatenate([k_BSX[:, :, None, : self.rotary], latent], -1), latent

    def join(self, out_BLHV, sizes, params):
        return jnp.einsum("blhr,hrv->blhv", out_BLHV, params["values"].astype(out_BLHV.dtype))
