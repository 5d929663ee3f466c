"""A block: attention, attention to a source where there is one, and a feed-forward sublayer."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from transformer.config.model import ModelConfig
from transformer.functional.cache import KeyValue
from transformer.functional.dropout import drop_sequences, dropout
from transformer.functional.masks import Padding, Tokens
from transformer.modules.attention import Attention
from transformer.modules.feed_forward import FeedForward
from transformer.modules.norm import NormLayer
from transformer.modules.parameter import Parameters, at, below


class Memory(NamedTuple):
    """The source that a decoder attends to: states, or the keys and values that were made of them."""

    tokens: Tokens
    states_BSD: jax.Array | None = None
    keys_values: KeyValue | None = None


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

    def __call__(
        self, x_BLD: jax.Array, sublayer: Callable[[jax.Array], tuple[jax.Array, Any]], valid_BL=None
    ) -> tuple[jax.Array, Any]:
        """The stream after the sublayer, and what else the sublayer returned."""
        rest: Any = None

        def f(x):
            nonlocal rest
            y, rest = sublayer(x)
            return y

        norms = {where: functools.partial(norm, valid_BL=valid_BL) for where, norm in dict(self.norms).items()}
        return self.residual(x_BLD, f, norms, self.params()), rest


class Block(nnx.Module):
    """One layer of the stack."""

    def __init__(self, config: ModelConfig, *, cross: bool = False, key: jax.Array):
        self.dropout, self.stochastic_depth = config.dropout, config.stochastic_depth / config.num_layers
        self.attention = Attention(config, key=at(key, "attention"))
        self.attention_residual = ResidualConnection(config, key=at(key, "attention_residual"))
        self.cross_attention = Attention(config, key=at(key, "cross_attention")) if cross else None
        self.cross_residual = ResidualConnection(config, key=at(key, "cross_residual")) if cross else None
        self.feed_forward = FeedForward(config, key=at(key, "feed_forward"))
        self.feed_forward_residual = ResidualConnection(config, key=at(key, "feed_forward_residual"))

    def __call__(
        self, x_BLD: jax.Array, *, tokens: Tokens, layer, key, memory: Memory | None = None, **attention
    ) -> tuple[jax.Array, KeyValue | None]:
        """The stream after the block, and the keys and values to remember (see `Attention`)."""

        def drop(x, name):
            x = dropout(x, self.dropout, below(key, name))
            if not self.stochastic_depth:
                return x
            rate = self.stochastic_depth * jnp.asarray(layer + 1, jnp.float32)
            return drop_sequences(x, rate, below(key, name, "depth"))

        def attend(x):
            y, past = self.attention(x, tokens=tokens, key=below(key, "attention", "weights"), **attention)
            return drop(y, "attention"), past

        def attend_to_memory(x):
            assert self.cross_attention is not None
            assert memory is not None
            keys_values = memory.keys_values
            if keys_values is None:
                assert memory.states_BSD is not None
                keys_values = self.cross_attention.remember(memory.states_BSD)
            y = self.cross_attention.attend_to(
                x,
                keys_values,
                queries=tokens,
                keys=memory.tokens,
                mask=Padding(),
                key=below(key, "cross_attention", "weights"),
            )
            return drop(y, "cross_attention"), None

        def feed_forward(x):
            return drop(self.feed_forward(x, key=below(key, "feed_forward", "inner")), "feed_forward"), None

        x_BLD, past = self.attention_residual(x_BLD, attend, tokens.valid)
        if self.cross_residual is not None:
            x_BLD, _ = self.cross_residual(x_BLD, attend_to_memory, tokens.valid)
        x_BLD, _ = self.feed_forward_residual(x_BLD, feed_forward, tokens.valid)
        return x_BLD, past
