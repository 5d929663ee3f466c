"""The position-wise feed-forward sublayer."""

import jax
from flax import nnx

from transformer.config.model import ModelConfig
from transformer.config.parameters import Normal
from transformer.modules.dense import Dense, fused
from transformer.modules.parameter import at


class FeedForward(nnx.Module):
    """activation(x W₁, x W₂, …) · W_out, with as many branches as the activation takes."""

    def __init__(self, config: ModelConfig, *, key: jax.Array):
        self.activation = config.activation
        D, F, std, bias = config.d_model, config.ff_width, config.initial_std, config.feed_forward_bias
        self.branches = nnx.List(
            Dense(D, F, initializer=Normal(std), bias=bias, key=at(key, "branches", i))
            for i in range(config.activation.branches)
        )
        residual_std = std / (2 * config.num_layers) ** 0.5
        self.out = Dense(F, D, initializer=Normal(residual_std), bias=bias, key=at(key, "out"))

    def __call__(self, x_BLD: jax.Array) -> jax.Array:
        return self.out(self.activation(*fused(x_BLD, self.branches)))
