"""Positions in attention: the ways of a positional scheme that act between projections and outputs of heads."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from einops import rearrange

from transformer.core.parameters import OwnParams
from transformer.functional.attention import ScoreFunction
from transformer.functional.biases import Bias, Remapped, Scaled
from transformer.functional.cache import KeyValue
from transformer.functional.masks import Tokens
from transformer.mixers.attention.base import HeadShape
from transformer.mixers.mixer import Context
from transformer.positions.position import Position


class Placement(NamedTuple):
    """A positional scheme that acts in attention, in one layer."""

    position: Position
    acts: frozenset[str]
    shape: HeadShape
    scale_bias: bool
    """Whether the factor on q·k multiplies the bias too."""

    def at(self, context: Context, read: Tokens, params: OwnParams) -> "Placed":
        """The scheme for the tokens of a call, `read` with those of an earlier segment, and its own parameters."""
        return Placed(self, context, context.positions_of(read), (context.position_params or {}) | params)


class Placed(NamedTuple):
    """A positional scheme in one layer, for the tokens of a call."""

    placement: Placement
    context: Context
    positions_BS: jax.Array
    """Positions of all that is read, as the scheme takes them."""
    params: OwnParams

    def to_input(self, d_model: int) -> jax.Array | None:
        """What is added to the input of the query and key projections; None: nothing."""
        position, acts, _, _ = self.placement
        if "to_query_key_input" not in acts:
            return None
        return position.to_query_key_input(self.positions_BS, d_model, self.params)

    def query(self, q_BLHK: jax.Array) -> jax.Array:
        """Queries with their position in those features that it may enter."""
        return self._placed("to_query", q_BLHK, self.positions_BS[:, -q_BLHK.shape[1] :])

    def key(self, k_BSGK: jax.Array, x_BSD: jax.Array) -> jax.Array:
        """Keys with their position, and behind them what the scheme keeps with them."""
        position, acts, _, _ = self.placement
        k_BSGK = self._placed("to_key", k_BSGK, self.positions_BS)
        if "key_features" not in acts:
            return k_BSGK
        features_BSH = position.key_features(x_BSD, self.params)
        features = rearrange(features_BSH, "b s (g r) -> b s g r", g=k_BSGK.shape[2])
        return jnp.concatenate([k_BSGK, features.astype(k_BSGK.dtype)], -1)

    def _placed(self, way: str, x_BLHK: jax.Array, positions_BL: jax.Array) -> jax.Array:
        position, acts, shape, _ = self.placement
        if way not in acts or shape.rotary_dim == 0:
            return x_BLHK
        place = functools.partial(getattr(position, way), positions_BL=positions_BL, params=self.params)
        if shape.rotary_dim == x_BLHK.shape[-1]:
            return place(x_BLHK)
        return jnp.concatenate([place(x_BLHK[..., : shape.rotary_dim]), x_BLHK[..., shape.rotary_dim :]], -1)

    def scoring(
        self, q_BLHK: jax.Array, seen: KeyValue, factor: Callable[[], float | jax.Array], *, causal: bool
    ) -> tuple[KeyValue, Bias | None, list[ScoreFunction]]:
        """Keys and values as they are compared, the bias, and functions of the scaled scores."""
        position, acts, shape, scale_bias = self.placement
        q_BLHK, context, scores = q_BLHK[..., : shape.rotary_dim], self.context, []
        in_slots, bias = context.slots is not None, None
        if "score" in acts:
            scores.append(position.score(q_BLHK.astype(jnp.float32) * factor(), in_slots, self.params))
        if "feature_bias" in acts:
            bare, features = jnp.split(seen.keys_XKS, [shape.key_size], 1)
            features_BSH = rearrange(features, "(b g) r s -> b s (g r)", b=len(q_BLHK)).astype(jnp.float32)
            bias = position.feature_bias(features_BSH, context.tokens, context.keys, in_slots)
            seen = replace(seen, keys_XKS=bare)
        elif "bias" in acts:
            bias = position.bias(q_BLHK, causal, self.params)
            bias = bias if context.remap is None else Remapped(bias, context.remap)
        if bias is not None and scale_bias:
            bias = Scaled(bias, factor())
        return seen, bias, scores

    @property
    def to_output(self) -> Callable[[jax.Array], jax.Array] | None:
        """What is added to the outputs of the maps, a function of the weights; None: nothing."""
        position, acts, _, _ = self.placement
        if "to_output" not in acts:
            return None
        queries, keys = (
            tokens._replace(positions=self.context.positions_of(tokens))
            for tokens in (self.context.tokens, self.context.keys)
        )
        return functools.partial(position.to_output, queries=queries, keys=keys, params=self.params)
