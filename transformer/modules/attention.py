"""Multi-head attention."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange
from flax import nnx

from transformer.config.model import ModelConfig
from transformer.config.norms import NoNorm
from transformer.config.parameters import FirstRow, Parameter
from transformer.config.positions import ScoreFunction
from transformer.functional.biases import Bias, Placed, Scaled
from transformer.functional.cache import KeyValue, append
from transformer.functional.convolution import convolve, convolve_slots
from transformer.functional.dropout import dropout
from transformer.functional.masks import Mask, Padding, Tokens
from transformer.modules.context import Carried, Context, Kept
from transformer.modules.dense import Dense, fused
from transformer.modules.norm import NormLayer
from transformer.modules.parameter import Parameters, at


class HeadAttention(nnx.Module):
    """What self- and cross-attention share: project, make heads, attend, gate, merge, project."""

    def __init__(self, config: ModelConfig, *, own_memory: bool = True, key: jax.Array):
        self.config, self.heads, self.sizes = config, config.heads, config.head_sizes
        D, (H, _, _, V) = config.d_model, self.sizes
        widths = self.widths = self.heads.widths(self.sizes) | ({} if own_memory else {"key": 0, "value": 0})
        self.layer_of = {role: getattr(config.projection, role) if widths[role] else None for role in widths}
        self.given = {role: width > 0 for role, width in widths.items()}
        for role in ("value", "key", "query"):
            if (name := self.layer_of[role]) is not None:
                bias, gain = name in config.attention_bias, config.inner_gain("attention") if role == "value" else 1.0
                layer = Dense(D, widths[role], initializer=config.initializer, gain=gain, bias=bias, key=at(key, name))
                setattr(self, name, layer)
        law: dict[str, Any] = {"initializer": config.initializer}
        self.gate = Dense(D, H * V, **law, bias=False, key=at(key, "gate")) if config.attention_gate else None
        self.inner_norm = NormLayer(config.attention_inner_norm, config.merge.width(H, V), key=at(key, "inner_norm"))
        law |= {"gain": config.residual_gain("attention"), "bias": "out" in config.attention_bias}
        self.out = Dense(H * V, D, **law, key=at(key, "out")) if config.merge.projected else None
        size = self.heads.key_size(self.sizes)
        self.query_norm = NormLayer(config.qk_norm, size, key=at(key, "query_norm"))
        self.key_norm = NormLayer(config.qk_norm if own_memory else NoNorm(), size, key=at(key, "key_norm"))
        scale = config.scale.parameters(self.heads.compared_size(self.sizes))
        self.scale = Parameters(scale, key=at(key, "scale"))
        self.weighting = Parameters(config.weighting.parameters(self.heads.count(H)), key=at(key, "weighting"))
        self.head_params = Parameters(self.heads.parameters(self.sizes), key=at(key, "heads"))

    def project(self, **inputs: jax.Array) -> list[jax.Array]:
        """(B, L, width) of each role, all layers of one input by one product; of width 0 where heads ask for none."""
        made: dict[str, jax.Array] = {}
        for x in {id(x): x for x in inputs.values()}.values():
            roles = [role for role in inputs if inputs[role] is x]
            names = list(dict.fromkeys(name for role in roles if (name := self.layer_of[role])))
            outputs = dict(zip(names, fused(x, [getattr(self, name) for name in names]), strict=True)) if names else {}
            bare = {role: x if self.given[role] else x[..., :0] for role in roles}
            made |= {role: outputs.get(self.layer_of[role] or "", bare[role]) for role in roles}
        return [made[role] for role in inputs]

    def queries(self, q_BLX: jax.Array, positions_BL: jax.Array) -> jax.Array:
        """(B, L, maps, key size) of what was projected."""
        return self.query_norm(self.heads.queries(q_BLX, positions_BL, self.sizes, self.head_params()))

    def memory(self, k_BSX: jax.Array, v_BSX: jax.Array, positions_BS: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Keys and values of what was projected."""
        k, v = self.heads.memory(k_BSX, v_BSX, positions_BS, self.sizes, self.head_params())
        return self.key_norm(k), v

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
        more_scores: Sequence[ScoreFunction | None] = (),
        key: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array | None]:
        """(B, L, D): what the queries find in the memory; and the scores, where they are formed.

        `more_scores` are functions of scaled scores after that of the config.
        """
        config, more = self.config, {}
        if config.attention_dropout > 0 and key is not None:
            more["drop_weights"] = functools.partial(dropout, rate=config.attention_dropout, key=key)
        if config.attention.forms_weights:
            more["return_scores"] = True
        scale = config.scale(self.heads.compared_size(self.sizes), self.scale())
        heads = memory.keys_XKS.shape[0] // len(x_BLD)
        # XLA cancels these transpositions against those of the attention function.
        k_BSGK = rearrange(memory.keys_XKS, "(b g) k s -> b s g k", g=heads)
        answer = config.attention(
            config.weighting.features(q_BLHK),
            config.weighting.features(k_BSGK),
            rearrange(memory.values_XSK, "(b g) s k -> b s g k", g=heads),
            queries=queries,
            keys=keys,
            mask=mask,
            bias=Scaled(bias, scale) if config.scale_bias and bias is not None else bias,
            scale=scale,
            score=_in_turn(config.score.function(), *more_scores),
            weigh=config.weighting(q_BLHK.shape[2], self.weighting()),
            **more,
        )
        out_BLHV, scores = answer if config.attention.forms_weights else (answer, None)
        out_BLHV = self.heads.join(out_BLHV, self.sizes, self.head_params())
        if self.gate is not None:
            gate = jax.nn.sigmoid(self.gate(x_BLD).astype(jnp.float32)).astype(out_BLHV.dtype)
            out_BLHV = out_BLHV * gate.reshape(out_BLHV.shape)
        out = self.inner_norm(config.merge(out_BLHV))
        return out if self.out is None else self.out(out), scores


class Attention(HeadAttention):
    """Self-attention; key-value heads may be fewer than query heads."""

    def __init__(self, config: ModelConfig, *, key: jax.Array):
        super().__init__(config, own_memory=config.carry.own_memory, key=key)
        self.placed, self.maps = self.heads.placed_size(self.sizes), self.heads.count(config.num_heads)
        own = config.position.layer_parameters(self.maps, self.placed, config.d_model)
        self.position = Parameters(own, key=at(key, "position"))
        self.carry = Parameters(config.carry.parameters(), key=at(key, "carry"))
        self.reach = Parameters(config.reach.parameters(), key=at(key, "reach"))
        kernel = Parameter((config.convolution or 0, sum(self.widths.values())), FirstRow(), decay=False)
        specs = {} if config.convolution is None else {"kernel": kernel}
        self.convolution = Parameters(specs, key=at(key, "convolution"))

    def __call__(self, x_BLD: jax.Array, *, context: Context, key: jax.Array | None = None) -> tuple[jax.Array, Kept]:
        """(B, L, D), and the keys and values of the past with those of these tokens; a key turns dropout on."""
        config, position, tokens = self.config, self.config.position, context.tokens
        params = (context.position_params or {}) | self.position()
        places_BL = tokens.positions if context.places is None else context.places[tokens.positions]
        addition = position.to_query_key_input(places_BL, config.d_model, params)
        x_qk = x_BLD if addition is None else x_BLD + addition.astype(x_BLD.dtype)
        (q, k, v), projected = self._convolved(self.project(query=x_qk, key=x_qk, value=x_BLD), context)
        q = self.queries(q, tokens.positions)
        q = self._placed(functools.partial(position.to_query, positions_BL=places_BL, params=params), q)
        bias = position.bias(q[..., : self.placed], config.causal, params)
        bias = bias if bias is None or context.places is None else Placed(bias, context.places)
        past, values = context.past, None
        if config.carry.own_memory:
            k, v = self.memory(k, v, tokens.positions)
            k = self._placed(functools.partial(position.to_key, positions_BL=places_BL, params=params), k)
            if position.remembers:
                features = rearrange(position.key_features(x_BLD, params), "b s (m r) -> b s m r", m=k.shape[2])
                k = jnp.concatenate([k, features.astype(k.dtype)], -1)
            memory, past, values = self._remember(k, v, context)
            past = None if past is None else past._replace(projected_BSX=projected)
        else:
            memory = context.carried.memory
            assert memory is not None
        keys, seen = tokens if context.slots is None else context.slots, memory
        if position.remembers:
            bare, features = jnp.split(memory.keys_XKS, [self.heads.key_size(self.sizes)], 1)
            features_BSH = rearrange(features, "(b m) r s -> b s (m r)", b=len(x_BLD)).astype(jnp.float32)
            bias = position.memory_bias(features_BSH, tokens, keys, context.slots is not None)
            seen = memory._replace(keys_XKS=bare)
        reached, keys = config.reach.condense(seen, keys, len(x_BLD), self.reach())
        mask, reach = context.mask, config.reach.mask()
        if reach is not None:
            mask = reach if mask is None else mask & reach
        rescored = position.score(q[..., : self.placed], tokens, keys, context.slots is not None, params)
        before = context.carried.scores if config.carry.takes == "scores" else None
        carried = None if before is None else functools.partial(config.carry.scores, before=before)
        sides: dict[str, Any] = {"queries": tokens, "keys": keys, "mask": mask, "bias": bias}
        out, scores = self.attend(x_BLD, q, reached, **sides, more_scores=(rescored, carried), key=key)
        return out, Kept(past, Carried(scores, values, memory))

    def _convolved(self, parts: list[jax.Array], context: Context) -> tuple[list[jax.Array], jax.Array | None]:
        """Queries, keys and values of the tokens and those before them, and what the past keeps for the next ones."""
        kernel, tokens = self.convolution().get("kernel"), context.tokens
        if kernel is None:
            return parts, None
        joined, kept = jnp.concatenate(parts, -1), None
        if context.past is None:
            mixed = convolve(joined, kernel, tokens)
        else:
            assert context.past.projected_BSX is not None
            assert context.slots is not None
            assert context.slot_places is not None
            places, crowded = context.slot_places, context.crowded
            seen, kept = append(context.past.projected_BSX, joined, places, axis=1, crowded=crowded)
            mixed = convolve_slots(seen, kernel, tokens, context.slots)
        return jnp.split(mixed, np.cumsum([part.shape[-1] for part in parts])[:-1], -1), kept

    def _placed(self, place: Callable[[jax.Array], jax.Array], x_BLHK: jax.Array) -> jax.Array:
        """Queries or keys with their position in those features that it may enter."""
        if self.placed == x_BLHK.shape[-1]:
            return place(x_BLHK)
        if self.placed == 0:
            return x_BLHK
        return jnp.concatenate([place(x_BLHK[..., : self.placed]), x_BLHK[..., self.placed :]], -1)

    def _remember(self, k_BSGK: jax.Array, v_BSGK: jax.Array, context: Context):
        """What is attended to, the past with it, and the values that later layers may take over."""
        first = v_BSGK
        if context.carried.values is not None:
            first = jnp.where(context.first, v_BSGK, context.carried.values)
        own = self.config.carry.values(v_BSGK, first, self.carry())
        memory, past = in_order(k_BSGK, own), context.past
        if past is None:
            return memory, None, first
        assert context.slot_places is not None
        places, crowded = context.slot_places, context.crowded
        keys_seen, keys_kept = append(past.keys_XKS, memory.keys_XKS, places, axis=2, crowded=crowded)
        values_seen, values_kept = append(past.values_XSK, memory.values_XSK, places, axis=1, crowded=crowded)
        return KeyValue(keys_seen, values_seen), KeyValue(keys_kept, values_kept), first


class CrossAttention(HeadAttention):
    """Attention to a source: its positions and those of the target are not compared."""

    def remember(self, memory_BSD: jax.Array) -> KeyValue:
        """The keys and values of a source."""
        k, v = self.project(key=memory_BSD, value=memory_BSD)
        return in_order(*self.memory(k, v, jnp.arange(memory_BSD.shape[1])[None]))

    def __call__(self, x_BLD: jax.Array, *, context: Context, key: jax.Array | None = None) -> tuple[jax.Array, Kept]:
        """(B, L, D); a key turns dropout on."""
        memory = context.memory
        assert memory is not None
        keys_values = memory.keys_values
        if keys_values is None:
            assert memory.states_BSD is not None
            keys_values = self.remember(memory.states_BSD)
        (q,) = self.project(query=x_BLD)
        q = self.queries(q, context.tokens.positions)
        sides: dict[str, Any] = {"queries": context.tokens, "keys": memory.tokens, "mask": Padding(), "bias": None}
        return self.attend(x_BLD, q, keys_values, **sides, key=key)[0], Kept()


def in_order(k_BSGK: jax.Array, v_BSGK: jax.Array) -> KeyValue:
    """Keys and values as a cache keeps them."""
    return KeyValue(rearrange(k_BSGK, "b s g k -> (b g) k s"), rearrange(v_BSGK, "b s g k -> (b g) s k"))


def _in_turn(*functions: ScoreFunction | None) -> ScoreFunction | None:
    """One after the other those that are there; None where none is."""
    there = [function for function in functions if function is not None]
    if len(there) < 2:
        return there[0] if there else None
    return lambda scores: functools.reduce(lambda scores, function: function(scores), there, scores)
