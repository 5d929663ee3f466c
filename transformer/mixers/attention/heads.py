"""Kinds of heads: how queries, keys and values are made of what is projected."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from einops import rearrange, repeat

from transformer.core.arrays import dense, times
from transformer.core.checks import check_positive
from transformer.core.errors import ConfigError
from transformer.core.parameters import ONES, FanIn, Normal, Parameter
from transformer.mixers.attention.base import Heads, HeadShape, HeadSizes
from transformer.norms.norm import rms_norm


@dataclass(frozen=True)
class DifferentialHeads(Heads):
    """The difference of two maps: (A₁ - λA₂)V, normalized in each head (Ye et al. 2024, equations 1 to 3).

    Queries and keys are halved. λ = exp(λq₁·λk₁) - exp(λq₂·λk₂) + `initial`, where `initial` is the same for
    all layers; the paper finds no difference to one that grows with depth (table 6). The norm adds 1e-6
    to the mean square, in the authors' code 1e-5.
    """

    name = "differential"
    initial: float = 0.8
    """About the initial value of λ; the normalized output is scaled by 1 minus it."""

    def check(self, sizes):
        if sizes.head_dim % 2:
            raise ConfigError(f"mixer.heads: {self} halves head_dim, and {sizes.head_dim} is not even")

    def shape(self, sizes):
        (H, G, K, V), half = sizes, sizes.head_dim // 2
        widths = {"query": H * K, "key": G * K, "value": G * V}
        return HeadShape(widths, 2 * H, 2 * G, half, V, half, half)

    def parameters(self, sizes, d_model):
        vector = Parameter((sizes.head_dim // 2,), Normal(0.1))
        names = ("query_1", "key_1", "query_2", "key_2")
        return dict.fromkeys(names, vector) | {"scale": Parameter((sizes.value_dim,), ONES)}

    def queries(self, q_BLX, positions_BL, sizes, params):
        return self._halved(q_BLX, sizes)

    def keys_values(self, k_BSX, v_BSX, positions_BS, sizes, params):
        v = rearrange(v_BSX, "b s (g v) -> b s g v", v=sizes.value_dim)
        return self._halved(k_BSX, sizes), repeat(v, "b s g v -> b s (g two) v", two=2)

    def _halved(self, x_BLX: jax.Array, sizes: HeadSizes) -> jax.Array:
        half = {"k": sizes.head_dim // 2, "g": sizes.num_kv_heads, "two": 2}
        return rearrange(x_BLX, "b l (g r two k) -> b l (g two r) k", **half)

    def join(self, out_BLHV, x_BLD, sizes, params):
        first, second = rearrange(out_BLHV, "b l (g two r) v -> two b l (g r) v", g=sizes.num_kv_heads, two=2)
        products = [jnp.exp((params[f"query_{i}"] * params[f"key_{i}"]).sum()) for i in (1, 2)]
        factor = products[0] - products[1] + self.initial
        return rms_norm(first - times(factor, second), scale_D=(1 - self.initial) * params["scale"])


@dataclass(frozen=True)
class DifferentialHeadsV2(Heads):
    """The difference of two maps: (A₁ - σ(x w) A₂)V, with one w for each head (Differential Transformer V2, 2026).

    (Ye et al. 2026, huggingface.co/blog/microsoft/diff-attn-v2.) Two whole queries of a head share its keys and values,
    and nothing is normalized afterwards.
    """

    name = "differential_v2"

    def shape(self, sizes):
        H, G, K, V = sizes
        return HeadShape({"query": 2 * H * K, "key": G * K, "value": G * V}, 2 * H, G, K, V, K, K)

    def parameters(self, sizes, d_model):
        return {"factors": Parameter((d_model, sizes.num_heads), FanIn())}

    def queries(self, q_BLX, positions_BL, sizes, params):
        return rearrange(q_BLX, "b l (h k) -> b l h k", k=sizes.head_dim)

    def keys_values(self, k_BSX, v_BSX, positions_BS, sizes, params):
        k = rearrange(k_BSX, "b s (g k) -> b s g k", k=sizes.head_dim)
        return k, rearrange(v_BSX, "b s (g v) -> b s g v", v=sizes.value_dim)

    def join(self, out_BLHV, x_BLD, sizes, params):
        first, second = rearrange(out_BLHV, "b l (h two) v -> two b l h v", two=2)
        factor_BLH = jax.nn.sigmoid(dense(x_BLD, params["factors"], jnp.float32)).astype(first.dtype)
        return first - factor_BLH[..., None] * second


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

    def shape(self, sizes):
        H, _, K, _ = sizes
        widths = {"query": H * (self.rotary + K), "key": self.rotary + self.rank, "value": 0}
        return HeadShape(widths, H, 1, self.rotary + self.rank, self.rank, self.rotary + K, self.rotary)

    def parameters(self, sizes, d_model):
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

    def join(self, out_BLHV, x_BLD, sizes, params):
        return jnp.einsum("blhr,hrv->blhv", out_BLHV, params["values"].astype(out_BLHV.dtype))


@dataclass(frozen=True)
class LatentQueryHeads(LatentHeads):
    """`latent` whose queries come from a small normalized vector too (DeepSeek-V2, 2024, section 2.1; DeepSeek-V3).

    The features that carry the position are the last of each projection, as in published models.
    """

    name = "latent_queries"
    query_rank: int | None = 32
    """Size of the vector that queries come from; None: queries are projected at once."""

    def __post_init__(self):
        super().__post_init__()
        if self.query_rank is not None:
            check_positive(self, "query_rank")

    def shape(self, sizes):
        shape = super().shape(sizes)
        if self.query_rank is None:
            return shape
        return shape._replace(widths=shape.widths | {"query": self.query_rank})

    def parameters(self, sizes, d_model):
        own, rank = super().parameters(sizes, d_model), self.query_rank
        if rank is None:
            return own
        width = sizes.num_heads * (sizes.head_dim + self.rotary)
        return own | {"query_norm": Parameter((rank,), ONES), "queries": Parameter((rank, width), FanIn())}

    def queries(self, q_BLX, positions_BL, sizes, params):
        if self.query_rank is not None:
            q_BLX = dense(rms_norm(q_BLX, scale_D=params["query_norm"]), params["queries"])
        q = rearrange(q_BLX, "b l (h k) -> b l h k", h=sizes.num_heads)
        q = rearrange(jnp.roll(q, self.rotary, -1), "b l h k -> b l (h k)")
        return super().queries(q, positions_BL, sizes, params)

    def keys_values(self, k_BSX, v_BSX, positions_BS, sizes, params):
        return super().keys_values(jnp.roll(k_BSX, self.rotary, -1), v_BSX, positions_BS, sizes, params)
