"""Builds the model of a config."""

import functools

import jax
from flax import nnx
from jax.typing import ArrayLike

from transformer.core.checks import check_kind
from transformer.core.modules import Apply, Params, abstract, at, initialize, split
from transformer.core.sources import Code, code_of
from transformer.models.classifier import Classifier, ClassifierConfig
from transformer.models.config import ModelConfig
from transformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transformer.models.images import (
    AutoencoderConfig,
    ImageToImage,
    MaskedAutoencoder,
    PatchConfig,
    VisionConfig,
    VisionTransformer,
)
from transformer.models.language_model import LanguageModel
from transformer.models.vectors import VectorConfig, VectorModel


@functools.singledispatch
def build(config: ModelConfig, *, key: jax.Array) -> nnx.Module:
    """The model that a config describes; the type of the config decides the kind of model.

    Args:
      config: with the sizes that data would set, such as `vocab_size`.
      key: decides the initial values.

    Raises:
      ConfigError: such a size is not set.
    """
    return LanguageModel(config, key=key)


build.register(EncoderDecoderConfig)(EncoderDecoder)
build.register(ClassifierConfig)(Classifier)
build.register(PatchConfig)(ImageToImage)
build.register(AutoencoderConfig)(MaskedAutoencoder)
build.register(VisionConfig)(VisionTransformer)
build.register(VectorConfig)(VectorModel)


def abstract_model(config: ModelConfig) -> nnx.Module:
    """The model of a config with shapes in place of arrays; nothing is computed."""
    return _abstract_model(config, code_of(config))


@functools.lru_cache(maxsize=8)
def _abstract_model(config: ModelConfig, code: Code) -> nnx.Module:
    return abstract(lambda key: build(config, key=key))


def initial_params(config: ModelConfig, key: jax.Array, scale: ArrayLike = 1.0) -> Params:
    """The parameters that a run of the seed of `key` begins from; a pure function for `jit` and `vmap`.

    Args:
      config: of the model.
      key: typed key, `jax.random.key(seed)`.
      scale: factor on every random value.
    """
    check_kind(config, ModelConfig, "initial_params")
    return initialize(lambda key: build(config, key=key), at(key, "params"), scale)


def pure_model(config: ModelConfig) -> tuple[Params, Apply]:
    """The shapes of a config's parameters, and its model as a pure function of them; nothing is computed.

    `apply` is the same object for equal configs whose own variants have the same code, so that what is compiled for it
    is compiled once.
    """
    check_kind(config, ModelConfig, "pure_model")
    return _pure_model(config, code_of(config))


@functools.lru_cache(maxsize=8)
def _pure_model(config: ModelConfig, code: Code) -> tuple[Params, Apply]:
    return split(_abstract_model(config, code))
