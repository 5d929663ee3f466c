"""A laboratory for transformers: every choice is a value, every comparison an experiment.

import transformer as T

config = T.preset("nanogpt-cpu").replace({"model.norm": T.RMSNorm()})
model = T.LanguageModel(config.model.replace(vocab_size=65), key=jax.random.key(0))
params, apply = T.split(model)
"""

from typing import TYPE_CHECKING

from transformer.analysis.counts import forward_flops_per_token, parameter_count, train_flops_per_token
from transformer.config.activations import GELU, GLU, Activation, Linear, ReLU, Sigmoid, SiLU
from transformer.config.implementations import AttentionImplementation, Chunked, Exact, Layers, Scanned, Unrolled
from transformer.config.model import ModelConfig
from transformer.config.norms import LayerNorm, NoNorm, Norm, RMSNorm
from transformer.config.parameters import Constant, FanIn, Initializer, Normal, Parameter
from transformer.config.positions import (
    ALiBi,
    Learned,
    NoPosition,
    Position,
    QueryKeySinusoidal,
    RoPE,
    Sinusoidal,
)
from transformer.config.presets import PRESETS, preset
from transformer.config.residuals import NoNormResidual, PostNorm, PreNorm, Residual, SandwichNorm
from transformer.config.run import DataConfig, ObjectiveConfig, OptimizerConfig, Replica, RunConfig, fingerprint, grid
from transformer.config.schedules import (
    ConstantRate,
    Cosine,
    InverseSquareRoot,
    LinearDecay,
    Schedule,
    WarmupStableDecay,
)
from transformer.config.variant import ConfigError, Variant, from_json, replace, to_json, to_text
from transformer.data.corpus import Batches, Corpus, load_corpus, with_vocabulary
from transformer.data.tokenizers import ByteTokenizer, CharTokenizer
from transformer.functional.attention import attention
from transformer.functional.biases import LinearDistance
from transformer.functional.chunked import chunked_attention
from transformer.functional.masks import Arbitrary, Causal, Full, Mask, Padding, Prefix, Segment, Tokens, Window
from transformer.inference.sampling import sample
from transformer.models.language_model import LanguageModel
from transformer.models.pure import abstract, initialize, specs, split
from transformer.training.loop import Outcome, train
from transformer.training.objective import next_token
from transformer.training.optimizer import Numbers, adamw, stack_numbers
from transformer.training.replicas import over_replicas, repeat, replica_mesh
from transformer.training.step import TrainState, create_train_state, make_train_step

if TYPE_CHECKING:
    from transformer.study.report import Report
    from transformer.study.study import Study


__all__ = [
    "GELU",
    "GLU",
    "PRESETS",
    "ALiBi",
    "Activation",
    "Arbitrary",
    "AttentionImplementation",
    "Batches",
    "ByteTokenizer",
    "Causal",
    "CharTokenizer",
    "Chunked",
    "ConfigError",
    "Constant",
    "ConstantRate",
    "Corpus",
    "Cosine",
    "DataConfig",
    "Exact",
    "FanIn",
    "Full",
    "Initializer",
    "InverseSquareRoot",
    "LanguageModel",
    "LayerNorm",
    "Layers",
    "Learned",
    "Linear",
    "LinearDecay",
    "LinearDistance",
    "Mask",
    "ModelConfig",
    "NoNorm",
    "NoNormResidual",
    "NoPosition",
    "Norm",
    "Normal",
    "Numbers",
    "ObjectiveConfig",
    "OptimizerConfig",
    "Outcome",
    "Padding",
    "Parameter",
    "Position",
    "PostNorm",
    "PreNorm",
    "Prefix",
    "QueryKeySinusoidal",
    "RMSNorm",
    "ReLU",
    "Replica",
    "Report",
    "Residual",
    "RoPE",
    "RunConfig",
    "SandwichNorm",
    "Scanned",
    "Schedule",
    "Segment",
    "SiLU",
    "Sigmoid",
    "Sinusoidal",
    "Study",
    "Tokens",
    "TrainState",
    "Unrolled",
    "Variant",
    "WarmupStableDecay",
    "Window",
    "abstract",
    "adamw",
    "attention",
    "chunked_attention",
    "create_train_state",
    "fingerprint",
    "forward_flops_per_token",
    "from_json",
    "grid",
    "initialize",
    "load_corpus",
    "make_train_step",
    "next_token",
    "over_replicas",
    "parameter_count",
    "preset",
    "repeat",
    "replace",
    "replica_mesh",
    "sample",
    "specs",
    "split",
    "stack_numbers",
    "to_json",
    "to_text",
    "train",
    "train_flops_per_token",
    "with_vocabulary",
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
