"""Multi-head attention."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from einops import rearrange
from flax import nnx

from transformer.core.dense import Dense, fused
from transformer.core.dropout import dropout
from transformer.core.modules import Parameters, at
from transformer.core.names import named
from transformer.core.parameters import ONES, Parameter
from transformer.functional.attention import ScoreFunction
from transformer.functional.biases import Bias, Scaled
from transformer.functional.cache import KeyValue
from transformer.functional.masks import Mask, Padding, Tokens
from transformer.models.config import ModelConfig
from transformer.models.context import Context, Kept
from transformer.norms.norm import NoNorm, NormLayer


class HeadAttention(nnx.Module):
    """What self- and cross-attention share: project, make heads, attend, gate, merge, project."""

    def __init__(self, config: ModelConfig, *, own_keys_values: bool = True, key: jax.Array):
        self.config, self.heads, self.sizes = config, config.heads, config.head_sizes
        D, (H, _, _, V) = config.d_model, self.sizes
        widths = self.widths = self.heads.widths(self.sizes) | ({} if own_keys_values else {"key": 0, "value": 0})
        self.layer_of = {role: getattr(config.projection, role) if widths[role] else None for role in widths}
        for role in ("value", "key", "query"):
            if (name := self.layer_of[role]) is not None:
                bias, gain = name in config.attention_bias, config.inner_gain("attention") if role == "value" else 1.0
                layer = Dense(D, widths[role], initializer=config.initializer, gain=gain, bias=bias, key=at(key, name))
                setattr(self, name, layer)
        law: dict[str, Any] = {"initializer": config.initializer}
        factors = {"factors": Parameter((H,), ONES)} if config.head_scale else {}
        self.head_scale = Parameters(factors, key=at(key, "head_scale"))
        self.gate = Dense(D, H * V, **law, bias=False, key=at(key, "gate")) if config.attention_gate else None
        gate = widths["value"] if config.value_gate else 0
        self.value_gate = Dense(D, gate, **law, bias=False, key=at(key, "value_gate")) if gate else None
        self.inner_norm = NormLayer(config.inner_norm("attention"), config.merge.width(H, V), "inner_norm", key=key)
        law |= {"gain": config.residual_gain("attention"), "bias": "out" in config.attention_bias}
        self.out = Dense(H * V, D, **law, key=at(key, "out")) if config.merge.projected else None
        size = self.heads.key_size(self.sizes)
        self.query_norm = NormLayer(config.qk_norm, size, "query_norm", key=key)
        own = (config.qk_norm, config.value_norm) if own_keys_values else (NoNorm(), NoNorm())
        self.key_norm = NormLayer(own[0], size, "key_norm", key=key)
        self.value_norm = NormLayer(own[1], self.heads.value_size(self.sizes), "value_norm", key=key)
        scale = config.scale.parameters(self.heads.compared_size(self.sizes))
        self.scale = Parameters(scale, key=at(key, "scale"))
        self.weighting = Parameters(config.weighting.parameters(self.heads.count(H)), key=at(key, "weighting"))
        self.head_params = Parameters(self.heads.parameters(self.sizes), key=at(key, "heads"))

    def project(self, x_BLD: jax.Array, *roles: str) -> list[jax.Array]:
        """(B, L, width) of each role, by one product for all: "query", "key" or "value".

        A role without a layer is the input itself, or nothing of it (width 0) where the heads have no use for it.
        Values come gated.
        """
        layers = {name: getattr(self, name) for role in roles if (name := self.layer_of[role])}
        outputs = dict(zip(layers, fused(x_BLD, list(layers.values())), strict=True)) if layers else {}
        parts = [outputs[name] if (name := self.layer_of[role]) else x_BLD[..., : self.widths[role]] for role in roles]
        for i, role in enumerate(roles):
            if role == "value" and self.value_gate is not None:
                parts[i] = gated(parts[i], self.value_gate(x_BLD))
        return parts

    def factor(self) -> float | jax.Array:
        """What q·k is multiplied by."""
        return self.config.scale(self.heads.compared_size(self.sizes), self.scale())

    def queries(self, q_BLX: jax.Array, positions_BL: jax.Array) -> jax.Array:
        """(B, L, maps, key size) of what was projected."""
        return self.query_norm(self.heads.queries(q_BLX, positions_BL, self.sizes, self.head_params()))

    def keys_values(self, k_BSX: jax.Array, v_BSX: jax.Array, positions_BS: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Keys and values of what was projected."""
        k, v = self.heads.keys_values(k_BSX, v_BSX, positions_BS, self.sizes, self.head_params())
        return self.key_norm(k), self.value_norm(v)

    def attend(
        self,
        x_BLD: jax.Array,
        q_BLHK: jax.Array,
        keys_values: KeyValue,
        *,
        queries: Tokens,
        keys: Tokens,
        own_keys: bool,
        mask: Mask | None,
        bias: Bias | None,
        scores: Sequence[ScoreFunction | None] = (),
        more: Callable[[jax.Array], jax.Array] | None = None,
        key: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array | None]:
        """(B, L, D): what the queries find in the values; and the scores, where they are formed.

        `own_keys` is that of `AttentionImplementation`; `scores` are functions of scaled scores, one applied after
        the other; `more` is what is added to the maps' outputs (B, L, H, V), a function of the weights (B, H, L, S).
        """
        config, drop = self.config, {}
        if config.attention_dropout > 0 and key is not None:
            drop["drop_weights"] = functools.partial(dropout, rate=config.attention_dropout, key=key)
        scale, scales_bias = self.factor(), config.scale_bias or config.position.scaled
        q_BLHK, heads = named(q_BLHK, "q"), keys_values.keys_XKS.shape[0] // len(x_BLD)
        # XLA cancels these transpositions against those of the attention function.
        k_BSGK = rearrange(keys_values.keys_XKS, "(b g) k s -> b s g k", g=heads)
        attended = config.attention(
            config.weighting.features(q_BLHK),
            config.weighting.features(k_BSGK),
            rearrange(keys_values.values_XSK, "(b g) s k -> b s g k", g=heads),
            queries=queries,
            keys=keys,
            own_keys=own_keys,
            mask=mask,
            bias=Scaled(bias, scale) if scales_bias and bias is not None else bias,
            scale=scale,
            score=_in_turn(*scores),
            weigh=config.weighting(q_BLHK.shape[2], self.weighting()),
            **drop,
        )
        out_BLHV = attended.out
        if more is not None:
            assert attended.weights is not None
            out_BLHV = out_BLHV + more(attended.weights).astype(out_BLHV.dtype)
        out_BLHV = self.heads.join(out_BLHV, self.sizes, self.head_params())
        for factors_H in self.head_scale().values():
            out_BLHV = out_BLHV * factors_H[:, None].astype(out_BLHV.dtype)
        if self.gate is not None:
            out_BLHV = gated(out_BLHV, self.gate(x_BLD).reshape(out_BLHV.shape))
        out = self.inner_norm(config.merge(named(out_BLHV, "z")))
        return out if self.out is None else self.out(out), attended.scores


class CrossAttention(HeadAttention):
    """Attention to a source: its positions and those of the target are not compared."""

    def remember(self, states_BSD: jax.Array) -> KeyValue:
        """The keys and values of a source."""
        k, v = self.project(states_BSD, "key", "value")
        return in_order(*self.keys_values(k, v, jnp.arange(states_BSD.shape[1])[None]))

    def __call__(self, x_BLD: jax.Array, *, context: Context, key: jax.Array | None = None) -> tuple[jax.Array, Kept]:
        """(B, L, D); a key turns dropout on."""
        source = context.source
        assert source is not None
        keys_values = source.keys_values
        if keys_values is None:
            assert source.states_BSD is not None
            keys_values = self.remember(source.states_BSD)
        (q,) = self.project(x_BLD, "query")
        q = self.queries(q, context.tokens.positions)
        sides: dict[str, Any] = {"queries": context.tokens, "keys": source.tokens, "own_keys": False}
        score = self.config.score
        scores = () if score.plain or score.positional else (score,)
        return self.attend(x_BLD, q, keys_values, **sides, mask=Padding(), bias=None, scores=scores, key=key)[0], Kept()


def in_order(k_BSGK: jax.Array, v_BSGK: jax.Array) -> KeyValue:
    """Keys and values as a cache keeps them."""
    k_BSGK, v_BSGK = named(k_BSGK, "k"), named(v_BSGK, "v")
    return KeyValue(rearrange(k_BSGK, "b s g k -> (b g) k s"), rearrange(v_BSGK, "b s g k -> (b g) s k"))


def gated(x: jax.Array, gate: jax.Array) -> jax.Array:
    """σ(gate) · x, with the gate in float32."""
    return x * jax.nn.sigmoid(gate.astype(jnp.float32)).astype(x.dtype)


def _in_turn(*functions: ScoreFunction | None) -> ScoreFunction | None:
    """One after the other those that are there; None where none is."""
    there = [function for function in functions if function is not None]
    if len(there) < 2:
        return there[0] if there else None

    def score(scores_BHLS, queries, keys):
        return functools.reduce(lambda scores, function: function(scores, queries, keys), there, scores_BHLS)

    return score
