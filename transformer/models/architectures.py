"""Configs of the other kinds of models: encoder-decoder, classifier, and transformers of image patches."""

import math
from dataclasses import dataclass, fields, replace

import jax
import jax.numpy as jnp

from transformer.core.values import ConfigError
from transformer.models.checks import nearest_divisor
from transformer.models.config import ModelConfig
from transformer.models.downsampling import FullResolution, Resolution
from transformer.models.pooling import MeanPooling, Pooling
from transformer.residuals.residual import Residual


def _refuse_token_values(config: ModelConfig) -> None:
    if "token_values" in config.carries:
        raise ConfigError("model.carry: value_embeddings is for language models; use values")


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(ModelConfig):
    """An encoder of the source and a causal decoder of the target that attends to it."""

    sizes = (
        *ModelConfig.sizes,
        "source_vocab_size",
        "max_source_length",
        "num_encoder_layers",
        "distinct_encoder_layers",
    )
    source_vocab_size: int | None = None
    """Number of source token types; None: as many as the tokenizer of the data has."""
    max_source_length: int = 64
    """Longest source, in tokens; `max_length` is the longest target."""
    num_encoder_layers: int | None = None
    """Blocks of the encoder; None: as many as the decoder has (num_layers)."""
    distinct_encoder_layers: int | None = None
    """Blocks of the encoder with parameters of their own, as `distinct_layers`; None: as that says for both."""
    encoder_resolution: Resolution = FullResolution()
    """Whether layers of the encoder see a shortened source."""
    registers: int = 0
    """Trained vectors before the source, which the decoder sees too (Burtsev et al. 2020)."""
    share_embeddings: bool = False
    """Whether source and target tokens share one table (with tie_embeddings, the output projection too)."""

    def __post_init__(self):
        super().__post_init__()
        if not self.causal:
            raise ConfigError("model.causal: the decoder of an encoder-decoder is causal")
        _ = self.encoder  # has its own checks
        _refuse_token_values(self)
        if not self.resolution.whole:
            raise ConfigError(
                f"model.resolution: {self.resolution} has no cache of layers with a source; set encoder_resolution"
            )
        if self.registers < 0:
            raise ConfigError(f"model.registers: {self.registers} is negative")
        if self.token_types is not None:
            raise ConfigError("model.token_types: an encoder-decoder has no types of tokens")
        if not self.block.attends:
            raise ConfigError(f"model.block: the decoder of {self.block} has no attention; use sequential")
        if self.weighting.relative:
            raise ConfigError(f"model.weighting: {self.weighting} compares positions of source and target; use softmax")
        if self.share_embeddings and self.source_vocab_size != self.vocab_size:
            raise ConfigError(
                f"model.share_embeddings: {self.source_vocab_size} source types and {self.vocab_size} target types "
                "are not one vocabulary"
            )

    def example_inputs(self):
        """Shapes of a source and a target of full length."""
        return (jax.ShapeDtypeStruct((1, self.max_source_length), jnp.int32), *super().example_inputs())

    @property
    def branches(self) -> int:
        """Number of residual branches of the decoder, with attention to the source."""
        return self.num_layers * (len(self.block.connections) + 1)

    @property
    def encoder(self) -> ModelConfig:
        """The config of the encoder."""
        own = {f.name: getattr(self, f.name) for f in fields(ModelConfig)}
        num_layers = self.num_encoder_layers or self.num_layers

        def residual(one: Residual) -> Residual:
            return one.of_encoder(num_layers, self.num_layers)

        beside = self.feed_forward_residual
        return ModelConfig(
            **own
            | {
                "causal": False,
                "vocab_size": self.source_vocab_size,
                "max_length": self.max_source_length + self.registers,
                "resolution": self.encoder_resolution,
                "num_layers": num_layers,
                "distinct_layers": self.distinct_encoder_layers or self.distinct_layers,
                "residual": residual(self.residual),
                "feed_forward_residual": None if beside is None else residual(beside),
                "pattern": replace(self.pattern, residual=tuple(map(residual, self.pattern.residual))),
            }
        )


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(ModelConfig):
    """An encoder, a pooling of its tokens (or a class for each token), and a linear layer to the classes."""

    sizes = (*ModelConfig.sizes, "num_classes")
    causal: bool = False
    num_classes: int | None = None
    """Number of classes; None: as many as the data has."""
    registers: int = 0
    """Trained vectors before the tokens, whose outputs are ignored (Burtsev et al. 2020; Darcet et al. 2023)."""
    pooling: Pooling = MeanPooling()
    """How the tokens of a sequence become one vector; `none`: each token has its own class."""

    @property
    def extra_tokens(self) -> int:
        """Trained vectors before the tokens: the registers, and the token of the pooling where it has one."""
        return self.registers + self.pooling.extra_token

    def __post_init__(self):
        super().__post_init__()
        _refuse_token_values(self)
        if self.registers < 0:
            raise ConfigError(f"model.registers: {self.registers} is negative")
        if self.causal and self.registers:
            raise ConfigError("model.registers: they stand before all tokens and in a causal model see none of them")
        if self.causal and self.pooling.reads_first:
            raise ConfigError(
                f"model.pooling: the first token, which {self.pooling} reads, sees no other in a causal model; use mean"
            )
        if used := _changed(self, "readout", "output_bias", "logit_score"):
            raise ConfigError(f"model.{used}: it applies to logits of tokens, and this model has those of classes")


def _changed(config: ModelConfig, *names: str) -> str:
    """The name of the first of the fields that is not at its default; empty if all are."""
    return next((name for name in names if getattr(config, name) != getattr(ModelConfig, name)), "")


@dataclass(frozen=True, kw_only=True)
class PatchConfig(ModelConfig):
    """A transformer of image patches (Dosovitskiy et al. 2020)."""

    sizes = (*ModelConfig.sizes, "patch_size")
    causal: bool = False
    image_size: tuple[int, ...] | None = None
    """Height, width and channels; None: those of the data."""
    patch_size: int = 4
    """Side of a square patch, in pixels."""

    def __post_init__(self):
        super().__post_init__()
        _refuse_token_values(self)
        tables = ("embedding_dim", "unit_embeddings", "scale_embeddings", "token_types")
        if used := _changed(self, "readout", "output_bias", "logit_score", *tables):
            raise ConfigError(f"model.{used}: it applies to tokens, and this model reads patches")

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches.

        Raises:
          ConfigError: the image size is not known, or the patches do not fill it.
        """
        if self.image_size is None:
            raise ConfigError("model.image_size is not set: there is no data here to take it from")
        height, width, _ = self.image_size
        if height % self.patch_size or width % self.patch_size:
            raise ConfigError(
                f"model.patch_size: patches of {self.patch_size} do not fill images of {height} × {width}; the "
                f"nearest that do have {nearest_divisor(math.gcd(height, width), self.patch_size)}"
            )
        return height // self.patch_size, width // self.patch_size

    @property
    def patch_dim(self) -> int:
        """Number of values in a patch: pixels times channels."""
        return self.patch_size**2 * (self.image_size or (0, 0, 0))[2]

    def example_inputs(self):
        """The shape of one image."""
        _ = self.grid
        assert self.image_size is not None
        return (jax.ShapeDtypeStruct((1, *self.image_size), jnp.float32),)


@dataclass(frozen=True, kw_only=True)
class AutoencoderConfig(PatchConfig):
    """An encoder that sees only the shown patches of an image, and a decoder of all patches (MAE, He et al. 2021)."""

    sizes = (*PatchConfig.sizes, "num_decoder_layers")
    num_decoder_layers: int = 2
    """Blocks of the decoder, as wide as those of the encoder."""

    def __post_init__(self):
        super().__post_init__()
        if self.num_decoder_layers % self.pattern.period or (self.distinct_layers or 1) > self.num_decoder_layers:
            raise ConfigError(
                f"model.num_decoder_layers: {self.num_decoder_layers} do not fit {self.pattern} and distinct_layers "
                f"{self.distinct_layers}"
            )


@dataclass(frozen=True, kw_only=True)
class VisionConfig(PatchConfig, ClassifierConfig):
    """A vision transformer: patches, encoder, pooling, classes."""

    sizes = (*PatchConfig.sizes, "num_classes")
