"""A block: an attention and a feed-forward sublayer, each in its residual connection."""

from collections.abc import Callable

import jax
from flax import nnx

from transformer.config.model import ModelConfig
from transformer.functional.dropout import dropout
from transformer.functional.masks import Mask, Tokens
from transformer.modules.attention import Attention
from transformer.modules.feed_forward import FeedForward
from transformer.modules.norm import NormLayer
from transformer.modules.parameter import Parameters, at, below


class ResidualConnection(nnx.Module):
    """The residual connection of the configuration with the norms and parameters it asks for."""

    def __init__(self, config: ModelConfig, *, key: jax.Array):
        self.residual = config.residual
        self.norms = nnx.Dict(
            {
                where: NormLayer(config.norm, config.d_model, key=at(key, "norms", where))
                for where in config.residual.norms
            }
        )
        self.params = Parameters(config.residual.parameters(config.d_model), key=at(key, "params"))

    def __call__(self, x_BLD: jax.Array, sublayer: Callable[[jax.Array], jax.Array]) -> jax.Array:
        return self.residual(x_BLD, sublayer, dict(self.norms), self.params())


class Block(nnx.Module):
    """One layer of the stack."""

    def __init__(self, config: ModelConfig, *, key: jax.Array):
        self.dropout = config.dropout
        self.attention = Attention(config, key=at(key, "attention"))
        self.attention_residual = ResidualConnection(config, key=at(key, "attention_residual"))
        self.feed_forward = FeedForward(config, key=at(key, "feed_forward"))
        self.feed_forward_residual = ResidualConnection(config, key=at(key, "feed_forward_residual"))

    def __call__(self, x_BLD: jax.Array, *, tokens: Tokens, mask: Mask | None, position_params, key) -> jax.Array:
        def attend(x):
            out = self.attention(x, tokens=tokens, mask=mask, position_params=position_params)
            return dropout(out, self.dropout, below(key, "attention"))

        def feed_forward(x):
            return dropout(self.feed_forward(x), self.dropout, below(key, "feed_forward"))

        x_BLD = self.attention_residual(x_BLD, attend)
        return self.feed_forward_residual(x_BLD, feed_forward)
