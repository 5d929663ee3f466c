"""Multi-head attention."""

import jax
from einops import rearrange
from flax import nnx

from transformer.config.model import ModelConfig
from transformer.config.parameters import Normal
from transformer.functional.masks import Mask, Tokens
from transformer.modules.dense import Dense, fused
from transformer.modules.parameter import at


class Attention(nnx.Module):
    """Project, position, attend, project back; key-value heads may be fewer than query heads."""

    def __init__(self, config: ModelConfig, *, key: jax.Array):
        self.config = config
        D, H, G, K = config.d_model, config.num_heads, config.kv_heads, config.head_size
        std, bias = config.initial_std, config.attention_bias

        def project(name, heads):
            return Dense(D, heads * K, initializer=Normal(std), bias=bias, key=at(key, name))

        self.query, self.key, self.value = project("query", H), project("key", G), project("value", G)
        residual_std = std / (2 * config.num_layers) ** 0.5
        self.out = Dense(H * K, D, initializer=Normal(residual_std), bias=bias, key=at(key, "out"))

    def __call__(self, x_BLD: jax.Array, *, tokens: Tokens, mask: Mask | None, position_params) -> jax.Array:
        config, position = self.config, self.config.position
        addition = position.to_query_key_input(tokens.positions, config.d_model, position_params)
        if addition is None:
            q, k, v = fused(x_BLD, [self.query, self.key, self.value])
        else:
            q, k = fused(x_BLD + addition.astype(x_BLD.dtype), [self.query, self.key])
            v = self.value(x_BLD)
        q, k, v = (rearrange(x, "b l (h k) -> b l h k", k=config.head_size) for x in (q, k, v))
        out_BLHK = config.attention(
            position.rotate(q, tokens.positions, position_params),
            position.rotate(k, tokens.positions, position_params),
            v,
            queries=tokens,
            keys=tokens,
            mask=mask,
            bias=position.bias(config.num_heads, position_params),
            scale=config.attention_scale,
        )
        return self.out(rearrange(out_BLHK, "b l h k -> b l (h k)"))
