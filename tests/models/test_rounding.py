"""What bfloat16 leaves of gradients that are sums over many tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.embeddings.embedding import Head
from transformer.embeddings.head_transforms import DenseTransform
from transformer.feed_forwards.canon import CanonFeedForward
from transformer.functional.normalizers import elu_features
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.gates import HeadScale
from transformer.mixers.attention.heads import DifferentialHeads
from transformer.mixers.attention.short_convolution import CanonA, ShortConvolution
from transformer.mixers.recurrent.rg_lru import RGLRU
from transformer.models.build import initial_params, pure_model
from transformer.models.classifier import ClassifierConfig
from transformer.models.config import ModelConfig
from transformer.models.images import AutoencoderConfig, PatchConfig
from transformer.norms.without_statistics import Shift
from transformer.objectives.objective import NextToken
from transformer.objectives.pictures import Reconstruction
from transformer.residuals.scaled_branches import Fixup

BIASED = Attention(num_heads=2, bias=("query", "key", "value", "out"), parts=(HeadScale(),))
MODELS = {
    "biases": {"mixer": BIASED, "feed_forward.bias": True, "head": Head(tied=False, transform=DenseTransform())},
    "fixup": {"mixer": BIASED, "residual": Fixup(), "norm": Shift()},
    "rg_lru": {"mixer": RGLRU(blocks=2), "position": None},
    "convolutions": {
        "mixer": Attention(num_heads=2, parts=(CanonA(), ShortConvolution())),
        "feed_forward": CanonFeedForward(d_ff=32),
    },
    "differential": {"mixer": Attention(num_heads=2, heads=DifferentialHeads())},
}


def check_whole(config, objective, batch):
    """The gradients of a model in bfloat16 are as long as those in float32, in the direction of these."""
    rng = np.random.default_rng(0)
    params = initial_params(config, jax.random.key(0))
    params = jax.tree.map(lambda a: a + jnp.asarray(0.05 * rng.normal(size=a.shape), jnp.float32), params)

    def gradient(dtype):
        _, apply = pure_model(config.replace(dtype=dtype))
        return jax.jit(jax.grad(lambda own: objective(apply, own, batch, None).loss.sum()))(params)

    exact, rounded = (jax.tree.leaves_with_path(gradient(dtype)) for dtype in ("float32", "bfloat16"))
    largest = max(float(jnp.linalg.norm(leaf)) for _, leaf in exact)
    for (path, expected), (_, found) in zip(exact, rounded, strict=True):
        square = float((expected**2).sum())
        if square > (1e-3 * largest) ** 2:
            assert float((expected * found).sum()) / square == pytest.approx(1, abs=0.1), jax.tree_util.keystr(path)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_parameters_that_stand_at_every_token_are_whole(name):
    """Of 8,192 tokens that nearly all say the same; a sum in bfloat16 keeps a half or a quarter of them."""
    rng, vocab_size, shape = np.random.default_rng(0), 16, (128, 65)
    tokens = np.where(rng.random(shape) < 0.9, 0, rng.integers(0, vocab_size, shape)).astype(np.int32)
    config = ModelConfig(vocab_size=vocab_size, num_layers=1, d_model=16, max_length=64).replace(MODELS[name])
    check_whole(config, NextToken(), {"tokens": tokens})


@pytest.mark.parametrize("kind", [PatchConfig, AutoencoderConfig])
def test_the_gradient_of_the_vector_of_hidden_patches_is_whole(kind):
    """Of 256 images that nearly are the same."""
    rng = np.random.default_rng(0)
    images = rng.random((1, 16, 16, 1)) + 0.02 * rng.normal(size=(256, 16, 16, 1))
    config = kind(image_size=(16, 16, 1), patch_size=2, d_model=16, num_layers=1, mixer=Attention(num_heads=2))
    check_whole(config, Reconstruction(), {"inputs": images.astype(np.float32)})


def test_outputs_of_classes_are_not_rounded():
    """A product of bfloat16 is added in float32, which tells classes apart that bfloat16 takes for equal."""
    config = ClassifierConfig(
        vocab_size=16, num_classes=1000, num_layers=1, d_model=16, max_length=8, mixer=Attention(num_heads=2),
        dtype="bfloat16",
    )  # fmt: skip
    params, apply = initial_params(config, jax.random.key(0)), pure_model(config)[1]
    logits = apply(params, jnp.arange(8, dtype=jnp.int32)[None])
    assert logits.dtype == jnp.float32
    assert len(np.unique(logits)) > 990


def test_features_of_linear_attention_are_not_rounded():
    """elu(x) + 1 is e^x below 0, of which a sum in bfloat16 leaves nothing from -7 on."""
    x = jnp.linspace(-20.0, 5.0, 101)
    exact = np.where(x > 0, np.asarray(x, np.float64) + 1, np.exp(np.minimum(np.asarray(x, np.float64), 0)))
    np.testing.assert_allclose(elu_features(x.astype(jnp.bfloat16)), exact, rtol=0.05)
    np.testing.assert_allclose(elu_features(x), exact, rtol=1e-6)
    assert [float(jax.grad(elu_features)(at)) for at in (-0.0, 0.0, 100.0, -200.0)] == [1, 1, 1, 0]
