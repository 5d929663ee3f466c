"""Token embedding, and the logits of tokens by the same kind of table."""

import jax
import jax.numpy as jnp
from flax import nnx

from transformer.config.model import ModelConfig
from transformer.config.parameters import Parameter
from transformer.config.variant import ConfigError
from transformer.functional.dense import dense
from transformer.modules.parameter import at, make_parameter


class Embedding(nnx.Module):
    """A (V, D) table that is read by token."""

    def __init__(self, vocab_size: int | None, config: ModelConfig, *, key: jax.Array):
        if vocab_size is None:
            raise ConfigError("model.vocab_size is not set: there is no tokenizer here to take it from")
        self.dtype = jnp.dtype(config.dtype)
        self.scale = config.d_model**0.5 if config.scale_embeddings else 1.0
        self.logit_scale = config.logit_scale
        spec = Parameter((vocab_size, config.d_model), config.embedding_initializer)
        self.table = make_parameter(spec, at(key, "table"))

    def __call__(self, tokens_BL: jax.Array) -> jax.Array:
        """(B, L, D). A token outside the vocabulary gives NaN; batches are checked before the step."""
        rows = self.table[...].at[tokens_BL].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)
        return (rows * self.scale).astype(self.dtype)

    def logits(self, x_BLD: jax.Array) -> jax.Array:
        """logit_scale · x · tableᵀ, (B, L, V) float32."""
        return dense(x_BLD * self.logit_scale, self.table[...].T).astype(jnp.float32)
