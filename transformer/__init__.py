"""A laboratory for transformers: every choice is a value, every comparison an experiment.

import transformer as T

config = T.preset("nanogpt-cpu").replace({"model.norm": T.RMSNorm()})
model = T.LanguageModel(config.model.replace(vocab_size=65), key=jax.random.key(0))
params, apply = T.split(model)
"""

import importlib
from typing import TYPE_CHECKING

from transformer.activations.activation import (
    CELU,
    ELU,
    GELU,
    GLU,
    SELU,
    Activation,
    LeakyReLU,
    Linear,
    Mish,
    QuickGELU,
    ReLU,
    Sigmoid,
    SiLU,
    Softplus,
    SoLU,
    SquaredReLU,
    Squareplus,
    Swish,
    Tanh,
)
from transformer.analysis.activations import activation_names, intervene, run_with_cache, stacked
from transformer.analysis.bleu import Bleu, bleu4
from transformer.analysis.breakdown import breakdown
from transformer.analysis.counts import (
    cache_bytes,
    forward_flops,
    forward_flops_per_token,
    parameter_count,
    train_flops,
    train_flops_per_token,
)
from transformer.analysis.depth import norms_by_layer, rank_collapse, receptive_field, root_mean_square
from transformer.analysis.heads import (
    attention_distance,
    attention_entropy,
    induction_scores,
    previous_token_scores,
    repeated_tokens,
)
from transformer.analysis.interventions import ablate_heads, patch, patching_effects
from transformer.analysis.lenses import logit_attribution, logit_lens
from transformer.core.modules import abstract, initialize, specs, split
from transformer.core.parameters import Constant, FanIn, FirstRow, Identity, Initializer, Normal, Parameter, Xavier
from transformer.core.values import ConfigError, Variant, from_json, replace, to_json, to_text
from transformer.data.algorithmic import (
    Addition,
    AlgorithmicTask,
    AssociativeRecall,
    Copy,
    Induction,
    ListOps,
    ModularArithmetic,
    Reverse,
    Sort,
)
from transformer.data.corpus import Blocks, Corpus, load_corpus
from transformer.data.dataset import Batches, Dataset, load_data
from transformer.data.labelled import ClassificationRun, LabelledConfig
from transformer.data.packing import pack
from transformer.data.pairs import Pairs, PairsConfig, TranslationRun
from transformer.data.pictures import ImageConfig, ImagePairConfig, ImagePairRun, ReconstructionRun, VisionRun
from transformer.data.puzzles import AlgorithmicConfig, AlgorithmicRun
from transformer.data.spans import SpanConfig, SpanRun
from transformer.data.tagged import TaggedConfig, TaggingRun
from transformer.data.tokenizers import ByteTokenizer, CharTokenizer, SymbolTokenizer, TrainedTokenizer, make_tokenizer
from transformer.feed_forwards.feed_forward import DenseFeedForward, ExpertChoice, FeedForwardKind, TopKExperts
from transformer.functional.attention import Attended, attention
from transformer.functional.biases import LinearDistance
from transformer.functional.cache import Cache
from transformer.functional.chunked_attention import chunked_attention
from transformer.functional.masks import (
    Arbitrary,
    BlockDiffusion,
    Causal,
    Full,
    Mask,
    Padding,
    Prefix,
    Segment,
    Tokens,
    Window,
)
from transformer.functional.segment_memory import Earlier
from transformer.inference.beam import Beam
from transformer.inference.generate import generate
from transformer.inference.processors import Forbidden, History, MinimumLength, NoRepeat, Processor, RepetitionPenalty
from transformer.inference.scoring import sequence_log_probability, sliding_log_probabilities
from transformer.inference.speculative import speculate
from transformer.inference.strategies import Strategy
from transformer.inference.tokenwise import Greedy, Sample
from transformer.mixers.attention.backends import AttentionImplementation, Chunked, Exact, Fused, Recurrent
from transformer.mixers.attention.heads import DifferentialHeads, Heads, HeadSizes, LatentHeads, PlainHeads
from transformer.mixers.attention.normalizers import (
    LinearWeighting,
    LogLength,
    Performer,
    PlainScore,
    ReLUWeighting,
    Retention,
    Score,
    SigmoidWeighting,
    Sink,
    SoftCap,
    SoftmaxOne,
    SoftmaxWeighting,
    TalkingHeads,
    Weighting,
)
from transformer.mixers.attention.projections import (
    Concatenate,
    ConcatenateOnly,
    ConstantScale,
    InverseRootScale,
    InverseScale,
    LearnedScale,
    Merge,
    NoProjections,
    Projection,
    Scale,
    SeparateProjections,
    SumHeads,
    TiedProjections,
)
from transformer.mixers.attention.sharing import (
    Carry,
    NoCarry,
    ScoreResidual,
    SharedKeyValues,
    ValueEmbeddings,
    ValueResidual,
)
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
from transformer.mixers.attention.synthesizers import DenseSynthesizer, RandomSynthesizer, Synthesizer
from transformer.models.architectures import (
    AutoencoderConfig,
    ClassifierConfig,
    EncoderDecoderConfig,
    PatchConfig,
    VisionConfig,
)
from transformer.models.blocks import (
    AttentionOnly,
    BlockLayout,
    FeedForwardOnly,
    Fourier,
    Macaron,
    Parallel,
    ParallelNorms,
    Sequential,
)
from transformer.models.build import build, pure_model
from transformer.models.classifier import Classifier, VisionTransformer
from transformer.models.config import ModelConfig
from transformer.models.downsampling import FullResolution, Hourglass, Latents, Resolution
from transformer.models.early_exit import early_exit
from transformer.models.encoder import Encoder
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.models.image_to_image import ImageToImage
from transformer.models.language_model import LanguageModel
from transformer.models.layers import Layers, Scanned, Unrolled
from transformer.models.patches import resize_positions
from transformer.models.pattern import Pattern
from transformer.models.pooling import (
    AttentionPooling,
    ClassToken,
    FirstToken,
    MeanPooling,
    MultiheadPooling,
    NoPooling,
    Pooling,
)
from transformer.models.readouts import DenseReadout, PlainReadout, Readout
from transformer.norms.group_norm import GroupNorm
from transformer.norms.norm import LayerNorm, NoNorm, Norm, RMSNorm
from transformer.norms.scale_norm import ScaleNorm
from transformer.norms.sequence_norm import SequenceLayerNorm
from transformer.norms.without_statistics import Derf, DyT, Shift
from transformer.objectives.classes import Classification, TokenClassification
from transformer.objectives.objective import NextToken, Objective, Sums
from transformer.objectives.pairs import SequenceToSequence
from transformer.objectives.pictures import Reconstruction
from transformer.objectives.tokens import MaskedToken, MultiToken, PrefixToken
from transformer.positions.absolute import Learned, QueryKeySinusoidal, Sinusoidal, Sinusoidal2D, StepSinusoidal
from transformer.positions.contextual import Contextual, Forgetting
from transformer.positions.position import NoPosition, Position
from transformer.positions.randomized import Randomized
from transformer.positions.relative import FIRE, KERPLE, ALiBi, RelativeKeys, T5Bias, TransformerXL
from transformer.positions.rotary import (
    LinearScaling,
    Llama3Scaling,
    NoScaling,
    NTKScaling,
    RoPE,
    RoPE2D,
    RoPEScaling,
    XPos,
    YaRN,
)
from transformer.residuals.multi_stream import (
    Backout,
    EmbeddingSkip,
    HyperConnections,
    ManifoldHyperConnections,
    ResiDual,
    UNet,
)
from transformer.residuals.residual import (
    Algebra,
    BranchNorm,
    DeepNorm,
    NoNormResidual,
    PeriNorm,
    PostNorm,
    PreNorm,
    Residual,
    SandwichNorm,
    ScaledPreNorm,
    SubNorm,
)
from transformer.residuals.scaled_branches import Fixup, LayerScale, ReZero, TFixup
from transformer.runs.config import Replica, RunConfig, fingerprint, grid
from transformer.runs.data import DataConfig, TextConfig
from transformer.runs.mesh import HostsConfig, MeshConfig, Shard
from transformer.runs.mup import mup
from transformer.runs.optimizer import OptimizerConfig, ParameterGroup
from transformer.runs.presets import PRESETS, preset
from transformer.runs.rules import SGD, Adafactor, AdamW, Lion, Muon, ScheduleFree, UpdateRule
from transformer.runs.schedules import ConstantRate, Cosine, InverseSquareRoot, LinearDecay, Schedule, WarmupStableDecay
from transformer.runs.tokenizers import BPE, Byte, ByteBPE, Char, FromFile, Symbols, Tokenization, Word, WordPiece
from transformer.training.loop import Outcome, train
from transformer.training.optimizer import Numbers, make_optimizer, stack_numbers
from transformer.training.replicas import over_replicas, repeat
from transformer.training.sharding import DATA_PARALLEL, FULLY_SHARDED, TENSOR_PARALLEL, make_mesh
from transformer.training.step import TrainState, create_train_state, make_train_step
from transformer.training.stored import StoredRun, load_run

if TYPE_CHECKING:
    from transformer.analysis.plots import (
        attention_maps,
        forest,
        heat_map,
        learning_rate_curves,
        loss_curves,
        position_similarity,
    )
    from transformer.study.engines import DaskEngine, Engine, LocalEngine, SchedulerEngine
    from transformer.study.probes import Probe
    from transformer.study.report import Report
    from transformer.study.study import Study


__all__ = [
    "BPE",
    "CELU",
    "DATA_PARALLEL",
    "ELU",
    "FIRE",
    "FULLY_SHARDED",
    "GELU",
    "GLU",
    "KERPLE",
    "PRESETS",
    "SELU",
    "SGD",
    "TENSOR_PARALLEL",
    "ALiBi",
    "Activation",
    "Adafactor",
    "AdamW",
    "Addition",
    "Algebra",
    "AlgorithmicConfig",
    "AlgorithmicRun",
    "AlgorithmicTask",
    "Arbitrary",
    "AssociativeRecall",
    "Attended",
    "AttentionImplementation",
    "AttentionOnly",
    "AttentionPooling",
    "AutoencoderConfig",
    "Backout",
    "Batches",
    "Beam",
    "BigBird",
    "Bleu",
    "BlockDiffusion",
    "BlockLayout",
    "Blocks",
    "BranchNorm",
    "Byte",
    "ByteBPE",
    "ByteTokenizer",
    "Cache",
    "Carry",
    "Causal",
    "Char",
    "CharTokenizer",
    "Chunked",
    "ClassToken",
    "Classification",
    "ClassificationRun",
    "Classifier",
    "ClassifierConfig",
    "Concatenate",
    "ConcatenateOnly",
    "ConfigError",
    "Constant",
    "ConstantRate",
    "ConstantScale",
    "Contextual",
    "Copy",
    "Corpus",
    "Cosine",
    "DaskEngine",
    "DataConfig",
    "Dataset",
    "DeepNorm",
    "DenseFeedForward",
    "DenseReadout",
    "DenseSynthesizer",
    "Derf",
    "DifferentialHeads",
    "DilatedWindow",
    "DyT",
    "Earlier",
    "EmbeddingSkip",
    "Encoder",
    "EncoderDecoder",
    "EncoderDecoderConfig",
    "Engine",
    "Exact",
    "ExpertChoice",
    "FanIn",
    "FeedForwardKind",
    "FeedForwardOnly",
    "FirstRow",
    "FirstToken",
    "Fixed",
    "Fixup",
    "Forbidden",
    "Forgetting",
    "Fourier",
    "FromFile",
    "Full",
    "FullReach",
    "FullResolution",
    "Fused",
    "GlobalTokens",
    "Greedy",
    "GroupNorm",
    "HeadSizes",
    "Heads",
    "History",
    "HostsConfig",
    "Hourglass",
    "HyperConnections",
    "Identity",
    "ImageConfig",
    "ImagePairConfig",
    "ImagePairRun",
    "ImageToImage",
    "Induction",
    "Initializer",
    "InverseRootScale",
    "InverseScale",
    "InverseSquareRoot",
    "LabelledConfig",
    "LanguageModel",
    "LatentHeads",
    "Latents",
    "LayerNorm",
    "LayerScale",
    "Layers",
    "LeakyReLU",
    "Learned",
    "LearnedScale",
    "Linear",
    "LinearDecay",
    "LinearDistance",
    "LinearScaling",
    "LinearWeighting",
    "Linformer",
    "Lion",
    "ListOps",
    "Llama3Scaling",
    "LocalBlocks",
    "LocalEngine",
    "LogLength",
    "Macaron",
    "ManifoldHyperConnections",
    "Mask",
    "MaskedToken",
    "MeanPooling",
    "Merge",
    "MeshConfig",
    "MinimumLength",
    "Mish",
    "ModelConfig",
    "ModularArithmetic",
    "MultiToken",
    "MultiheadPooling",
    "Muon",
    "NTKScaling",
    "NextToken",
    "NoCarry",
    "NoNorm",
    "NoNormResidual",
    "NoPooling",
    "NoPosition",
    "NoProjections",
    "NoRepeat",
    "NoScaling",
    "Norm",
    "Normal",
    "Numbers",
    "Objective",
    "OptimizerConfig",
    "Outcome",
    "Padding",
    "Pairs",
    "PairsConfig",
    "Parallel",
    "ParallelNorms",
    "Parameter",
    "ParameterGroup",
    "PatchConfig",
    "Pattern",
    "Performer",
    "PeriNorm",
    "PlainHeads",
    "PlainReadout",
    "PlainScore",
    "Pooling",
    "Position",
    "PostNorm",
    "PreNorm",
    "Prefix",
    "PrefixToken",
    "Probe",
    "Processor",
    "Projection",
    "QueryKeySinusoidal",
    "QuickGELU",
    "RMSNorm",
    "RandomSynthesizer",
    "Randomized",
    "ReLU",
    "ReLUWeighting",
    "ReZero",
    "Reach",
    "Readout",
    "Reconstruction",
    "ReconstructionRun",
    "Recurrent",
    "RelativeKeys",
    "RepetitionPenalty",
    "Replica",
    "Report",
    "ResiDual",
    "Residual",
    "Resolution",
    "Retention",
    "Reverse",
    "RoPE",
    "RoPE2D",
    "RoPEScaling",
    "RunConfig",
    "Sample",
    "SandwichNorm",
    "Scale",
    "ScaleNorm",
    "ScaledPreNorm",
    "Scanned",
    "Schedule",
    "ScheduleFree",
    "SchedulerEngine",
    "Score",
    "ScoreResidual",
    "Segment",
    "SeparateProjections",
    "SequenceLayerNorm",
    "SequenceToSequence",
    "Sequential",
    "Shard",
    "SharedKeyValues",
    "Shift",
    "SiLU",
    "Sigmoid",
    "SigmoidWeighting",
    "Sink",
    "Sinusoidal",
    "Sinusoidal2D",
    "SlidingWindow",
    "SoLU",
    "SoftCap",
    "SoftmaxOne",
    "SoftmaxWeighting",
    "Softplus",
    "Sort",
    "SpanConfig",
    "SpanRun",
    "SquaredReLU",
    "Squareplus",
    "StepSinusoidal",
    "StoredRun",
    "Strategy",
    "Strided",
    "Study",
    "SubNorm",
    "SumHeads",
    "Sums",
    "Swish",
    "SymbolTokenizer",
    "Symbols",
    "Synthesizer",
    "T5Bias",
    "TFixup",
    "TaggedConfig",
    "TaggingRun",
    "TalkingHeads",
    "Tanh",
    "TextConfig",
    "TiedProjections",
    "TokenClassification",
    "Tokenization",
    "Tokens",
    "TopKExperts",
    "TrainState",
    "TrainedTokenizer",
    "TransformerXL",
    "TranslationRun",
    "UNet",
    "Unrolled",
    "UpdateRule",
    "ValueEmbeddings",
    "ValueResidual",
    "Variant",
    "VisionConfig",
    "VisionRun",
    "VisionTransformer",
    "WarmupStableDecay",
    "Weighting",
    "Window",
    "Word",
    "WordPiece",
    "XPos",
    "Xavier",
    "YaRN",
    "ablate_heads",
    "abstract",
    "activation_names",
    "attention",
    "attention_distance",
    "attention_entropy",
    "attention_maps",
    "bleu4",
    "breakdown",
    "build",
    "cache_bytes",
    "chunked_attention",
    "create_train_state",
    "early_exit",
    "fingerprint",
    "forest",
    "forward_flops",
    "forward_flops_per_token",
    "from_json",
    "generate",
    "grid",
    "heat_map",
    "induction_scores",
    "initialize",
    "intervene",
    "learning_rate_curves",
    "load_corpus",
    "load_data",
    "load_run",
    "logit_attribution",
    "logit_lens",
    "loss_curves",
    "make_mesh",
    "make_optimizer",
    "make_tokenizer",
    "make_train_step",
    "mup",
    "norms_by_layer",
    "over_replicas",
    "pack",
    "parameter_count",
    "patch",
    "patching_effects",
    "position_similarity",
    "preset",
    "previous_token_scores",
    "pure_model",
    "rank_collapse",
    "receptive_field",
    "repeat",
    "repeated_tokens",
    "replace",
    "resize_positions",
    "root_mean_square",
    "run_with_cache",
    "sequence_log_probability",
    "sliding_log_probabilities",
    "specs",
    "speculate",
    "split",
    "stack_numbers",
    "stacked",
    "to_json",
    "to_text",
    "train",
    "train_flops",
    "train_flops_per_token",
]


_LATE = {
    "DaskEngine": "study.engines",
    "Engine": "study.engines",
    "LocalEngine": "study.engines",
    "Report": "study.report",
    "SchedulerEngine": "study.engines",
    "Probe": "study.probes",
    "Study": "study.study",
    "attention_maps": "analysis.plots",
    "forest": "analysis.plots",
    "heat_map": "analysis.plots",
    "learning_rate_curves": "analysis.plots",
    "loss_curves": "analysis.plots",
    "position_similarity": "analysis.plots",
}


def __getattr__(name: str):
    """Loads names that need scipy or matplotlib on first use."""
    if name in _LATE:
        return getattr(importlib.import_module(f"transformer.{_LATE[name]}"), name)
    raise AttributeError(f"module 'transformer' has no attribute {name!r}")
