"""Multi-head attention."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from einops import rearrange
from flax import nnx

from transformer.config.model import ModelConfig
from transformer.functional.biases import Bias, Placed, Scaled
from transformer.functional.cache import KeyValue, append
from transformer.functional.dropout import dropout
from transformer.functional.masks import Mask, Padding, Tokens
from transformer.modules.context import Context, Kept
from transformer.modules.dense import Dense, fused
from transformer.modules.norm import NormLayer
from transformer.modules.parameter import Parameters, at


class HeadAttention(nnx.Module):
    """What self- and cross-attention share: project, cut into heads, attend, gate, merge, project."""

    def __init__(self, config: ModelConfig, *, key: jax.Array):
        self.config = config
        D, H, G, K, V = config.d_model, config.num_heads, config.kv_heads, config.head_size, config.value_size
        names = config.projection
        self.layer_of = {"query": names.query, "key": names.key, "value": names.value}
        for role, width in {"value": G * V, "key": G * K, "query": H * K}.items():
            if (name := self.layer_of[role]) is not None:
                bias, gain = name in config.attention_bias, config.inner_gain("attention") if role == "value" else 1.0
                layer = Dense(D, width, initializer=config.initializer, gain=gain, bias=bias, key=at(key, name))
                setattr(self, name, layer)
        law: dict[str, Any] = {"initializer": config.initializer}
        self.gate = Dense(D, H * V, **law, bias=False, key=at(key, "gate")) if config.attention_gate else None
        self.inner_norm = NormLayer(config.attention_inner_norm, config.merge.width(H, V), key=at(key, "inner_norm"))
        law |= {"gain": config.residual_gain("attention"), "bias": "out" in config.attention_bias}
        self.out = Dense(H * V, D, **law, key=at(key, "out")) if config.merge.projected else None
        size = config.heads.key_size(K)
        self.query_norm = NormLayer(config.qk_norm, size, key=at(key, "query_norm"))
        self.key_norm = NormLayer(config.qk_norm, size, key=at(key, "key_norm"))
        self.scale = Parameters(config.scale.parameters(size), key=at(key, "scale"))
        self.weighting = Parameters(config.weighting.parameters(config.heads.count(H)), key=at(key, "weighting"))
        self.head_params = Parameters(config.heads.parameters(H, K, V), key=at(key, "heads"))

    def heads_of(self, **inputs: jax.Array) -> list[jax.Array]:
        """(B, L, heads, size) of each role, all layers of one input by one product."""
        made: dict[str, jax.Array] = {}
        for x in {id(x): x for x in inputs.values()}.values():
            roles = [role for role in inputs if inputs[role] is x]
            names = list(dict.fromkeys(name for role in roles if (name := self.layer_of[role])))
            outputs = dict(zip(names, fused(x, [getattr(self, name) for name in names]), strict=True)) if names else {}
            made |= {role: outputs.get(self.layer_of[role] or "", x) for role in roles}
        sizes = {"query": self.config.head_size, "key": self.config.head_size, "value": self.config.value_size}
        heads = {role: rearrange(made[role], "b l (h k) -> b l h k", k=sizes[role]) for role in inputs}
        cut = functools.partial(self.config.heads.cut, num_kv_heads=self.config.kv_heads)
        cuts = {"query": cut, "key": cut, "value": self.config.heads.cut_values}
        return [cuts[role](heads[role]) for role in inputs]

    def attend(
        self,
        x_BLD: jax.Array,
        q_BLHK: jax.Array,
        memory: KeyValue,
        *,
        queries: Tokens,
        keys: Tokens,
        mask: Mask | None,
        bias: Bias | None,
        key: jax.Array | None,
    ) -> jax.Array:
        """(B, L, D): what the queries find in the memory."""
        config, more = self.config, {}
        if config.attention_dropout > 0 and key is not None:
            more["drop_weights"] = functools.partial(dropout, rate=config.attention_dropout, key=key)
        scale = config.scale(q_BLHK.shape[-1], self.scale())
        heads = memory.keys_XKS.shape[0] // len(x_BLD)
        # XLA cancels these transpositions against those of the attention function.
        k_BSGK = rearrange(memory.keys_XKS, "(b g) k s -> b s g k", g=heads)
        out_BLHV = config.attention(
            config.weighting.features(q_BLHK),
            config.weighting.features(k_BSGK),
            rearrange(memory.values_XSK, "(b g) s k -> b s g k", g=heads),
            queries=queries,
            keys=keys,
            mask=mask,
            bias=Scaled(bias, scale) if config.scale_bias and bias is not None else bias,
            scale=scale,
            score=config.score.function(),
            weigh=config.weighting(q_BLHK.shape[2], self.weighting()),
            **more,
        )
        out_BLHV = config.heads.join(out_BLHV, config.kv_heads, self.head_params())
        if self.gate is not None:
            gate = jax.nn.sigmoid(self.gate(x_BLD).astype(jnp.float32)).astype(out_BLHV.dtype)
            out_BLHV = out_BLHV * gate.reshape(out_BLHV.shape)
        out = self.inner_norm(config.merge(out_BLHV))
        return out if self.out is None else self.out(out)


class Attention(HeadAttention):
    """Self-attention; key-value heads may be fewer than query heads."""

    def __init__(self, config: ModelConfig, *, key: jax.Array):
        super().__init__(config, key=key)
        size = config.heads.key_size(config.head_size)
        own = config.position.layer_parameters(config.heads.count(config.num_heads), size)
        self.position = Parameters(own, key=at(key, "position"))

    def __call__(self, x_BLD: jax.Array, *, context: Context, key: jax.Array | None = None) -> tuple[jax.Array, Kept]:
        """(B, L, D), and the keys and values of the past with those of these tokens; a key turns dropout on."""
        config, position, tokens, past = self.config, self.config.position, context.tokens, context.past
        params = (context.position_params or {}) | self.position()
        places_BL = tokens.positions if context.places is None else context.places[tokens.positions]
        addition = position.to_query_key_input(places_BL, config.d_model, params)
        x_qk = x_BLD if addition is None else x_BLD + addition.astype(x_BLD.dtype)
        q, k, v = self.heads_of(query=x_qk, key=x_qk, value=x_BLD)
        q = position.to_query(self.query_norm(q), places_BL, params)
        k = position.to_key(self.key_norm(k), places_BL, params)
        bias = position.bias(q, config.causal, params)
        bias = bias if bias is None or context.places is None else Placed(bias, context.places)
        memory, keys = in_order(k, v), tokens
        if past is not None:
            assert context.slots is not None
            assert context.slot_places is not None
            places, crowded = context.slot_places, context.crowded
            keys_seen, keys_kept = append(past.keys_XKS, memory.keys_XKS, places, axis=2, crowded=crowded)
            values_seen, values_kept = append(past.values_XSK, memory.values_XSK, places, axis=1, crowded=crowded)
            memory, past, keys = KeyValue(keys_seen, values_seen), KeyValue(keys_kept, values_kept), context.slots
        mask, reach = context.mask, config.reach.mask()
        if reach is not None:
            mask = reach if mask is None else mask & reach
        out = self.attend(x_BLD, q, memory, queries=tokens, keys=keys, mask=mask, bias=bias, key=key)
        return out, Kept(past)


class CrossAttention(HeadAttention):
    """Attention to a source: its positions and those of the target are not compared."""

    def remember(self, memory_BSD: jax.Array) -> KeyValue:
        """The keys and values of a source."""
        k, v = self.heads_of(key=memory_BSD, value=memory_BSD)
        return in_order(self.key_norm(k), v)

    def __call__(self, x_BLD: jax.Array, *, context: Context, key: jax.Array | None = None) -> tuple[jax.Array, Kept]:
        """(B, L, D); a key turns dropout on."""
        memory = context.memory
        assert memory is not None
        keys_values = memory.keys_values
        if keys_values is None:
            assert memory.states_BSD is not None
            keys_values = self.remember(memory.states_BSD)
        (q,) = self.heads_of(query=x_BLD)
        sides = {"queries": context.tokens, "keys": memory.tokens}
        out = self.attend(x_BLD, self.query_norm(q), keys_values, **sides, mask=Padding(), bias=None, key=key)
        return out, Kept()


def in_order(k_BSGK: jax.Array, v_BSGK: jax.Array) -> KeyValue:
    """Keys and values as a cache keeps them."""
    return KeyValue(rearrange(k_BSGK, "b s g k -> (b g) k s"), rearrange(v_BSGK, "b s g k -> (b g) s k"))
