"""The position-wise feed-forward sublayer."""

import jax
from flax import nnx

from transformer.core.dense import Dense, fused
from transformer.core.dropout import dropout
from transformer.core.modules import at
from transformer.core.names import named
from transformer.models.config import ModelConfig
from transformer.models.context import Context, Kept
from transformer.norms.norm import NormLayer


class FeedForward(nnx.Module):
    """norm(activation(x W₁, x W₂, …)) · W_out, with as many branches as the activation takes."""

    def __init__(self, config: ModelConfig, *, key: jax.Array):
        self.activation, self.dropout = config.activation, config.feed_forward_dropout
        D, F, law, bias = config.d_model, config.ff_width, config.initializer, config.feed_forward_bias
        self.branches = nnx.List(
            Dense(D, F, initializer=law, gain=config.inner_gain("feed_forward"), bias=bias, key=at(key, "branches", i))
            for i in range(config.activation.branches)
        )
        self.inner_norm = NormLayer(config.inner_norm("feed_forward"), F, "inner_norm", key=key)
        self.out = Dense(
            F, D, initializer=law, gain=config.residual_gain("feed_forward"), bias=bias, key=at(key, "out")
        )

    def __call__(
        self, x_BLD: jax.Array, *, context: Context | None = None, key: jax.Array | None = None
    ) -> tuple[jax.Array, Kept]:
        """The output (B, L, D), and an empty `Kept`; a key turns dropout on."""
        branches = [named(h, f"pre_{i}" if i else "pre") for i, h in enumerate(fused(x_BLD, self.branches))]
        hidden = named(self.inner_norm(self.activation(*branches)), "post")
        return self.out(dropout(hidden, self.dropout, key)), Kept()
