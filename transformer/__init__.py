"""A laboratory for transformers: every choice is a value, every comparison an experiment.

import transformer as T

config = T.preset("nanogpt-cpu").replace({"model.norm": T.RMSNorm()})
model = T.LanguageModel(config.model.replace(vocab_size=65), key=jax.random.key(0))
params, apply = T.split(model)
"""

from typing import TYPE_CHECKING

from transformer.analysis.bleu import Bleu, bleu4
from transformer.analysis.counts import (
    forward_flops,
    forward_flops_per_token,
    parameter_count,
    train_flops,
    train_flops_per_token,
)
from transformer.config.activations import GELU, GLU, Activation, Linear, ReLU, Sigmoid, SiLU
from transformer.config.attention import (
    Concatenate,
    ConcatenateOnly,
    ConstantScale,
    FullReach,
    InverseRootScale,
    InverseScale,
    LearnedScale,
    Merge,
    NoProjections,
    Projection,
    Reach,
    Scale,
    SeparateProjections,
    SlidingWindow,
    SumHeads,
    TiedProjections,
)
from transformer.config.implementations import AttentionImplementation, Chunked, Exact, Layers, Scanned, Unrolled
from transformer.config.model import ClassifierConfig, EncoderDecoderConfig, ModelConfig, PatchConfig, VisionConfig
from transformer.config.norms import LayerNorm, NoNorm, Norm, RMSNorm, SequenceLayerNorm
from transformer.config.objectives import (
    Classification,
    MaskedToken,
    NextToken,
    Objective,
    PrefixToken,
    Reconstruction,
    SequenceToSequence,
    Sums,
)
from transformer.config.parameters import Constant, FanIn, Initializer, Normal, Parameter, Xavier
from transformer.config.pooling import AttentionPooling, ClassToken, MeanPooling, Pooling
from transformer.config.positions import (
    ALiBi,
    Learned,
    NoPosition,
    Position,
    QueryKeySinusoidal,
    RoPE,
    Sinusoidal,
    Sinusoidal2D,
)
from transformer.config.presets import PRESETS, preset
from transformer.config.residuals import NoNormResidual, PostNorm, PreNorm, Residual, SandwichNorm
from transformer.config.run import DataConfig, OptimizerConfig, Replica, RunConfig, TextConfig, fingerprint, grid
from transformer.config.schedules import (
    ConstantRate,
    Cosine,
    InverseSquareRoot,
    LinearDecay,
    Schedule,
    WarmupStableDecay,
)
from transformer.config.tokenizers import BPE, Byte, ByteBPE, Char, Symbols, Tokenization, Word, WordPiece
from transformer.config.variant import ConfigError, Variant, from_json, replace, to_json, to_text
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
from transformer.data.pictures import ImageConfig, ReconstructionRun, VisionRun
from transformer.data.puzzles import AlgorithmicConfig, AlgorithmicRun
from transformer.data.tokenizers import ByteTokenizer, CharTokenizer, SymbolTokenizer, TrainedTokenizer, make_tokenizer
from transformer.functional.attention import attention
from transformer.functional.biases import LinearDistance
from transformer.functional.cache import Cache
from transformer.functional.chunked import chunked_attention
from transformer.functional.masks import Arbitrary, Causal, Full, Mask, Padding, Prefix, Segment, Tokens, Window
from transformer.inference.beam import Beam
from transformer.inference.generate import generate
from transformer.inference.scoring import sequence_log_probability
from transformer.inference.strategies import Strategy
from transformer.inference.tokenwise import Greedy, Sample
from transformer.models.build import build
from transformer.models.classifier import Classifier, VisionTransformer
from transformer.models.encoder import Encoder
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.models.image_to_image import ImageToImage
from transformer.models.language_model import LanguageModel
from transformer.models.pure import abstract, initialize, specs, split
from transformer.modules.patches import resize_positions
from transformer.training.loop import Outcome, train
from transformer.training.optimizer import Numbers, adamw, stack_numbers
from transformer.training.replicas import over_replicas, repeat, replica_mesh
from transformer.training.step import TrainState, create_train_state, make_train_step

if TYPE_CHECKING:
    from transformer.study.report import Report
    from transformer.study.study import Study


__all__ = [
    "BPE",
    "GELU",
    "GLU",
    "PRESETS",
    "ALiBi",
    "Activation",
    "Addition",
    "AlgorithmicConfig",
    "AlgorithmicRun",
    "AlgorithmicTask",
    "Arbitrary",
    "AssociativeRecall",
    "AttentionImplementation",
    "AttentionPooling",
    "Batches",
    "Beam",
    "Bleu",
    "Blocks",
    "Byte",
    "ByteBPE",
    "ByteTokenizer",
    "Cache",
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
    "Copy",
    "Corpus",
    "Cosine",
    "DataConfig",
    "Dataset",
    "Encoder",
    "EncoderDecoder",
    "EncoderDecoderConfig",
    "Exact",
    "FanIn",
    "Full",
    "FullReach",
    "Greedy",
    "ImageConfig",
    "ImageToImage",
    "Induction",
    "Initializer",
    "InverseRootScale",
    "InverseScale",
    "InverseSquareRoot",
    "LabelledConfig",
    "LanguageModel",
    "LayerNorm",
    "Layers",
    "Learned",
    "LearnedScale",
    "Linear",
    "LinearDecay",
    "LinearDistance",
    "ListOps",
    "Mask",
    "MaskedToken",
    "MeanPooling",
    "Merge",
    "ModelConfig",
    "ModularArithmetic",
    "NextToken",
    "NoNorm",
    "NoNormResidual",
    "NoPosition",
    "NoProjections",
    "Norm",
    "Normal",
    "Numbers",
    "Objective",
    "OptimizerConfig",
    "Outcome",
    "Padding",
    "Pairs",
    "PairsConfig",
    "Parameter",
    "PatchConfig",
    "Pooling",
    "Position",
    "PostNorm",
    "PreNorm",
    "Prefix",
    "PrefixToken",
    "Projection",
    "QueryKeySinusoidal",
    "RMSNorm",
    "ReLU",
    "Reach",
    "Reconstruction",
    "ReconstructionRun",
    "Replica",
    "Report",
    "Residual",
    "Reverse",
    "RoPE",
    "RunConfig",
    "Sample",
    "SandwichNorm",
    "Scale",
    "Scanned",
    "Schedule",
    "Segment",
    "SeparateProjections",
    "SequenceLayerNorm",
    "SequenceToSequence",
    "SiLU",
    "Sigmoid",
    "Sinusoidal",
    "Sinusoidal2D",
    "SlidingWindow",
    "Sort",
    "Strategy",
    "Study",
    "SumHeads",
    "Sums",
    "SymbolTokenizer",
    "Symbols",
    "TextConfig",
    "TiedProjections",
    "Tokenization",
    "Tokens",
    "TrainState",
    "TrainedTokenizer",
    "TranslationRun",
    "Unrolled",
    "Variant",
    "VisionConfig",
    "VisionRun",
    "VisionTransformer",
    "WarmupStableDecay",
    "Window",
    "Word",
    "WordPiece",
    "Xavier",
    "abstract",
    "adamw",
    "attention",
    "bleu4",
    "build",
    "chunked_attention",
    "create_train_state",
    "fingerprint",
    "forward_flops",
    "forward_flops_per_token",
    "from_json",
    "generate",
    "grid",
    "initialize",
    "load_corpus",
    "load_data",
    "make_tokenizer",
    "make_train_step",
    "over_replicas",
    "pack",
    "parameter_count",
    "preset",
    "repeat",
    "replace",
    "replica_mesh",
    "resize_positions",
    "sequence_log_probability",
    "specs",
    "split",
    "stack_numbers",
    "to_json",
    "to_text",
    "train",
    "train_flops",
    "train_flops_per_token",
]


def __getattr__(name: str):
    """The study engine brings scipy and matplotlib, so it is loaded when it is first named."""
    if name == "Study":
        from transformer.study.study import Study

        return Study
    if name == "Report":
        from transformer.study.report import Report

        return Report
    raise AttributeError(f"module 'transformer' has no attribute {name!r}")
