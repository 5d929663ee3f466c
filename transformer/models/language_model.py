"""The decoder-only language model."""

import jax
import jax.numpy as jnp
from flax import nnx

from transformer.config.model import ModelConfig
from transformer.config.variant import ConfigError
from transformer.functional.dropout import dropout
from transformer.functional.masks import Causal, Mask, Padding, Segment, Tokens
from transformer.modules.block import Block
from transformer.modules.embedding import Embedding
from transformer.modules.norm import NormLayer
from transformer.modules.parameter import Parameters, at, below
from transformer.modules.stack import Stack


class LanguageModel(nnx.Module):
    """Tokens in, logits of the next token out (Radford et al. 2018).

    Call it eagerly in a notebook; `transformer.split` gives the pure form for everything else.
    """

    def __init__(self, config: ModelConfig, *, key: jax.Array):
        self.config = config
        self.embedding = Embedding(config, key=at(key, "embedding"))
        specs = config.position.parameters(config.d_model, config.num_heads, config.max_length)
        self.position = Parameters(specs, key=at(key, "position"))
        self.blocks = Stack(lambda key: Block(config, key=key), config.num_layers, config.layers, key=at(key, "blocks"))
        self.final_norm = (
            NormLayer(config.norm, config.d_model, key=at(key, "final_norm")) if config.residual.final_norm else None
        )

    def __call__(
        self,
        tokens_BL: jax.Array,
        *,
        positions_BL: jax.Array | None = None,
        segments_BL: jax.Array | None = None,
        valid_BL: jax.Array | None = None,
        mask: Mask | None = None,
        key: jax.Array | None = None,
    ) -> jax.Array:
        """Logits (B, L, V), float32; those at position t are for the token at t + 1.

        Args:
          tokens_BL: integers in [0, V).
          positions_BL: (B or 1, L); None counts from 0.
          segments_BL: packed documents do not see each other.
          valid_BL: False for padding, which nothing attends to.
          mask: instead of the causal mask; padding and segments are always respected.
          key: turns dropout on.

        Raises:
          ConfigError: longer than `max_length` under a position that does not extrapolate.
        """
        config, length = self.config, tokens_BL.shape[1]
        if length > config.max_length and not config.position.extrapolates:
            raise ConfigError(
                f"model: {length} tokens are more than max_length {config.max_length}, and position {config.position} "
                "does not extrapolate"
            )
        positions = jnp.arange(length) if positions_BL is None else positions_BL
        tokens = Tokens.at(positions, segments_BL, valid_BL)
        mask = Causal() if mask is None else mask
        if valid_BL is not None:
            mask = mask & Padding()
        if segments_BL is not None:
            mask = mask & Segment()
        position_params = self.position()
        x_BLD = self.embedding(tokens_BL)
        addition = config.position.to_embedding(tokens.positions, config.d_model, position_params)
        if addition is not None:
            x_BLD = x_BLD + addition.astype(x_BLD.dtype)
        x_BLD = dropout(x_BLD, config.dropout, below(key, "embedding"))
        x_BLD = self.blocks(x_BLD, tokens=tokens, mask=mask, position_params=position_params, key=below(key, "blocks"))
        if self.final_norm is not None:
            x_BLD = self.final_norm(x_BLD)
        return self.embedding.logits(x_BLD)
