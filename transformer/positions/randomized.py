"""Any positional scheme, at positions of longer texts."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from transformer.core.errors import ConfigError
from transformer.core.values import of_field
from transformer.positions.position import Position
from transformer.positions.relative import ALiBi


@dataclass(frozen=True)
class Randomized(Position):
    """In training, positions are a sorted random choice from a longer range (Ruoss et al. 2023, section 3).

    So the scheme inside sees in training the distances of longer texts. As many are drawn as a row has places, padding
    included, or where positions are given, as for packed documents, as the model has. The paper draws in evaluation
    too; here, where a token read later must not move earlier ones, evaluation and decoding take every n-th position,
    n = `longest` // `max_length`, which is rounded down the mean distance of draws for so many. A text of more than
    `max_length` goes past the range: read it with a model of its length, of the same parameters.
    """

    scheme: Position = ALiBi()
    """The scheme that gets these positions."""
    longest: int = 2048
    """Positions are drawn from 0 up to, but without, this number."""

    extrapolates = of_field("scheme", "extrapolates")
    enters_queries = of_field("scheme", "enters_queries")
    scaled = of_field("scheme", "scaled")
    relative = of_field("scheme", "relative")
    orders = of_field("scheme", "orders")
    fades = of_field("scheme", "fades")
    check = of_field("scheme", "check")
    layer_parameters = of_field("scheme", "layer_parameters")
    to_embedding = of_field("scheme", "to_embedding")
    to_block = of_field("scheme", "to_block")
    to_query_key_input = of_field("scheme", "to_query_key_input")
    to_query = of_field("scheme", "to_query")
    to_key = of_field("scheme", "to_key")
    bias = of_field("scheme", "bias")
    score = of_field("scheme", "score")
    to_output = of_field("scheme", "to_output")
    key_features = of_field("scheme", "key_features")
    feature_bias = of_field("scheme", "feature_bias")

    @property
    def acts(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.scheme.acts | {"remap"}

    def on_grid(self, columns, first):
        raise ConfigError(f"model.position: {self} is not defined on a grid of patches; use {self.scheme}")

    def parameters(self, d_model, num_heads, max_length):
        self._check_length(max_length)
        return self.scheme.parameters(d_model, num_heads, self.longest)

    def remap(self, length, key):
        self._check_length(length)
        if key is None:
            return Partial(jnp.multiply, self.longest // length)
        return Partial(_entries, jnp.sort(jax.random.permutation(key, self.longest)[:length]))

    def _check_length(self, length: int) -> None:
        if self.longest < length:
            raise ConfigError(f"randomized.longest: {self.longest} positions are fewer than {length} tokens")


def _entries(table_P: jax.Array, positions_BL: jax.Array) -> jax.Array:
    return table_P[positions_BL]
