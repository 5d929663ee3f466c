"""Tokens in, a vector for each out."""

import jax

from transformer.core.modules import at
from transformer.embeddings.embedding import EmbeddingLayer
from transformer.functional.masks import Tokens
from transformer.models.config import ModelConfig
from transformer.models.transformer import Transformer


class Encoder(Transformer):
    """The states (B, L, D) of tokens, such as vectors of texts."""

    def __init__(self, config: ModelConfig, *, key: jax.Array):
        super().__init__(config, key=key)
        self.embedding = EmbeddingLayer(
            config.vocab_size, config, with_types=True, gain=config.embedding_gain, key=at(key, "embedding")
        )

    def __call__(
        self,
        tokens_BL: jax.Array,
        *,
        valid_BL: jax.Array | None = None,
        types_BL: jax.Array | None = None,
        key: jax.Array | None = None,
    ) -> jax.Array:
        """States (B, L, D); padding (`valid_BL` False) is not attended to; `types_BL` as in a language model."""
        x_BLD = self.embedding(tokens_BL, types_BL)  # first: it says what is wrong with tokens
        tokens = Tokens.first(x_BLD.shape[1], valid=valid_BL)
        return self.transform(x_BLD, tokens, key=key)[0]
