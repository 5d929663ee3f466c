"""The layer of attention, whose plain path reads from top to bottom.

The stages are project, place, remember, score, weigh, mix, merge. The default runs no other file of this
folder; further ideas are `parts`, each acting at the stages it defines.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange, repeat
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from transformer.core.arrays import dropout
from transformer.core.modules import Dense, Parameters, at, fused
from transformer.functional.attention import ScoreFunction, attention
from transformer.functional.biases import Bias, OfTokens
from transformer.functional.cache import KeyValue
from transformer.functional.masks import Mask, Nowhere, Tokens
from transformer.functional.segment_memory import latest
from transformer.mixers.attention.part import Part, acts
from transformer.mixers.attention.placement import Placed, Placement
from transformer.mixers.attention.sharing import shared_values
from transformer.mixers.mixer import Aux, Context
from transformer.norms.norm import norm_layer
from transformer.positions.position import OUTSIDE, Position

if TYPE_CHECKING:
    from transformer.mixers.attention.attention import Attention
    from transformer.models.config import ModelConfig


ROLES = ("query", "key", "value")
"""What is made of the input by projections."""


class Seen(NamedTuple):
    """What queries are compared with, and how."""

    keys_values: KeyValue
    keys: Tokens
    """Of the keys."""
    own_keys: bool
    """Whether the keys are those of the queries' own tokens, with nothing from a cache or an earlier segment."""
    mask: Mask | None
    bias: Bias | None = None
    scores: tuple[ScoreFunction, ...] = ()
    """Functions of scaled scores, one applied after the other."""
    to_output: Callable[[jax.Array], jax.Array] | None = None
    """What is added to the maps' outputs (B, L, H, V), a function of the weights (B, H, L, S)."""


class AttentionLayer(nnx.Module):
    """Attention of tokens to each other; key-value heads may be fewer than query heads."""

    def __init__(self, attention: "Attention", model: "ModelConfig", position: Position | None, *, key: jax.Array):
        self.attention, self.sizes, self.shape = attention, attention.sizes(model), attention.shape(model)
        self.causal, self.roles = model.causal, attention.roles
        self._make_projections(model, key)
        self.placement, own = None, {}
        if position is not None and (acts := position.acts - OUTSIDE):
            self.placement = Placement(position, acts, self.shape, attention.scale_bias or position.scaled)
            sizes = (self.shape.num_maps, self.shape.rotary_dim, model.d_model, self.shape.value_size)
            own = position.layer_parameters(*sizes)
        self.position = Parameters(own, key=at(key, "position"))
        self.parts = nnx.Dict(
            {
                part.name: Parameters(part.parameters(attention, model), key=at(key, part.name))
                for part in attention.parts
            }
        )
        H, sharing, sparsity = self.sizes.num_heads, attention.sharing, attention.sparsity
        params = {
            "scale": attention.scale and attention.scale.parameters(self.shape.compared_size),
            "score_mod": attention.score_mod and attention.score_mod.parameters(self.shape.num_maps),
            "normalizer": attention.normalizer and attention.normalizer.parameters(self.shape.num_maps),
            "heads": attention.heads and attention.heads.parameters(self.sizes, model.d_model),
            "sharing": sharing and sharing.parameters(self.shape, model),
            "sparsity": sparsity and sparsity.parameters(),
        }
        self.params = nnx.Dict({name: Parameters(own, key=at(key, name)) for name, own in params.items() if own})
        inner = model.inner_norm(attention.inner_norm, model.residual)
        width = H * self.sizes.value_dim if attention.merge is None else attention.merge.width(H, self.sizes.value_dim)
        self.inner_norm = norm_layer(inner, width, "inner_norm", key=key)

    def _make_projections(self, model: "ModelConfig", key: jax.Array) -> None:
        attention, own = self.attention, self.attention.projection
        self.widths = {role: self.shape.widths[role] if role in self.roles else 0 for role in ROLES}
        self.layer_of = {
            role: (role if own is None else getattr(own, role)) if self.widths[role] else None for role in ROLES
        }
        usual = {"initializer": model.initializer, "form": model.weights}
        own_gain = 1.0 if own is None else own.gain
        for role in reversed(ROLES):
            if (name := self.layer_of[role]) is not None:
                gain = own_gain * (model.inner_gain(model.residual) if role == "value" else 1.0)
                how = {**usual, "gain": gain, "bias": name in attention.bias}
                setattr(self, name, Dense(model.d_model, self.widths[role], **how, key=at(key, name)))
        how = {**usual, "gain": model.output_gain(model.residual), "bias": "out" in attention.bias}
        width = self.sizes.num_heads * self.sizes.value_dim
        self.out = Dense(width, model.d_model, **how, key=at(key, "out")) if attention.merge is None else None

    def __call__(self, x_BLD: jax.Array, *, context: Context, key: jax.Array | None = None) -> tuple[jax.Array, Aux]:
        """(B, L, D), and the memory and what later layers may take over; a key turns dropout on."""
        length = x_BLD.shape[1]
        x_BSD, read, earlier = _with_earlier(x_BLD, context)
        x_BSD, entered = self._convolved("enter", x_BSD, read, context)
        x_BLD = x_BSD[:, -length:]
        here = None if self.placement is None else self.placement.at(context, read, self.position())
        q, k, v, projected = self._projected(x_BSD, read, context, here)
        q = self.queries(q[:, -length:], context.tokens.positions)
        q = q if here is None else here.query(q)
        memory, values, own, keys_values = None, None, None, context.shared.keys_values
        if "key" in self.roles:
            k, v = self.keys_values(k, v, read.positions)
            k = k if here is None else here.key(k, x_BSD)
            values, v = self._taken_over(v, x_BSD, context)
            keys_values, memory = self._remember(k, v, entered | projected, context)
            own = v[:, -length:]
        assert keys_values is not None
        seen = self._seen(q, keys_values, here, context)
        out, scores = self.attend(x_BLD, q, seen, context.tokens, own_BLGV=own, key=key)
        shared = context.shared._replace(scores=scores, values=values, keys_values=keys_values)
        return out, Aux(memory, shared, earlier_BMD=earlier)

    def _seen(self, q_BLHK: jax.Array, keys_values: KeyValue, here: Placed | None, context: Context) -> Seen:
        """What the queries are compared with, after all that acts on scores, on who attends to whom, and on keys."""
        mod, sharing, sparsity = self.attention.score_mod, self.attention.sharing, self.attention.sparsity
        keys, mask = context.tokens if context.slots is None else context.slots, context.mask
        bias, to_output = None, None
        scores: list[ScoreFunction] = [] if mod is None else [self.score_mod()]
        if here is not None:
            keys_values, bias, more = here.scoring(q_BLHK, keys_values, self.factor, causal=self.causal)
            scores, to_output = [*scores, *more], here.to_output
        before = context.shared.scores
        if before is not None and sharing is not None and sharing.takes == "scores":
            scores.append(lambda scaled, queries, keys: sharing.scores(scaled, before))
        if sparsity is not None:
            allowed = sparsity.mask()
            mask = mask if allowed is None else allowed if mask is None else mask & allowed
            keys_values, keys = sparsity.condense(keys_values, keys, len(q_BLHK), self._own("sparsity"))
        if extending := self._acting("extend"):
            for part, params in extending:
                keys_values, keys = part.extend(keys_values, keys, params())
            mask, bias = None if mask is None else mask | Nowhere(), None if bias is None else OfTokens(bias)
        own_keys = context.slots is None and not extending
        return Seen(keys_values, keys, own_keys, mask, bias, tuple(scores), to_output)

    def project(self, x_BLD: jax.Array, *roles: str) -> list[jax.Array]:
        """(B, L, width) of each role: "query", "key" or "value".

        A role without a layer is the input itself, or nothing of it (width 0) where the heads have no use for it.
        """
        layers = {name: getattr(self, name) for role in roles if (name := self.layer_of[role])}
        outputs = dict(zip(layers, fused(x_BLD, list(layers.values())), strict=True)) if layers else {}
        parts = [outputs[name] if (name := self.layer_of[role]) else x_BLD[..., : self.widths[role]] for role in roles]
        for part, params in self._acting("project"):
            parts = [
                part.project(role, one, x_BLD, params()) if role in self.roles else one
                for role, one in zip(roles, parts, strict=True)
            ]
        return parts

    def queries(self, q_BLX: jax.Array, positions_BL: jax.Array) -> jax.Array:
        """(B, L, maps, key size) of what was projected."""
        heads = self.attention.heads
        if heads is None:
            q = rearrange(q_BLX, "b l (h k) -> b l h k", k=self.sizes.head_dim)
        else:
            q = heads.queries(q_BLX, positions_BL, self.sizes, self._own("heads"))
        for part, params in self._acting("split"):
            q = part.split("query", q, params())
        return q

    def keys_values(self, k_BSX: jax.Array, v_BSX: jax.Array, positions_BS: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Keys and values of what was projected."""
        heads = self.attention.heads
        if heads is None:
            k = rearrange(k_BSX, "b s (g k) -> b s g k", k=self.sizes.head_dim)
            v = rearrange(v_BSX, "b s (g v) -> b s g v", v=self.sizes.value_dim)
        else:
            k, v = heads.keys_values(k_BSX, v_BSX, positions_BS, self.sizes, self._own("heads"))
        for part, params in self._acting("split"):
            k, v = part.split("key", k, params()), part.split("value", v, params())
        return k, v

    def factor(self) -> float | jax.Array:
        """What q·k is multiplied by."""
        scale, size = self.attention.scale, self.shape.compared_size
        return 1 / math.sqrt(size) if scale is None else scale(size, self._own("scale"))

    def score_mod(self) -> ScoreFunction:
        """The function of scaled scores."""
        assert self.attention.score_mod is not None
        return self.attention.score_mod.function(self._own("score_mod"))

    def attend(
        self,
        x_BLD: jax.Array,
        q_BLHK: jax.Array,
        seen: Seen,
        queries: Tokens,
        *,
        own_BLGV: jax.Array | None = None,
        key: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array | None]:
        """(B, L, D): what the queries find in the values; and the scores, where they are formed.

        `own_BLGV` are the values of the queries' own tokens, which parts may mix in.
        """
        choice, how = self.attention, {"queries": queries, "keys": seen.keys, "mask": seen.mask, "bias": seen.bias}
        how |= {"scale": self.factor(), "score": _in_turn(seen.scores)}
        if choice.dropout > 0 and key is not None:
            how["drop_weights"] = functools.partial(dropout, rate=choice.dropout, key=key)
        q_BLHK, batch_size = checkpoint_name(q_BLHK, "q"), len(x_BLD)
        # XLA cancels these transpositions against those of the attention function.
        k_BSGK = rearrange(seen.keys_values.keys_XKS, "(b g) k s -> b s g k", b=batch_size)
        v_BSGK = rearrange(seen.keys_values.values_XSK, "(b g) s k -> b s g k", b=batch_size)
        if choice.normalizer is not None:
            how["weigh"] = choice.normalizer(self.shape.num_maps, self._own("normalizer"))
            q_BLHK, k_BSGK = map(choice.normalizer.features, (q_BLHK, k_BSGK))
        if choice.backend is None:
            attended = attention(q_BLHK, k_BSGK, v_BSGK, **how)
        else:
            attended = choice.backend(q_BLHK, k_BSGK, v_BSGK, own_keys=seen.own_keys, **how)
        out_BLHV = attended.out
        if seen.to_output is not None:
            assert attended.weights is not None
            out_BLHV = out_BLHV + seen.to_output(attended.weights).astype(out_BLHV.dtype)
        return self._merged(out_BLHV, own_BLGV, x_BLD), attended.scores

    def _merged(self, out_BLHV: jax.Array, own_BLGV: jax.Array | None, x_BLD: jax.Array) -> jax.Array:
        """(B, L, D) of the outputs of the maps."""
        merge, out_BLHV = self.attention.merge, self._joined(out_BLHV, x_BLD)
        if mixing := self._acting("mix"):
            groups = {"r": self.shape.num_maps // self.shape.num_kv_heads}
            own = None if own_BLGV is None else repeat(own_BLGV, "b l g v -> b l (g r) v", **groups)
            own = None if own is None else self._joined(own, x_BLD)
            for part, params in mixing:
                out_BLHV = part.mix(out_BLHV, own, x_BLD, params())
        out_BLHV = checkpoint_name(out_BLHV, "z")
        out = rearrange(out_BLHV, "b l h k -> b l (h k)") if merge is None else merge(out_BLHV)
        out = out if self.inner_norm is None else self.inner_norm(out)
        return out if self.out is None else self.out(out)

    def _joined(self, out_BLHV: jax.Array, x_BLD: jax.Array) -> jax.Array:
        """The outputs of the heads from those of their maps."""
        heads = self.attention.heads
        return out_BLHV if heads is None else heads.join(out_BLHV, x_BLD, self.sizes, self._own("heads"))

    def _projected(self, x_BSD: jax.Array, read: Tokens, context: Context, here: Placed | None):
        """Projections of all that is read, and what the memory keeps of them for convolutions."""
        addition = None if here is None else here.to_input(x_BSD.shape[-1])
        if addition is None:
            parts = self.project(x_BSD, *ROLES)
        else:
            qk_BSD = x_BSD + addition.astype(x_BSD.dtype)
            parts = [*self.project(qk_BSD, "query", "key"), *self.project(x_BSD, "value")]
        if not self._acting("convolve"):
            return *parts, {}
        mixed, projected = self._convolved("convolve", jnp.concatenate(parts, -1), read, context)
        return *jnp.split(mixed, np.cumsum([one.shape[-1] for one in parts])[:-1], -1), projected

    def _convolved(self, stage: str, x_BSX: jax.Array, read: Tokens, context: Context):
        """What the parts that see earlier tokens at a stage make of it, and what the memory keeps for each of them."""
        kept: dict[str, jax.Array] = {}
        for part, params in self._acting(stage):
            x_BSX, own = getattr(part, stage)(x_BSX, context, read, params())
            kept |= {} if own is None else {part.name: own}
        return x_BSX, kept

    def _taken_over(self, v_BSGK: jax.Array, x_BSD: jax.Array, context: Context) -> tuple[jax.Array, jax.Array]:
        """(values that later layers may take over, values that this layer uses)."""
        # The usual case stays in this file: `shared_values` would answer the same.
        if self.attention.sharing is None and context.shared.values is None:
            return v_BSGK, v_BSGK
        return shared_values(self.attention.sharing, v_BSGK, x_BSD, context, self._own("sharing"))

    def _remember(self, k_BSGK: jax.Array, v_BSGK: jax.Array, convolved: dict[str, jax.Array], context: Context):
        """What is attended to, and the memory with it."""
        keys_values, writing = as_cached(k_BSGK, v_BSGK), context.writing
        if writing is None:
            return keys_values, None
        keys_seen, keys_kept = writing.append(writing.memory.keys_XKS, keys_values.keys_XKS, axis=2)
        values_seen, values_kept = writing.append(writing.memory.values_XSK, keys_values.values_XSK, axis=1)
        return KeyValue(keys_seen, values_seen), KeyValue(keys_kept, values_kept, convolved)

    def _acting(self, stage: str) -> list[tuple[Part, Parameters]]:
        """The parts that define a stage, with their parameters."""
        return [(part, self.parts[part.name]) for part in self.attention.parts if acts(part, stage)]

    def _own(self, name: str) -> dict[str, jax.Array]:
        """The parameters of a choice."""
        return self.params[name]() if name in self.params else {}


def _with_earlier(x_BLD: jax.Array, context: Context) -> tuple[jax.Array, Tokens, jax.Array | None]:
    """(the input behind that of the segment before it, the tokens of both, what the next segment sees of them)."""
    if context.earlier_BMD is None:
        return x_BLD, context.tokens, None
    x_BSD = jnp.concatenate([context.earlier_BMD, x_BLD], 1)
    return x_BSD, context.keys, latest(x_BSD, context.earlier_BMD.shape[1])


def as_cached(k_BSGK: jax.Array, v_BSGK: jax.Array) -> KeyValue:
    """Keys and values as a cache keeps them."""
    k_BSGK, v_BSGK = checkpoint_name(k_BSGK, "k"), checkpoint_name(v_BSGK, "v")
    return KeyValue(rearrange(k_BSGK, "b s g k -> (b g) k s"), rearrange(v_BSGK, "b s g k -> (b g) s k"))


def _in_turn(functions: Sequence[ScoreFunction]) -> ScoreFunction | None:
    """One after the other; None where there is none."""
    if len(functions) < 2:
        return functions[0] if functions else None

    def score(scores_BHLS, queries, keys):
        return functools.reduce(lambda scores, function: function(scores, queries, keys), functions, scores_BHLS)

    return score
