"""Any positional scheme, trained at positions of longer texts."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from transformer.core.values import ConfigError
from transformer.positions.position import Position
from transformer.positions.relative import ALiBi


@dataclass(frozen=True)
class Randomized(Position):
    """In training, positions are a sorted random choice from a longer range (Ruoss et al. 2023, section 3).

    So the scheme inside sees in training the distances of longer texts.
    """

    scheme: Position = ALiBi()
    """The scheme that gets these positions."""
    longest: int = 2048
    """Positions are drawn from 0 up to, but without, this number."""

    @property
    def extrapolates(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.scheme.extrapolates

    @property
    def acts(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.scheme.acts | {"training_positions"}

    @property
    def enters_queries(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.scheme.enters_queries

    @property
    def scaled(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.scheme.scaled

    @property
    def relative(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.scheme.relative

    @property
    def orders(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.scheme.orders

    @property
    def fades(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.scheme.fades

    def check(self, head_dim):
        self.scheme.check(head_dim)

    def on_grid(self, columns, first):
        raise ConfigError(f"model.position: {self} is not defined on a grid of patches; use {self.scheme}")

    def parameters(self, d_model, num_heads, max_length):
        return self.scheme.parameters(d_model, num_heads, max(max_length, self.longest))

    def layer_parameters(self, num_heads, head_dim, d_model, value_dim):
        return self.scheme.layer_parameters(num_heads, head_dim, d_model, value_dim)

    def training_positions(self, length, key):
        if self.longest < length:
            raise ConfigError(f"randomized.longest: {self.longest} positions are fewer than {length} tokens")
        return jnp.sort(jax.random.permutation(key, self.longest)[:length])

    def to_embedding(self, positions_BL, d_model, params):
        return self.scheme.to_embedding(positions_BL, d_model, params)

    def to_block(self, positions_BL, layer, d_model, params):
        return self.scheme.to_block(positions_BL, layer, d_model, params)

    def to_query_key_input(self, positions_BL, d_model, params):
        return self.scheme.to_query_key_input(positions_BL, d_model, params)

    def to_query(self, q_BLHK, positions_BL, params):
        return self.scheme.to_query(q_BLHK, positions_BL, params)

    def to_key(self, k_BLHK, positions_BL, params):
        return self.scheme.to_key(k_BLHK, positions_BL, params)

    def bias(self, q_BLHK, causal, params):
        return self.scheme.bias(q_BLHK, causal, params)

    def score(self, q_BLHK, in_slots, params):
        return self.scheme.score(q_BLHK, in_slots, params)

    def to_output(self, weights_BHLS, queries, keys, params):
        return self.scheme.to_output(weights_BHLS, queries, keys, params)

    def key_features(self, x_BLD, params):
        return self.scheme.key_features(x_BLD, params)

    def feature_bias(self, features_BSH, queries, keys, in_slots):
        return self.scheme.feature_bias(features_BSH, queries, keys, in_slots)
