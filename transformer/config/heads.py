"""What a head is."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from einops import rearrange, repeat

from transformer.config.parameters import ONES, Normal, Parameter
from transformer.config.variant import ConfigError, Variant
from transformer.functional.norms import rms_norm


class Heads(Variant):
    """How projected vectors are cut into heads, and how the outputs of the heads are joined."""

    def check(self, head_dim: int) -> None:
        """Raise `ConfigError` where the head size does not fit."""

    def count(self, num_heads: int) -> int:
        """Maps of attention that so many heads have."""
        return num_heads

    def key_size(self, head_dim: int) -> int:
        """Size of the queries and keys of a map."""
        return head_dim

    def parameters(self, num_heads: int, head_dim: int, value_dim: int) -> dict[str, Parameter]:
        """The parameters it owns in every layer, by name."""
        return {}

    def cut(self, x_BLHK: jax.Array, num_kv_heads: int) -> jax.Array:
        """Queries or keys of each map."""
        return x_BLHK

    def cut_values(self, v_BSGV: jax.Array) -> jax.Array:
        """Values of each map."""
        return v_BSGV

    def join(self, out_BLHV: jax.Array, num_kv_heads: int, params: dict[str, jax.Array]) -> jax.Array:
        """The output of each head from those of its maps."""
        return out_BLHV


@dataclass(frozen=True)
class PlainHeads(Heads):
    """One map of attention a head (Vaswani et al. 2017)."""

    name = "plain"


@dataclass(frozen=True)
class DifferentialHeads(Heads):
    """The difference of two maps: (A₁ - λA₂)V, normalized in each head (Ye et al. 2024, equations 1 to 3).

    Queries and keys are halved. λ = exp(λq₁·λk₁) - exp(λq₂·λk₂) + `initial`, which is the same for all
    layers here; the paper finds no difference to one that grows with depth (table 6).
    """

    name = "differential"
    initial: float = 0.8

    def check(self, head_dim):
        if head_dim % 2:
            raise ConfigError(f"model.heads: {self} halves head_dim, and {head_dim} is not even")

    def count(self, num_heads):
        return 2 * num_heads

    def key_size(self, head_dim):
        return head_dim // 2

    def parameters(self, num_heads, head_dim, value_dim):
        vector = Parameter((head_dim // 2,), Normal(0.1))
        names = ("query_1", "key_1", "query_2", "key_2")
        return dict.fromkeys(names, vector) | {"scale": Parameter((value_dim,), ONES)}

    def cut(self, x_BLHK, num_kv_heads):
        return rearrange(x_BLHK, "b l (g r) (two k) -> b l (g two r) k", g=num_kv_heads, two=2)

    def cut_values(self, v_BSGV):
        return repeat(v_BSGV, "b s g v -> b s (g two) v", two=2)

    def join(self, out_BLHV, num_kv_heads, params):
        first, second = rearrange(out_BLHV, "b l (g two r) v -> two b l (g r) v", g=num_kv_heads, two=2)
        products = [jnp.exp((params[f"query_{i}"] * params[f"key_{i}"]).sum()) for i in (1, 2)]
        factor = (products[0] - products[1] + self.initial).astype(first.dtype)
        return rms_norm(first - factor * second, scale_D=(1 - self.initial) * params["scale"])
