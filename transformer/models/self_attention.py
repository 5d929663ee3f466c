"""Attention of tokens to each other."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange

from transformer.core.modules import Parameters, at
from transformer.core.parameters import FirstRow, Parameter
from transformer.core.values import ConfigError
from transformer.functional.attention import ScoreFunction
from transformer.functional.biases import Placed
from transformer.functional.cache import KeyValue
from transformer.functional.convolution import convolve, convolve_slots
from transformer.functional.masks import Mask, Tokens
from transformer.functional.segment_memory import latest
from transformer.models.attention import HeadAttention, in_order
from transformer.models.config import ModelConfig
from transformer.models.context import Carried, Context, Kept


class Attention(HeadAttention):
    """Self-attention; key-value heads may be fewer than query heads."""

    def __init__(self, config: ModelConfig, *, key: jax.Array):
        super().__init__(config, own_keys_values=config.carry.own_keys_values, key=key)
        self.placed, self.maps = self.heads.placed_size(self.sizes), self.heads.count(config.num_heads)
        value_dim = self.heads.value_size(self.sizes)
        own = config.position.layer_parameters(self.maps, self.placed, config.d_model, value_dim)
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
        x_BSD, read = self._with_earlier(x_BLD, context)
        places_BS = read.positions if context.places is None else context.places[read.positions]
        addition = position.to_query_key_input(places_BS, config.d_model, params)
        if addition is None:
            parts = self.project(x_BSD, "query", "key", "value")
        else:
            qk_BSD = x_BSD + addition.astype(x_BSD.dtype)
            parts = [*self.project(qk_BSD, "query", "key"), *self.project(x_BSD, "value")]
        (q, k, v), projected = self._convolved(parts, context, read)
        to_query, to_key = (
            functools.partial(place, positions_BL=places, params=params)
            for place, places in ((position.to_query, places_BS[:, -tokens.length :]), (position.to_key, places_BS))
        )
        q = self._placed(to_query, self.queries(q[:, -tokens.length :], tokens.positions))
        keys_values, past, values = context.carried.keys_values, None, None
        if config.carry.own_keys_values:
            k, v = self.keys_values(k, v, read.positions)
            k = self._with_features(self._placed(to_key, k), x_BSD, params)
            keys_values, past, values = self._remember(k, v, projected, context)
        assert keys_values is not None
        seen, bias, scores = self._scoring(q[..., : self.placed], keys_values, context, params)
        seen, keys = config.reach.condense(seen, context.keys, len(x_BLD), self.reach())
        sides: dict[str, Any] = {"queries": tokens, "keys": keys, "own_keys": context.own_keys}
        how: dict[str, Any] = {"mask": self._mask(context), "bias": bias, "scores": scores}
        out, scores = self.attend(x_BLD, q, seen, **sides, **how, more=self._more(context, params), key=key)
        earlier = None if context.earlier_BMD is None else latest(x_BSD, context.earlier_BMD.shape[1])
        carried = Carried(scores, values, keys_values, context.carried.token_values)
        return out, Kept(past, carried, earlier_BMD=earlier)

    def _with_earlier(self, x_BLD: jax.Array, context: Context) -> tuple[jax.Array, Tokens]:
        """All that keys and values are made of here."""
        if context.earlier_BMD is None:
            return x_BLD, context.tokens
        return jnp.concatenate([context.earlier_BMD, x_BLD], 1), context.keys

    def _mask(self, context: Context) -> Mask | None:
        """The mask of the stack where this layer's reach allows."""
        reach = self.config.reach.mask()
        return context.mask if reach is None else reach if context.mask is None else context.mask & reach

    def _with_features(self, k_BSGK: jax.Array, x_BLD: jax.Array, params) -> jax.Array:
        """Keys, and behind them what the position keeps with them."""
        if not self.config.position.remembers:
            return k_BSGK
        features_BSH = self.config.position.key_features(x_BLD, params)
        features = rearrange(features_BSH, "b s (g r) -> b s g r", g=k_BSGK.shape[2])
        return jnp.concatenate([k_BSGK, features.astype(k_BSGK.dtype)], -1)

    def _scoring(self, q_BLHK: jax.Array, keys_values: KeyValue, context: Context, params):
        """Keys and values as they are compared, the bias of the position, and the functions of the scores."""
        config, position, tokens, keys = self.config, self.config.position, context.tokens, context.keys
        in_slots = not context.own_keys
        scores: list[ScoreFunction | None] = [] if config.score.plain else [config.score]
        if position.rescores:
            scores.append(position.score(q_BLHK.astype(jnp.float32) * self.factor(), in_slots, params))
        if config.carry.takes == "scores" and context.carried.scores is not None:
            scores.append(self._with_carried(context.carried.scores))
        if position.remembers:
            bare, features = jnp.split(keys_values.keys_XKS, [self.heads.key_size(self.sizes)], 1)
            features_BSH = rearrange(features, "(b g) r s -> b s (g r)", b=len(q_BLHK)).astype(jnp.float32)
            bias = position.feature_bias(features_BSH, tokens, keys, in_slots)
            return keys_values._replace(keys_XKS=bare), bias, scores
        bias = position.bias(q_BLHK, config.causal, params)
        return keys_values, bias if bias is None or context.places is None else Placed(bias, context.places), scores

    def _with_carried(self, before_BHLS: jax.Array) -> ScoreFunction:
        """What the carry makes of scores and those of the previous layer."""
        return lambda scores_BHLS, queries, keys: self.config.carry.scores(scores_BHLS, before_BHLS)

    def _more(self, context: Context, params) -> Callable[[jax.Array], jax.Array] | None:
        """What the position adds to the outputs of the heads, a function of the weights."""
        if not self.config.position.reads_weights:
            return None
        sides = {"queries": context.tokens, "keys": context.keys}
        if context.places is not None:
            sides = {name: t._replace(positions=context.places[t.positions]) for name, t in sides.items()}
        return functools.partial(self.config.position.to_output, **sides, params=params)

    def _convolved(
        self, parts: list[jax.Array], context: Context, read: Tokens
    ) -> tuple[list[jax.Array], jax.Array | None]:
        """Queries, keys and values of the tokens and those before them, and what the past keeps for the next ones."""
        kernel = self.convolution().get("kernel")
        if kernel is None:
            return parts, None
        joined, kept = jnp.concatenate(parts, -1), None
        if context.writing is None:
            mixed = convolve(joined, kernel, read)
        else:
            assert context.writing.past.projected_BSX is not None
            seen, kept = context.writing.append(context.writing.past.projected_BSX, joined, axis=1)
            mixed = convolve_slots(seen, kernel, context.tokens, context.keys)
        return jnp.split(mixed, np.cumsum([part.shape[-1] for part in parts])[:-1], -1), kept

    def _placed(self, place: Callable[[jax.Array], jax.Array], x_BLHK: jax.Array) -> jax.Array:
        """Queries or keys with their position in those features that it may enter."""
        if self.placed == x_BLHK.shape[-1]:
            return place(x_BLHK)
        if self.placed == 0:
            return x_BLHK
        return jnp.concatenate([place(x_BLHK[..., : self.placed]), x_BLHK[..., self.placed :]], -1)

    def _remember(self, k_BSGK: jax.Array, v_BSGK: jax.Array, projected: jax.Array | None, context: Context):
        """What is attended to, the past with it, and the values that later layers may take over."""
        first = v_BSGK
        if context.carried.values is not None:
            first = jnp.where(context.first, v_BSGK, context.carried.values)
        other = context.carried.token_values if self.config.carry.takes == "token_values" else first
        if other is None:
            raise ConfigError(f"model.carry: {self.config.carry} has no tokens here; use values, or a language model")
        own = self.config.carry.values(v_BSGK, other, self.carry())
        keys_values, writing = in_order(k_BSGK, own), context.writing
        if writing is None:
            return keys_values, None, first
        keys_seen, keys_kept = writing.append(writing.past.keys_XKS, keys_values.keys_XKS, axis=2)
        values_seen, values_kept = writing.append(writing.past.values_XSK, keys_values.values_XSK, axis=1)
        return KeyValue(keys_seen, values_seen), KeyValue(keys_kept, values_kept, projected), first
