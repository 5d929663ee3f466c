"""Multi-head attention."""

import functools
from typing import Any

import jax
from einops import rearrange
from flax import nnx

from transformer.config.model import ModelConfig
from transformer.functional.biases import Scaled
from transformer.functional.cache import KeyValue, append
from transformer.functional.dropout import dropout
from transformer.functional.masks import Mask, Tokens
from transformer.modules.dense import Dense, fused
from transformer.modules.parameter import Parameters, at


class Attention(nnx.Module):
    """Project, position, attend, merge the heads; key-value heads may be fewer than query heads."""

    def __init__(self, config: ModelConfig, *, key: jax.Array):
        self.config = config
        D, H, G, K, V = config.d_model, config.num_heads, config.kv_heads, config.head_size, config.value_size
        names = config.projection
        self.layer_of = {"query": names.query, "key": names.key, "value": names.value}
        for role, width in {"value": G * V, "key": G * K, "query": H * K}.items():
            if (name := self.layer_of[role]) is not None:
                bias = name in config.attention_bias
                setattr(self, name, Dense(D, width, initializer=config.initializer, bias=bias, key=at(key, name)))
        out: dict[str, Any] = {
            "initializer": config.initializer,
            "gain": config.residual_gain,
            "bias": "out" in config.attention_bias,
        }
        self.out = Dense(H * V, D, **out, key=at(key, "out")) if config.merge.projected else None
        self.scale = Parameters(config.scale.parameters(K), key=at(key, "scale"))

    def __call__(
        self,
        x_BLD: jax.Array,
        *,
        tokens: Tokens,
        mask: Mask | None,
        position_params,
        past: KeyValue | None = None,
        slots: Tokens | None = None,
        places: jax.Array | None = None,
        key: jax.Array | None = None,
    ) -> tuple[jax.Array, KeyValue | None]:
        """Self-attention (B, L, D), and the keys and values of `past` with those of these tokens.

        Args:
          x_BLD: the input.
          tokens: its positions.
          mask: over `tokens` and what they attend to.
          position_params: of the positional scheme.
          past: keys and values of tokens read before; None attends to the input alone.
          slots: of what is attended to, where there is a past.
          places: the slots of these tokens, from `transformer.functional.cache.places_of`.
          key: turns dropout on.
        """
        config, position = self.config, self.config.position
        addition = position.to_query_key_input(tokens.positions, config.d_model, position_params)
        x_qk = x_BLD if addition is None else x_BLD + addition.astype(x_BLD.dtype)
        q, k, v = self._heads(query=x_qk, key=x_qk, value=x_BLD)
        q, k = (position.rotate(x, tokens.positions, position_params) for x in (q, k))
        if past is not None:
            assert places is not None
            new = in_order(k, v)
            keys_seen, keys_kept = append(past.keys_XKS, new.keys_XKS, places, axis=2)
            values_seen, values_kept = append(past.values_XSK, new.values_XSK, places, axis=1)
            memory, past = KeyValue(keys_seen, values_seen), KeyValue(keys_kept, values_kept)
        else:
            memory = in_order(k, v)
        bias = position.bias(config.num_heads, position_params)
        keys = tokens if slots is None else slots
        return self._attend(q, memory, queries=tokens, keys=keys, mask=mask, bias=bias, key=key), past

    def remember(self, memory_BSD: jax.Array) -> KeyValue:
        """The keys and values of a source."""
        return in_order(*self._heads(key=memory_BSD, value=memory_BSD))

    def attend_to(
        self, x_BLD: jax.Array, memory: KeyValue, *, queries: Tokens, keys: Tokens, mask: Mask | None, key=None
    ) -> jax.Array:
        """Cross-attention (B, L, D): positions of source and target are not compared."""
        (q,) = self._heads(query=x_BLD)
        return self._attend(q, memory, queries=queries, keys=keys, mask=mask, bias=None, key=key)

    def _heads(self, **inputs: jax.Array) -> list[jax.Array]:
        """(B, L, heads, size) of each role, all layers of one input by one product."""
        made: dict[str, jax.Array] = {}
        for x in {id(x): x for x in inputs.values()}.values():
            roles = [role for role in inputs if inputs[role] is x]
            names = list(dict.fromkeys(name for role in roles if (name := self.layer_of[role])))
            outputs = dict(zip(names, fused(x, [getattr(self, name) for name in names]), strict=True)) if names else {}
            made |= {role: outputs.get(self.layer_of[role] or "", x) for role in roles}
        sizes = {"query": self.config.head_size, "key": self.config.head_size, "value": self.config.value_size}
        return [rearrange(made[role], "b l (h k) -> b l h k", k=sizes[role]) for role in inputs]

    def _attend(self, q_BLHK, memory: KeyValue, *, queries, keys, mask, bias, key) -> jax.Array:
        config = self.config
        scale = config.scale(config.head_size, self.scale())
        drop = config.attention_dropout > 0 and key is not None
        out_BLHK = config.attention(
            q_BLHK,
            # XLA cancels these transpositions against those of the attention function.
            rearrange(memory.keys_XKS, "(b g) k s -> b s g k", g=config.kv_heads),
            rearrange(memory.values_XSK, "(b g) s k -> b s g k", g=config.kv_heads),
            queries=queries,
            keys=keys,
            mask=mask,
            bias=Scaled(bias, scale) if config.scale_bias and bias is not None else bias,
            scale=scale,
            drop_weights=functools.partial(dropout, rate=config.attention_dropout, key=key) if drop else None,
        )
        out = config.merge(out_BLHK)
        return out if self.out is None else self.out(out)


def in_order(k_BSGK: jax.Array, v_BSGK: jax.Array) -> KeyValue:
    """Keys and values as a cache keeps them."""
    return KeyValue(rearrange(k_BSGK, "b s g k -> (b g) k s"), rearrange(v_BSGK, "b s g k -> (b g) s k"))
