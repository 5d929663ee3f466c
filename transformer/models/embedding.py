"""Token embedding, and the logits of tokens from the same kind of table."""

import jax
import jax.numpy as jnp
from einops import rearrange
from flax import nnx

from transformer.core.dense import dense
from transformer.core.devices import whole_rows
from transformer.core.modules import at, make_parameter
from transformer.core.parameters import ONES, Parameter
from transformer.core.values import ConfigError
from transformer.models.config import ModelConfig


class Embedding(nnx.Module):
    """A (V, D) table looked up by token; with `embedding_dim` the product of a (V, E) and an (E, D) matrix.

    With `types` of tokens, the vector of each token's type is added.
    """

    def __init__(self, vocab_size: int | None, config: ModelConfig, *, types: int | None = None, key: jax.Array):
        if vocab_size is None:
            raise ConfigError("model.vocab_size is not set: there is no tokenizer here to take it from")
        self.dtype, D, E = jnp.dtype(config.dtype), config.d_model, config.embedding_dim
        self.scale = D**0.5 if config.scale_embeddings else 1.0
        self.logit_scale = config.logit_scale
        spec = Parameter((vocab_size, E or D), config.embedding_initializer, gain=config.embedding_gain)
        self.table = make_parameter(spec, at(key, "table"))
        widen = None if E is None else Parameter((E, D), config.initializer)
        self.projection = None if widen is None else make_parameter(widen, at(key, "projection"))
        kinds = None if types is None else Parameter((types, D), config.embedding_initializer)
        self.types = None if kinds is None else make_parameter(kinds, at(key, "types"))
        self.gain = make_parameter(Parameter((), ONES), at(key, "gain")) if config.unit_embeddings else None

    def _rows(self) -> jax.Array:
        """The table, with rows of one length under `unit_embeddings`."""
        table = self.table[...]
        if self.gain is None:
            return table
        return self.gain[...] * table * jax.lax.rsqrt(jnp.square(table).sum(-1, keepdims=True) + 1e-12)

    def __call__(self, tokens_BL: jax.Array, types_BL: jax.Array | None = None) -> jax.Array:
        """Embedded tokens (B, L, D). A token outside the vocabulary gives NaN; batches are checked before the step.

        Args:
          tokens_BL: integers in [0, V).
          types_BL: integers in [0, types); None: all are of type 0.

        Raises:
          ConfigError: types are given, and the model has none.
        """
        rows = (_at(whole_rows(self._rows()), tokens_BL) * self.scale).astype(self.dtype)
        rows = rows if self.projection is None else dense(rows, self.projection[...])
        if self.types is None:
            if types_BL is not None:
                raise ConfigError("model.token_types is not set, and types of tokens are given")
            return rows
        own = self.types[0] if types_BL is None else _at(self.types[...], types_BL)
        return rows + own.astype(self.dtype)

    def logits(self, x_BLD: jax.Array) -> jax.Array:
        """logit_scale · x · tableᵀ, (B, L, V) float32."""
        x = x_BLD * self.logit_scale
        x = x if self.projection is None else dense(x, self.projection[...].T, transposed=True)
        return dense(x, self._rows().T, jnp.float32, transposed=True)


class ValueEmbedding(nnx.Module):
    """A table of values by token, (V, kv heads · value size)."""

    def __init__(self, config: ModelConfig, *, key: jax.Array):
        sizes = config.head_sizes
        self.size, self.dtype = config.heads.value_size(sizes), jnp.dtype(config.dtype)
        assert config.vocab_size is not None
        width = config.heads.kv_heads(sizes) * self.size
        spec = Parameter((config.vocab_size, width), config.embedding_initializer)
        self.table = make_parameter(spec, at(key, "table"))

    def __call__(self, tokens_BL: jax.Array) -> jax.Array:
        """(B, L, kv heads, value size)."""
        rows = _at(whole_rows(self.table[...]), tokens_BL).astype(self.dtype)
        return rearrange(rows, "b l (g v) -> b l g v", v=self.size)


def _at(table_VD: jax.Array, index_BL: jax.Array) -> jax.Array:
    """Rows of a table; NaN for indices outside of it."""
    return table_VD.at[index_BL].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)
