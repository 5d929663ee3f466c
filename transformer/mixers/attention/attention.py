"""Attention as a value: every choice that only attention has. One left at None is as in Vaswani et al. 2017.

`transformer.mixers.attention.layer` is what it computes.
"""

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

import jax.numpy as jnp

from transformer.functional.cache import KeyValue
from transformer.mixers.attention.base import (
    Backend,
    Heads,
    HeadShape,
    HeadSizes,
    Merge,
    Normalizer,
    Projection,
    Scale,
    ScoreMod,
    Sharing,
    Sparsity,
)
from transformer.mixers.attention.checks import check_attention
from transformer.mixers.attention.layer import ROLES, AttentionLayer
from transformer.mixers.attention.part import Part, acts, acts_in_cross_attention
from transformer.mixers.mixer import Mixer
from transformer.norms.norm import Norm

if TYPE_CHECKING:
    from transformer.models.config import ModelConfig


@dataclass(frozen=True)
class Attention(Mixer):
    """Multi-head attention (Vaswani et al. 2017, section 3.2), of which every choice is a value."""

    sublayer = "attention"
    takes_masks = True
    num_heads: int = 4
    """H: query heads."""
    num_kv_heads: int | None = None
    """G: key-value heads shared by groups of query heads (Ainslie et al. 2023); None: as many as query heads."""
    head_dim: int | None = None
    """K: size of a head; None: d_model / num_heads."""
    bias: tuple[Literal["query", "key", "value", "out"], ...] = ()
    """Which projections have a bias."""
    dropout: float = 0.0
    """Share of attention weights dropped while training."""
    heads: Heads | None = None
    """Kind of heads; None: one attention map a head."""
    projection: Projection | None = None
    """Which linear layers make queries, keys and values; None: one for each."""
    scale: Scale | None = None
    """The factor on q·k; None: 1/√K, which keeps the variance at 1 where q and k have variance 1."""
    score_mod: ScoreMod | None = None
    """Function of the scaled scores of self-attention, and where it reads no positions of cross-attention."""
    normalizer: Normalizer | None = None
    """How scores become weights; None: softmax."""
    scale_bias: bool = False
    """Whether the factor multiplies the bias of the position too: scale · (q·k + bias)."""
    merge: Merge | None = None
    """How the outputs of the heads become one vector; None: concatenated and projected."""
    inner_norm: Norm | None = None
    """Norm before the output projection; None where the residual does not ask for one (`sub`)."""
    sparsity: Sparsity | None = None
    """Which tokens self-attention reaches, besides the mask; None: all."""
    sharing: Sharing | None = None
    """What is taken over from earlier layers; None: nothing."""
    backend: Backend | None = None
    """How it is computed; None: exactly, all scores at once, O(L²) memory."""
    parts: tuple[Part, ...] = ()
    """Further ideas, each of which acts at some stages, in this order."""

    def check(self, model):
        check_attention(self, model)

    def for_cross_attention(self) -> Self:
        """The same choices for attention to a source, without those that need a distance between query and key."""
        of_positions = self.score_mod is not None and self.score_mod.positional
        return dataclasses.replace(
            self,
            score_mod=None if of_positions else self.score_mod,
            sparsity=None,
            sharing=None,
            parts=tuple(filter(acts_in_cross_attention, self.parts)),
        )

    def alone(self):
        return dataclasses.replace(self, sharing=None)

    @property
    def sees_all(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.sparsity is None or self.sparsity.everywhere

    @property
    def relative(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        # The features of a rotated query in a linear normalizer depend on the angle.
        by_distance = all(choice is None or choice.relative for choice in (self.score_mod, self.sparsity))
        rotated_alike = all(part.keys_have_positions for part in self.parts)
        return by_distance and rotated_alike and not (self.normalizer is not None and self.normalizer.linear)

    @property
    def ordered(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        by_score = self.score_mod is not None and self.score_mod.positional
        convolving = any(acts(part, "enter") or acts(part, "convolve") for part in self.parts)
        return convolving or by_score or (self.normalizer is not None and self.normalizer.ordered)

    @property
    def shares(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return None if self.sharing is None else self.sharing.takes

    @property
    def mixes_tokens(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.sparsity is not None and self.sparsity.mixes_tokens

    @property
    def forms_weights(self) -> bool:
        """Whether all scores and weights are formed, so that they can be returned, dropped out, or changed."""
        return self.backend is None or self.backend.forms_weights

    @property
    def roles(self) -> tuple[str, ...]:
        """What each layer makes of its input: queries, keys and values, or queries alone where it takes the rest."""
        return ROLES if self.sharing is None or self.sharing.own_keys_values else ROLES[:1]

    def sizes(self, model: "ModelConfig") -> HeadSizes:
        """H, G, K and the size of a head's output."""
        head_dim = model.d_model // self.num_heads if self.head_dim is None else self.head_dim
        value_dim = head_dim if self.merge is None else self.merge.value_dim(model.d_model, head_dim)
        num_kv_heads = self.num_heads if self.num_kv_heads is None else self.num_kv_heads
        return HeadSizes(self.num_heads, num_kv_heads, head_dim, value_dim)

    def shape(self, model: "ModelConfig") -> HeadShape:
        """What its kind of heads makes of these sizes."""
        sizes = self.sizes(model)
        if self.heads is not None:
            return self.heads.shape(sizes)
        H, G, K, V = sizes
        return HeadShape({"query": H * K, "key": G * K, "value": G * V}, H, G, K, V, K, K)

    def span(self, model):
        latest_seen = None if self.sparsity is None else self.sparsity.span
        return None if latest_seen is None else max([latest_seen, *(part.span() for part in self.parts)])

    @property
    def first_kept(self) -> int:
        return 0 if self.sparsity is None else self.sparsity.sinks

    def memory(self, model, batch_size, slots, dtype):
        if "key" not in self.roles:
            return None
        shape = self.shape(model)
        features = model.position is not None and "key_features" in model.position.acts
        size = shape.key_size + features * shape.num_maps // shape.num_kv_heads
        return KeyValue(
            jnp.zeros((batch_size * shape.num_kv_heads, size, slots), dtype),
            jnp.zeros((batch_size * shape.num_kv_heads, slots, shape.value_size), dtype),
            {
                part.name: jnp.zeros((batch_size, slots, width), dtype)
                for stage, width in {"enter": model.d_model, "convolve": sum(shape.widths.values())}.items()
                for part in self.parts
                if acts(part, stage)
            },
        )

    def num_maps(self, model):
        return self.shape(model).num_maps

    def build(self, model, *, key):
        return AttentionLayer(self, model, model.position, key=key)
