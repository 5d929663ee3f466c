"""Canon layers of the feed-forward sublayer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import transformer as T
from transformer.activations.activation import GLU, ReLU
from transformer.core.errors import ConfigError
from transformer.feed_forwards.canon import CanonFeedForward
from transformer.functional.masks import Tokens
from transformer.mixers.local import canon_kernel
from transformer.mixers.mixer import Context
from transformer.models.blocks import Macaron
from transformer.models.config import ModelConfig
from transformer.positions.relative import TransformerXL
from transformer.testing.properties import cached
from transformer.testing.subject import Subject, small

D, F, LENGTH = 8, 10, 8
MODEL = ModelConfig(d_model=D)
X = np.random.default_rng(0).normal(size=(2, LENGTH, D)).astype(np.float32)


def canon(x, kernel):
    """x_t + Σᵢ kernelᵢ ⊙ x_{t-i}, by a loop over tokens."""
    out = np.array(x, np.float64)
    for t in range(x.shape[1]):
        for i in range(min(len(kernel), t + 1)):
            out[:, t] += kernel[i] * x[:, t - i]
    return out


def test_convolutions_of_the_input_and_of_each_projection():
    choice = CanonFeedForward(before=3, inside=2, d_ff=F, activation=GLU(gate=ReLU()))
    layer = choice.build(MODEL, key=jax.random.key(0))
    found, aux = layer(jnp.asarray(X), context=Context(Tokens.first(LENGTH)))
    kernels = {name: np.asarray(kernel) for name, kernel in layer.kernels().items()}
    assert {name: kernel.shape for name, kernel in kernels.items()} == {
        "before": (3, D),
        "inside_0": (2, F),
        "inside_1": (2, F),
    }
    read = canon(X, kernels["before"])
    gate, value = (
        canon(read @ np.asarray(branch.kernel[...]), kernels[f"inside_{i}"]) for i, branch in enumerate(layer.branches)
    )
    np.testing.assert_allclose(found, (np.maximum(gate, 0) * value) @ np.asarray(layer.out.kernel[...]), atol=1e-5)
    assert aux.memory is None


@pytest.mark.parametrize("places", [(4, 4), (None, 3), (2, None)], ids=str)
def test_what_is_convolved_is_remembered(places):
    """Also twice in a block, and of a prompt that is longer than a ring of slots."""
    before, inside = places
    choice = CanonFeedForward(before=before, inside=inside, d_ff=F)
    cached(Subject(small(feed_forward=choice)))
    cached(Subject(small(feed_forward=choice, block=Macaron(), mixer=None, position=None)))


def test_a_decoder_without_a_mixer_has_a_ring_of_the_latest_tokens():
    """As many slots as the convolution spans, and the same texts as without a cache."""
    config = small(feed_forward=CanonFeedForward(before=4, inside=None, d_ff=F), mixer=None, position=None)
    model = T.LanguageModel(config, key=jax.random.key(0))
    assert model.span == 4
    prompts = np.random.default_rng(1).integers(0, config.vocab_size, (2, 5)).astype(np.int32)
    params, apply = T.split(model)
    texts = T.generate(apply, params, prompts, num_tokens=9).tokens_BT
    tokens = prompts
    for _ in range(9):
        tokens = np.concatenate([tokens, np.argmax(apply(params, tokens)[:, -1:], -1).astype(np.int32)], 1)
    np.testing.assert_array_equal(np.asarray(texts)[:, -9:], tokens[:, -9:])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"before": 0}, r"canon\.before: 0 is not a positive number"),
        ({"inside": -1}, r"canon\.inside: -1 is not a positive number"),
        ({"before": None, "inside": None}, "it is dense; use dense"),
    ],
    ids=str,
)
def test_widths_are_positive(wrong, message):
    with pytest.raises(ConfigError, match=message):
        CanonFeedForward(**wrong)


def test_it_hands_no_segments_on():
    with pytest.raises(ConfigError, match=r"model\.memory_length: canon.* hands no segments on; use dense"):
        small(feed_forward=CanonFeedForward(), memory_length=4, position=TransformerXL(limit=6))


def test_mup_has_no_rule_for_it():
    with pytest.raises(ConfigError, match=r"mup: there is no rule for feed_forward=canon; use feed_forward=dense"):
        T.mup(T.RunConfig(model=ModelConfig(feed_forward=CanonFeedForward())), base_width=32)


def test_kernels_begin_with_the_variance_of_the_uniform_law_of_pytorch():
    """1 / (3 · width)."""
    values = canon_kernel(4, 4096).initial_value(jax.random.key(0))
    np.testing.assert_allclose(values.var(), 1 / 12, rtol=0.05)
