"""A part of attention that lets tokens attend to trained vectors besides each other."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from einops import repeat

from transformer.core.checks import check_positive
from transformer.core.errors import ConfigError
from transformer.core.parameters import Normal, Parameter
from transformer.functional.cache import KeyValue
from transformer.functional.masks import NOWHERE, Tokens
from transformer.mixers.attention.part import Part


@dataclass(frozen=True)
class MemoryKeyValues(Part):
    """Trained keys and values that every query sees, `count` in each head (Sukhbaatar et al. 2019, equation 9).

    They have no position: a bias is 0 there, and a query that is rotated by its position is compared with them as it
    is. No cache keeps them; in patterns of weights they are the first keys.
    """

    name = "memory"
    count: int = 4
    """Number of key-value pairs of a key-value head."""
    keys_have_positions = False

    def __post_init__(self):
        check_positive(self, "count")

    def check(self, attention, model):
        position, normalizer = model.position, attention.normalizer
        if position is not None and not position.acts.isdisjoint(("score", "key_features", "to_output")):
            raise ConfigError(
                f"mixer.parts: {position} counts the tokens that are attended to, and {self} is no token; use rope"
            )
        if normalizer is not None and normalizer.ordered:
            raise ConfigError(f"mixer.parts: {normalizer} weighs by distance, and {self} has no position; use softmax")
        if attention.backend is not None and attention.backend.recurrent:
            raise ConfigError(
                f"mixer.parts: {attention.backend} reads from left to right, and {self} has no place there"
            )
        if attention.shares == "scores":
            raise ConfigError(f"mixer.sharing: scores for {self} are of no tokens; use values")

    def parameters(self, attention, model):
        shape = attention.shape(model)
        sizes = {"keys": shape.key_size, "values": shape.value_size}
        return {
            name: Parameter((shape.num_kv_heads, self.count, size), Normal(1.0), decay=False)
            for name, size in sizes.items()
        }

    def extend(self, keys_values, keys, params):
        batch_size = len(keys_values.keys_XKS) // len(params["keys"])
        own = {name: repeat(array, "g n k -> (b g) n k", b=batch_size) for name, array in params.items()}
        keys_XKS = _behind(own["keys"].swapaxes(1, 2), keys_values.keys_XKS, 2)
        return KeyValue(keys_XKS, _behind(own["values"], keys_values.values_XSK, 1)), _with(self.count, keys)


def _behind(own: jax.Array, array: jax.Array, axis: int) -> jax.Array:
    return jnp.concatenate([own.astype(array.dtype), array], axis)


def _with(count: int, keys: Tokens) -> Tokens:
    """`count` keys that are no tokens, and behind them the tokens."""

    def joined(own: jax.Array, value: int | bool) -> jax.Array:
        return jnp.pad(own, [*[(0, 0)] * (own.ndim - 1), (count, 0)], constant_values=value)

    segments, valid, beams = (
        None if own is None else joined(own, value)
        for own, value in ((keys.segments, 0), (keys.valid, True), (keys.beams, True))
    )
    return Tokens(joined(keys.positions, NOWHERE), joined(keys.indices, 0), segments, valid, beams)
