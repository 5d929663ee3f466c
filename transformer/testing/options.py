"""The options of the six families: every shipped variant in its field, with its default and other values."""

import dataclasses
import functools
import typing
from typing import Any, TypeVar

from transformer.activations.activation import GELU, GLU, Activation, Linear, ReLU, SiLU, SquaredReLU
from transformer.core.checks import variant_of
from transformer.core.errors import ConfigError
from transformer.core.values import Variant
from transformer.core.weights import LowRank, Weights
from transformer.embeddings.embedding import Head, HeadTransform
from transformer.feed_forwards.canon import CanonFeedForward
from transformer.feed_forwards.experts import ExpertChoice, SigmoidTopK, TopKExperts, TopKProbabilities
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.backends import Chunked, Recurrent, Ring
from transformer.mixers.attention.base import (
    Backend,
    Heads,
    Merge,
    Normalizer,
    Projection,
    Scale,
    ScoreMod,
    Sparsity,
)
from transformer.mixers.attention.gates import OutputGate
from transformer.mixers.attention.head_norms import QKNorm
from transformer.mixers.attention.heads import LatentHeads, LatentQueryHeads
from transformer.mixers.attention.part import Part
from transformer.mixers.attention.score_mods import LogLength, SoftCap
from transformer.mixers.attention.sharing import (
    GatedValueEmbeddings,
    ScoreResidual,
    SharedKeyValues,
    ValueEmbeddings,
    ValueResidual,
)
from transformer.mixers.attention.sparsity import (
    BigBird,
    DilatedWindow,
    Fixed,
    GlobalTokens,
    Linformer,
    LocalBlocks,
    SlidingWindow,
    Strided,
)
from transformer.mixers.attention.synthesizers import DenseSynthesizer, RandomSynthesizer
from transformer.mixers.convolution import Convolution
from transformer.mixers.mixer import Mixer
from transformer.mixers.recurrent.delta import DeltaNet, DeltaProduct, GatedDeltaNet, KimiDeltaAttention
from transformer.mixers.recurrent.elementwise import HGRN
from transformer.mixers.recurrent.gla import HGRN2, GatedLinearAttention
from transformer.mixers.recurrent.linear_attention import LightningAttention, LinearAttention
from transformer.mixers.recurrent.mamba2 import Mamba2
from transformer.mixers.recurrent.mlstm import MLSTM
from transformer.mixers.recurrent.rg_lru import RGLRU
from transformer.mixers.recurrent.rwkv7 import RWKV7
from transformer.models.blocks import BlockLayout
from transformer.models.config import ModelConfig
from transformer.models.downsampling import Downsampling, Hourglass, Latents
from transformer.models.pattern import Alternate
from transformer.models.stack import Layers, Scanned
from transformer.norms.group_norm import GroupNorm
from transformer.norms.norm import LayerNorm, Norm, RMSNorm
from transformer.norms.without_statistics import Shift
from transformer.positions.contextual import Contextual
from transformer.positions.position import Position
from transformer.positions.randomized import Randomized
from transformer.positions.relative import RelativeKeys, T5Bias, TransformerXL
from transformer.positions.rotary import LinearScaling, Llama3Scaling, NTKScaling, RoPE, YaRN, YaRNByPair
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
    """The dotted path of the field of a model's config that takes such a value; a part of attention is one of several.

    Raises:
      ConfigError: there is none.
    """
    for prefix, config in {"": ModelConfig, "mixer.": Attention, "feed_forward.": FeedForward, "head.": Head}.items():
        types = typing.get_type_hints(config)
        for field in dataclasses.fields(config):
            if variant_of(types[field.name]) is value.family():
                return prefix + field.name
    kind = value.family().__name__
    raise ConfigError(f"{value}: a {kind} cannot be checked: no choice of a model, and without a check of its own")


def chosen(value: Variant) -> Changes:
    """The changes to a model by which it has such a value."""
    return {"mixer.parts": (value,)} if isinstance(value, Part) else {field_of(value): value}


def _each(family: type[Variant], *more: Variant | None) -> list[Changes]:
    values = [*shipped(family), *more]
    field = field_of(values[0])
    return [{field: value} for value in dict.fromkeys(values)]


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
    Ring: Ring(block=3),
    Randomized: Randomized(longest=40),
    T5Bias: T5Bias(num_buckets=8, max_distance=16),
    RelativeKeys: RelativeKeys(limit=3),
    TransformerXL: TransformerXL(limit=6),
    Contextual: Contextual(limit=3),
    ManifoldHyperConnections: ManifoldHyperConnections(iterations=3),
    LogLength: LogLength(trained=3),
    TopKExperts: TopKExperts(d_ff=24),
    TopKProbabilities: TopKProbabilities(d_ff=24),
    SigmoidTopK: SigmoidTopK(num_groups=2, bias_step=0.1, d_ff=24),
    ExpertChoice: ExpertChoice(d_ff=24),
    LinearAttention: LinearAttention(chunk=5),
    LightningAttention: LightningAttention(chunk=5),
    GatedLinearAttention: GatedLinearAttention(rank=3, chunk=5),
    HGRN2: HGRN2(lower_bound=0.1, chunk=5),
    DeltaNet: DeltaNet(chunk=5),
    GatedDeltaNet: GatedDeltaNet(chunk=5),
    KimiDeltaAttention: KimiDeltaAttention(chunk=5),
    DeltaProduct: DeltaProduct(num_key_heads=2, chunk=5),
    Mamba2: Mamba2(num_key_heads=2, chunk=5),
    MLSTM: MLSTM(chunk=5),
    RWKV7: RWKV7(rank=4, chunk=5),
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


ATTENTION = Attention(num_heads=4, num_kv_heads=2)
HYBRID = (GatedDeltaNet(chunk=5), ATTENTION)

_OPTIONS: dict[str, list[Changes]] = {
    "normalization": _each(
        Norm,
        LayerNorm(bias=False),
        LayerNorm(scale=False, bias=False),
        LayerNorm(zero_centered=True),
        RMSNorm(zero_centered=True),
        RMSNorm(fraction=0.25),
        RMSNorm(eps_outside=True, cast_first=True),
        None,
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
        {"residual": SandwichNorm(), "feed_forward.residual": PreNorm()},
        {"residual": Fixup(), "mixer.inner_norm": Shift(), "feed_forward.inner_norm": Shift()},
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
                    YaRNByPair(original_length=8),
                    Llama3Scaling(original_length=8),
                )
            ),
            T5Bias(num_buckets=8, max_distance=16, shared=False),
            RelativeKeys(limit=3, values=True),
            Randomized(scheme=RoPE(), longest=40),
            None,
        ),
        {"position": RoPE(), "memory_length": 3},
    ],
    "attention": [
        *_each(Normalizer),
        *_each(ScoreMod),
        *({"mixer.heads": heads} for heads in shipped(Heads) if not isinstance(heads, LatentHeads)),
        *_each(Scale),
        *({"mixer.projection": projection, "mixer.num_kv_heads": None} for projection in shipped(Projection)),
        *_each(Merge),
        *_each(Sparsity),
        *({"mixer.backend": kind} for kind in shipped(Backend) if not kind.recurrent),
        *({"mixer.backend": Recurrent(3), "mixer.normalizer": kind} for kind in shipped(Normalizer) if kind.linear),
        {"mixer.heads": LatentHeads(rank=6, rotary=4), "mixer.num_kv_heads": None},
        {"mixer.heads": LatentQueryHeads(rank=6, rotary=4, query_rank=4), "mixer.num_kv_heads": None},
        {"mixer.heads": RandomSynthesizer(length=12, rank=3)},
        {"mixer.heads": DenseSynthesizer(length=12, dot_product=True)},
        {"mixer.heads": DenseSynthesizer(length=12, columns=4)},
        {"mixer.heads": DenseSynthesizer(length=12, dot_product=True, weighted=True)},
        {"mixer.heads": RandomSynthesizer(length=12, dot_product=True)},
        {"mixer.sparsity": SlidingWindow(3, sinks=2)},
        {"mixer.sharing": ScoreResidual()},
        {"mixer.sharing": ValueResidual()},
        {"mixer.sharing": ValueEmbeddings()},
        {"mixer.sharing": GatedValueEmbeddings()},
        {"pattern": (Alternate("mixer.sharing", (None, GatedValueEmbeddings())),)},
        {"pattern": (Alternate("mixer.sharing", (None, SharedKeyValues())),)},
        *({"mixer.parts": (part,)} for part in shipped(Part)),
        {"mixer.parts": (OutputGate(headwise=True),)},
        {"mixer.parts": (OutputGate(headwise=True, features=4),)},
        {"mixer.parts": (QKNorm(LayerNorm()), *(part for part in shipped(Part) if part != QKNorm()))},
        {"mixer.num_kv_heads": None},
        {"mixer.num_kv_heads": 1},
        {"mixer.num_kv_heads": None, "mixer.head_dim": 4},
    ],
    "structure": [
        *_each(BlockLayout),
        *({"mixer": mixer} for mixer in shipped(Mixer) if not isinstance(mixer, Attention)),
        {"mixer": Convolution(width=3)},
        {"mixer": HGRN(lower_bound=0.3)},
        {"mixer": LightningAttention(decays="retnet")},
        {"mixer": GatedDeltaNet(negative_eigenvalues=True, convolution=None, num_key_heads=2, value_dim=6)},
        {"mixer": DeltaProduct(forgets=False)},
        {"mixer": RGLRU(hidden_dim=24, convolution=2)},
        {"mixer": ATTENTION, "pattern": (Alternate("mixer", HYBRID),)},
        {"mixer": None},
        {"feed_forward": None},
        *_each(
            FeedForward,
            CanonFeedForward(before=None, inside=2, activation=GLU(), d_ff=24),
            TopKExperts(top=1, d_ff=24),
            TopKExperts(shared=1, d_ff=24),
            TopKExperts(bias_step=0.1, d_ff=24),
            TopKExperts(bias=True, d_ff=24),
            ExpertChoice(shared=1, d_ff=24),
        ),
        *_each(Layers, Scanned(remat="full")),
        *_each(Weights, LowRank(rank=3)),
        *_each(HeadTransform),
        *_each(Downsampling),
        {"head.bias": True},
        {"head.score_mod": SoftCap(2.0)},
        {"embedding.types": 2},
        {"head.tied": True},
        {"embedding.dim": 6},
        {"embedding.unit_length": True},
        {"distinct_layers": 1},
        {"pattern": (Alternate("mixer.sparsity", (SlidingWindow(3), None)),)},
        {"pattern": (Alternate("position", (RoPE(), None)),)},
        {"pattern": (Alternate("residual", (PostNorm(), PreNorm())),)},
        {"pattern": (Alternate("feed_forward", (None, TopKExperts(d_ff=24))),), "feed_forward": FeedForward()},
        {"mixer.inner_norm": GroupNorm(4), "feed_forward.inner_norm": RMSNorm()},
        {"mixer.bias": ("query", "value", "out"), "feed_forward.bias": True},
    ],
}


def _distinct(options: list[Changes]) -> list[Changes]:
    """The options without duplicate models; the plain model comes first, without changes."""
    plain = small()
    changes = [{n: v for n, v in option.items() if _at(plain, n) != v} for option in _sized(options)]
    return list({str(option): option for option in ({}, *changes)}.values())


def _at(config: Any, path: str) -> Any:
    """The value at a dotted path."""
    return functools.reduce(getattr, path.split("."), config)


FAMILIES = {name: _distinct(options) for name, options in _OPTIONS.items()}
"""Changes to a plain model, family by family; the first of each are none."""


def _factors(families: dict[str, list[Changes]]) -> dict[str, list[Changes]]:
    """Families split where options of one may occur in a model together."""
    heads = {"heads", "projection", "merge", "num_kv_heads", "parts"}
    ends = {"head.transform", "head.bias", "head.score_mod", "head.tied"}
    ends |= {"embedding.types", "embedding.dim", "embedding.unit_length"}
    parts = {
        "placement": {"ends of the stream": {"embedding_norm", "final_norm"}},
        "attention": {
            "sparsity": {"mixer.sparsity"},
            "sharing": {"mixer.sharing", "pattern"},
            "heads": {f"mixer.{name}" for name in heads},
        },
        "structure": {"ends": ends, "loop": {"layers", "distinct_layers"}, "weights": {"weights"}},
    }
    factors = dict(families)
    for family, fields in parts.items():
        taken = {name: [o for o in families[family] if set(o) & own] for name, own in fields.items()}
        factors[family] = [o for o in families[family] if not any(o in options for options in taken.values())]
        factors |= {name: [{}, *options] for name, options in taken.items()}
    return factors


FACTORS = _factors(FAMILIES)
"""The factors of combinations: the families, with placement, attention and structure split into independent parts."""
