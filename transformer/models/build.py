"""From a config to its model."""

import functools

import jax
from flax import nnx

from transformer.config.architectures import ClassifierConfig, EncoderDecoderConfig, PatchConfig, VisionConfig
from transformer.config.model import ModelConfig
from transformer.models.classifier import Classifier, VisionTransformer
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.models.image_to_image import ImageToImage
from transformer.models.language_model import LanguageModel
from transformer.models.pure import Apply, Params, abstract, split


@functools.singledispatch
def build(config: ModelConfig, *, key: jax.Array) -> nnx.Module:
    """The model that a config describes: its type says which kind.

    Raises:
      ConfigError: `vocab_size` or another size that comes from the data is not set.
    """
    return LanguageModel(config, key=key)


build.register(EncoderDecoderConfig)(EncoderDecoder)
build.register(ClassifierConfig)(Classifier)
build.register(PatchConfig)(ImageToImage)
build.register(VisionConfig)(VisionTransformer)


@functools.lru_cache(maxsize=8)
def pure_model(config: ModelConfig) -> tuple[Params, Apply]:
    """The shapes of a config's parameters, and its model as a pure function of them; nothing is computed.

    `apply` is the same object for equal configs, so that what is compiled for it is compiled once.
    """
    return split(abstract(lambda key: build(config, key=key)))
