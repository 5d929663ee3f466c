"""The options of the six families: every shipped variant in its field, with its default and other values."""

import dataclasses
import typing
from typing import Any, TypeVar

from transformer.activations.activation import GELU, GLU, Activation, Linear, ReLU, SiLU, SquaredReLU
from transformer.core.values import ConfigError, Variant, variant_of
from transformer.feed_forwards.feed_forward import DenseFeedForward, ExpertChoice, FeedForwardKind, TopKExperts
from transformer.mixers.attention.backends import AttentionImplementation, Chunked, Recurrent
from transformer.mixers.attention.heads import Heads, LatentHeads
from transformer.mixers.attention.normalizers import LogLength, Score, SoftCap, Weighting
from transformer.mixers.attention.projections import Merge, Projection, Scale
from transformer.mixers.attention.sharing import NoCarry, ScoreResidual, SharedKeyValues, ValueEmbeddings, ValueResidual
from transformer.mixers.attention.sparsity import (
    BigBird,
    DilatedWindow,
    Fixed,
    FullReach,
    GlobalTokens,
    Linformer,
    LocalBlocks,
    Reach,
    SlidingWindow,
    Strided,
)
from transformer.mixers.attention.synthesizers import DenseSynthesizer, RandomSynthesizer
from transformer.models.blocks import AttentionOnly, BlockLayout, Sequential
from transformer.models.config import ModelConfig
from transformer.models.downsampling import Hourglass, Latents, Resolution
from transformer.models.layers import Layers, Scanned
from transformer.models.pattern import Pattern
from transformer.models.readouts import Readout
from transformer.norms.group_norm import GroupNorm
from transformer.norms.norm import LayerNorm, Norm, RMSNorm
from transformer.norms.without_statistics import Shift
from transformer.positions.contextual import Contextual
from transformer.positions.position import NoPosition, Position
from transformer.positions.randomized import Randomized
from transformer.positions.relative import RelativeKeys, T5Bias, TransformerXL
from transformer.positions.rotary import LinearScaling, Llama3Scaling, NTKScaling, RoPE, YaRN
from transformer.residuals.multi_stream import HyperConnections, ManifoldHyperConnections
from transformer.residuals.residual import PostNorm, PreNorm, Residual, SandwichNorm, SubNorm
from transformer.residuals.scaled_branches import Fixup, LayerScale, ReZero
from transformer.testing.subject import small

Changes = dict[str, Any]
"""Fields of a `ModelConfig`."""


V = TypeVar("V", bound=Variant)


def shipped(family: type[V]) -> list[V]:
    """All variants of a family that come with the library, with default fields."""
    return [cls() for cls in family.variants().values() if cls.__module__.startswith("transformer.")]


def field_of(value: Variant) -> str:
    """The field of a model's config that takes such a value.

    Raises:
      ConfigError: there is none.
    """
    types = typing.get_type_hints(ModelConfig)
    for field in dataclasses.fields(ModelConfig):
        if variant_of(types[field.name]) is value.family():
            return field.name
    raise ConfigError(f"{value}: no field of a model takes a {value.family().__name__.lower()}")


def _each(family: type[Variant], *more: Variant) -> list[Changes]:
    values = [*shipped(family), *more]
    return [{field_of(value): value} for value in dict.fromkeys(values)]


SIZED: dict[type[Variant], Variant] = {
    SlidingWindow: SlidingWindow(3),
    DilatedWindow: DilatedWindow(2, dilation=2),
    LocalBlocks: LocalBlocks(3, neighbours=1),
    Strided: Strided(3),
    Fixed: Fixed(3, summary=1),
    GlobalTokens: GlobalTokens(2, first=1),
    BigBird: BigBird(2, share=0.3),
    Linformer: Linformer(rank=3, length=12),
    DenseSynthesizer: DenseSynthesizer(length=12),
    RandomSynthesizer: RandomSynthesizer(length=12),
    Chunked: Chunked(block=3),
    Randomized: Randomized(longest=20),
    T5Bias: T5Bias(num_buckets=8, max_distance=16),
    RelativeKeys: RelativeKeys(limit=3),
    TransformerXL: TransformerXL(limit=6),
    Contextual: Contextual(limit=3),
    ManifoldHyperConnections: ManifoldHyperConnections(iterations=3),
    LogLength: LogLength(trained=3),
    Hourglass: Hourglass(factor=3, last=0),
    Latents: Latents(count=5),
}
"""Values used instead of defaults that would have no effect in tiny models."""


def _sized(options: list[Changes]) -> list[Changes]:
    defaults = {kind(): value for kind, value in SIZED.items()}
    return [
        {name: defaults.get(value, value) if isinstance(value, Variant) else value for name, value in changes.items()}
        for changes in options
    ]


FAMILIES: dict[str, list[Changes]] = {
    "normalization": _each(
        Norm,
        LayerNorm(bias=False),
        LayerNorm(scale=False, bias=False),
        LayerNorm(zero_centered=True),
        RMSNorm(zero_centered=True),
        RMSNorm(fraction=0.25),
        RMSNorm(eps_outside=True, cast_first=True),
    ),
    "placement": [
        *_each(
            Residual,
            ReZero(placement=PreNorm()),
            LayerScale(placement=PostNorm(), initial=0.1),
            ReZero(placement=SubNorm(), initial=0.5),
            HyperConnections(streams=3, dynamic=False),
        ),
        {"residual": PreNorm(), "final_norm": False},
        {"residual": SandwichNorm(), "feed_forward_residual": PreNorm()},
        {"residual": Fixup(), "attention_inner_norm": Shift(), "feed_forward_inner_norm": Shift()},
        {"embedding_norm": LayerNorm()},
    ],
    "activation": _each(Activation, *(GLU(gate=gate) for gate in (ReLU(), GELU(), SiLU(), SquaredReLU(), Linear()))),
    "position": [
        *_each(
            Position,
            RoPE(fraction=0.5),
            RoPE(interleaved=True),
            *(
                RoPE(scaling=scaling)
                for scaling in (
                    LinearScaling(),
                    NTKScaling(),
                    YaRN(original_length=8),
                    Llama3Scaling(original_length=8),
                )
            ),
            T5Bias(num_buckets=8, max_distance=16, shared=False),
            RelativeKeys(limit=3, values=True),
            Randomized(scheme=RoPE(), longest=20),
        ),
        {"position": RoPE(), "memory_length": 3},
    ],
    "attention": [
        *_each(Weighting),
        *_each(Score),
        *({"heads": heads} for heads in shipped(Heads) if heads != LatentHeads()),
        *_each(Scale),
        *({"projection": projection, "num_kv_heads": None} for projection in shipped(Projection)),
        *_each(Merge),
        *_each(Reach),
        *({"attention": kind} for kind in shipped(AttentionImplementation) if not kind.recurrent),
        *({"attention": Recurrent(3), "weighting": kind} for kind in shipped(Weighting) if kind.linear),
        {"heads": LatentHeads(rank=6, rotary=4), "num_kv_heads": None},
        {"heads": RandomSynthesizer(length=12, rank=3)},
        {"heads": DenseSynthesizer(length=12, dot_product=True)},
        {"heads": DenseSynthesizer(length=12, columns=4)},
        {"heads": DenseSynthesizer(length=12, dot_product=True, weighted=True)},
        {"heads": RandomSynthesizer(length=12, dot_product=True)},
        {"reach": SlidingWindow(3, sinks=2)},
        {"carry": ScoreResidual()},
        {"carry": ValueResidual()},
        {"carry": ValueEmbeddings()},
        {"pattern": Pattern(carry=(NoCarry(), SharedKeyValues()))},
        {"qk_norm": RMSNorm()},
        {"value_norm": RMSNorm()},
        {"attention_gate": True},
        {"value_gate": True},
        {"head_scale": True},
        {"convolution": 3},
        {"num_kv_heads": 1},
        {"num_kv_heads": None, "head_dim": 4},
    ],
    "structure": [
        *_each(BlockLayout),
        *_each(
            FeedForwardKind,
            TopKExperts(top=1),
            TopKExperts(shared=1),
            TopKExperts(bias_step=0.1),
            ExpertChoice(shared=1),
        ),
        *_each(Layers, Scanned(remat="full")),
        *_each(Readout),
        *_each(Resolution),
        {"output_bias": True},
        {"logit_score": SoftCap(2.0)},
        {"token_types": 2},
        {"tie_embeddings": True},
        {"embedding_dim": 6},
        {"unit_embeddings": True},
        {"distinct_layers": 1},
        {"pattern": Pattern(reach=(SlidingWindow(3), FullReach()))},
        {"pattern": Pattern(position=(RoPE(), NoPosition()))},
        {"pattern": Pattern(residual=(PostNorm(), PreNorm()))},
        {"pattern": Pattern(feed_forward=(DenseFeedForward(), TopKExperts()), block=(AttentionOnly(), Sequential()))},
        {"attention_inner_norm": GroupNorm(4), "feed_forward_inner_norm": RMSNorm()},
        {"attention_bias": ("query", "value", "out"), "feed_forward_bias": True},
    ],
}
"""The changes to a plain model, family by family."""


def _distinct(options: list[Changes]) -> list[Changes]:
    """The options without duplicate models; the plain model comes first, without changes."""
    plain = small()
    changes = [{n: v for n, v in option.items() if getattr(plain, n) != v} for option in _sized(options)]
    return list({str(option): option for option in ({}, *changes)}.values())


FAMILIES = {name: _distinct(options) for name, options in FAMILIES.items()}


def _factors(families: dict[str, list[Changes]]) -> dict[str, list[Changes]]:
    """Families split where options of one may occur in a model together."""
    heads = {
        "heads",
        "projection",
        "merge",
        "num_kv_heads",
        "attention_gate",
        "value_gate",
        "head_scale",
        "qk_norm",
        "value_norm",
        "convolution",
    }
    ends = {
        "readout",
        "output_bias",
        "logit_score",
        "token_types",
        "tie_embeddings",
        "embedding_dim",
        "unit_embeddings",
    }
    parts = {
        "placement": {"ends of the stream": {"embedding_norm", "final_norm"}},
        "attention": {"reach": {"reach"}, "carry": {"carry", "pattern"}, "heads": heads},
        "structure": {"ends": ends, "loop": {"layers", "distinct_layers"}},
    }
    factors = dict(families)
    for family, fields in parts.items():
        taken = {name: [o for o in families[family] if set(o) & own] for name, own in fields.items()}
        factors[family] = [o for o in families[family] if not any(o in options for options in taken.values())]
        factors |= {name: [{}, *options] for name, options in taken.items()}
    return factors


FACTORS = _factors(FAMILIES)
"""The factors of combinations: the families, with placement, attention and structure split into independent parts."""
