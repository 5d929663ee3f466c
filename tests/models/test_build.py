"""From a config to its model, of every kind."""

import dataclasses
from dataclasses import dataclass

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import transformer as T
from transformer.activations.activation import Activation, ReLU
from transformer.analysis.counts import parameter_count
from transformer.core.errors import ConfigError
from transformer.core.modules import split
from transformer.core.parameters import Normal
from transformer.embeddings.embedding import Embedding
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.inference.processors import Processor
from transformer.inference.tokenwise import Sample
from transformer.mixers.attention.attention import Attention
from transformer.models.build import build, pure_model
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
from transformer.norms.norm import RMSNorm
from transformer.positions.rotary import RoPE
from transformer.runs.config import RunConfig
from transformer.testing.subject import small

KEY = jax.random.key(0)
SUBLAYERS = {"mixer": Attention(num_heads=2), "feed_forward": FeedForward(d_ff=8)}
SIZES = {"vocab_size": 11, "max_length": 6, "num_layers": 1, "d_model": 8} | SUBLAYERS
LAWS = {"initializer": Normal(0.4), "embedding": Embedding(initializer=Normal(0.4)), "scale_residual_init": False}
SIMPLE = {"norm": RMSNorm(), "feed_forward": FeedForward(d_ff=8, activation=ReLU())}
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
SOURCE, TARGET = np.array([[7, 3, 9, 5]]), np.array([[1, 6, 2, 8, 4]])
IMAGE = np.random.default_rng(0).normal(size=(1, 4, 6, 2)).astype(np.float32)


def texts(**choices):
    return ModelConfig(**SIZES | LAWS | SIMPLE).replace(choices)


def pairs(**choices):
    sizes = SIZES | {"source_vocab_size": 11, "max_source_length": 6}
    return EncoderDecoderConfig(**sizes | LAWS | SIMPLE, position=RoPE()).replace(choices)


def classes(**choices):
    return ClassifierConfig(**SIZES | LAWS | SIMPLE, num_classes=3).replace(choices)


def patches(kind=PatchConfig, **choices):
    return kind(**SIZES | LAWS | SIMPLE, image_size=(4, 6, 2), patch_size=2).replace(choices)


def vectors(**choices):
    return VectorConfig(**SIZES | LAWS | SIMPLE, features=2, outputs=3).replace(choices)


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (ModelConfig(**SIZES), LanguageModel),
        (ModelConfig(**SIZES, causal=False), LanguageModel),
        (pairs(), EncoderDecoder),
        (classes(), Classifier),
        (patches(), ImageToImage),
        (patches(AutoencoderConfig), MaskedAutoencoder),
        (patches(VisionConfig, num_classes=3), VisionTransformer),
        (vectors(), VectorModel),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, ModelConfig) else "",
)
def test_the_type_of_a_config_says_which_model(config, kind):
    """`build` picks the class, and the example inputs are what it can be called with."""
    model = build(config, key=KEY)
    assert type(model) is kind
    assert jax.eval_shape(model, *model.config.example_inputs()).dtype == jnp.float32
    assert parameter_count(config) == sum(leaf.size for leaf in jax.tree.leaves(split(model)[0]))


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (dataclasses.replace(pairs(), vocab_size=None), "vocab_size"),
        (dataclasses.replace(pairs(), source_vocab_size=None), "vocab_size"),
        (classes(num_classes=None), "num_classes"),
        (patches(image_size=None), "image_size"),
        (patches(VisionConfig, num_classes=None), "num_classes"),
        (vectors(features=None), "features"),
        (vectors(outputs=None), "outputs"),
    ],
)
def test_what_no_data_has_filled_in_is_an_error(config, field):
    """Sizes that are still open are named when the model is built."""
    with pytest.raises(ConfigError, match=rf"model\.{field} is not set"):
        build(config, key=KEY)


@pytest.mark.parametrize(
    ("model", "needed", "config"),
    [
        (LanguageModel, ModelConfig, RunConfig()),
        (EncoderDecoder, EncoderDecoderConfig, texts()),
        (Classifier, ClassifierConfig, texts()),
        (ImageToImage, PatchConfig, texts()),
        (VisionTransformer, VisionConfig, patches()),
        (MaskedAutoencoder, AutoencoderConfig, patches()),
        (VectorModel, VectorConfig, texts()),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_config_of_another_kind_of_model(model, needed, config):
    """It is named, as is the one that is needed; nothing is made of it in part."""
    given = type(config).__name__
    with pytest.raises(ConfigError, match=f"^{model.__name__}: {needed.__name__} is needed, and {given} is given"):
        model(config, key=KEY)


LOGITS = {
    "tied": (texts, (TARGET,)),
    "untied": (lambda **more: texts(**{"head.tied": False} | more), (TARGET,)),
    "pairs": (pairs, (SOURCE, TARGET)),
    "classes": (classes, (TARGET,)),
    "patches": (patches, (IMAGE,)),
    "vectors": (vectors, (IMAGE[0],)),
}


@pytest.mark.parametrize("kind", LOGITS)
def test_the_scale_of_logits(kind):
    """A factor on what every model has in its output; biases are zero as yet."""
    make, inputs = LOGITS[kind]
    scaled, plain = (build(make(**more), key=KEY)(*map(jnp.asarray, inputs)) for more in ({"head.scale": 0.25}, {}))
    chex.assert_trees_all_close(4 * scaled, plain, rtol=1e-6)
    assert np.abs(plain).max() > 1e-2


def squashed(x):
    return x / (1 + jnp.abs(x))


@dataclass(frozen=True)
class Squashed(Activation):
    def __call__(self, x):
        return squashed(x)


@dataclass(frozen=True)
class Shifted(Processor):
    def __call__(self, logits, history):
        return squashed(logits)


def test_a_program_of_other_code_is_another_one(monkeypatch):
    """Of an own variant, and of an own way to decode, after an edit of a function that they use."""
    config = small(**{"feed_forward.activation": Squashed()})
    strategy = Sample(processors=(Shifted(),))
    prompt = np.ones((2, 3), np.int32)

    def found():
        params, apply = T.split(T.LanguageModel(config, key=jax.random.key(0)))[0], pure_model(config)[1]
        plain = pure_model(small())[1]
        score = T.generate(apply, params, prompt, num_tokens=4).log_probability_B
        chosen = T.generate(plain, params, prompt, num_tokens=4, strategy=strategy, key=jax.random.key(1))
        return np.asarray(score), np.asarray(chosen.log_probability_B), apply, plain

    first, same = found(), found()
    assert first[2] is same[2]
    monkeypatch.setitem(globals(), "squashed", lambda x: 9 * x)
    edited = found()
    assert edited[2] is not first[2]
    assert edited[3] is first[3]
    assert not np.isclose(edited[0], first[0]).any()
    assert not np.isclose(edited[1], first[1]).any()
