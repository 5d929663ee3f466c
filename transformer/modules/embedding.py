"""Token embedding and the logits of the next token."""

import jax
import jax.numpy as jnp
from flax import nnx

from transformer.config.model import ModelConfig
from transformer.config.parameters import Normal, Parameter
from transformer.config.variant import ConfigError
from transformer.functional.dense import dense
from transformer.modules.parameter import at, make_parameter


class Embedding(nnx.Module):
    """A (V, D) table that is read by token and, where tied, multiplied for the logits."""

    def __init__(self, config: ModelConfig, *, key: jax.Array):
        if config.vocab_size is None:
            raise ConfigError("model.vocab_size is not set: there is no tokenizer here to take it from")
        shape, std = (config.vocab_size, config.d_model), config.initial_std
        self.dtype = jnp.dtype(config.dtype)
        self.table = make_parameter(Parameter(shape, Normal(std)), at(key, "table"))
        # Untied, the output projection: Press and Wolf 2017 tie the two.
        self.output = (
            None if config.tie_embeddings else make_parameter(Parameter(shape, Normal(std)), at(key, "output"))
        )

    def __call__(self, tokens_BL: jax.Array) -> jax.Array:
        """(B, L, D). A token outside the vocabulary gives NaN; batches are checked before the step."""
        rows = self.table[...].at[tokens_BL].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)
        return rows.astype(self.dtype)

    def logits(self, x_BLD: jax.Array) -> jax.Array:
        """(B, L, V) float32."""
        table = self.table if self.output is None else self.output
        return dense(x_BLD, table[...].T).astype(jnp.float32)
