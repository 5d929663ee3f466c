"""Attention to a source."""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from transformer.functional.cache import KeyValue
from transformer.functional.masks import Padding
from transformer.mixers.attention.layer import AttentionLayer, Seen, as_cached
from transformer.mixers.mixer import Aux, Context

if TYPE_CHECKING:
    from transformer.mixers.attention.attention import Attention
    from transformer.models.config import ModelConfig


class CrossAttention(AttentionLayer):
    """Attention to a source: its positions and those of the target are not compared."""

    def __init__(self, attention: "Attention", model: "ModelConfig", *, key: jax.Array):
        super().__init__(attention.for_cross_attention(), model, None, key=key)

    def remember(self, states_BSD: jax.Array) -> KeyValue:
        """The keys and values of a source."""
        k, v = self.project(states_BSD, "key", "value")
        return as_cached(*self.keys_values(k, v, jnp.arange(states_BSD.shape[1])[None]))

    def __call__(self, x_BLD: jax.Array, *, context: Context, key: jax.Array | None = None) -> tuple[jax.Array, Aux]:
        """(B, L, D); a key turns dropout on."""
        source = context.source
        assert source is not None
        keys_values = source.keys_values
        if keys_values is None:
            assert source.states_BSD is not None
            keys_values = self.remember(source.states_BSD)
        (q,) = self.project(x_BLD, "query")
        q = self.queries(q, context.tokens.positions)
        scores = () if self.attention.score_mod is None else (self.score_mod(),)
        seen = Seen(keys_values, source.tokens, own_keys=False, mask=Padding(), scores=scores)
        return self.attend(x_BLD, q, seen, context.tokens, key=key)[0], Aux()
