"""Scoring by sliding windows: every token once, with as much of its past as the stride allows."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.activations.activation import ReLU
from transformer.core.errors import ConfigError
from transformer.core.modules import split
from transformer.core.parameters import Normal
from transformer.data.corpus import whole_split
from transformer.embeddings.embedding import Embedding
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.inference.scoring import sliding_log_probabilities
from transformer.mixers.attention.attention import Attention
from transformer.models.config import ModelConfig
from transformer.models.language_model import LanguageModel
from transformer.objectives.objective import NextToken
from transformer.positions.absolute import Learned

VOCAB, WINDOW = 5, 6
TOKENS = np.random.default_rng(0).integers(0, VOCAB, 23)
# Large weights: what was read decides what is likely.
CONFIG = ModelConfig(
    vocab_size=VOCAB,
    max_length=WINDOW,
    num_layers=1,
    d_model=16,
    mixer=Attention(num_heads=2),
    feed_forward=FeedForward(d_ff=16, activation=ReLU()),
    position=Learned(std=0.4),
    initializer=Normal(0.4),
    embedding=Embedding(initializer=Normal(0.4)),
)


@functools.cache
def model():
    params, apply = split(LanguageModel(CONFIG, key=jax.random.key(0)))
    return apply, params


def scored(tokens, stride, batch_size=2, of=None):
    how = {"window": WINDOW, "stride": stride, "batch_size": batch_size}
    return np.asarray(sliding_log_probabilities(*(of or model()), jnp.asarray(tokens), **how))


@functools.cache
def whole():
    return jax.jit(model()[0])


def log_probability(tokens):
    """Of the last token given those before it, in one window of its own."""
    padded = np.pad(tokens[:-1], (0, WINDOW + 1 - len(tokens)))
    return np.asarray(jax.nn.log_softmax(whole()(model()[1], jnp.asarray(padded[None]))))[
        0, len(tokens) - 2, tokens[-1]
    ]


@pytest.mark.parametrize("length", [2, WINDOW, WINDOW + 1, WINDOW + 2, 22, 23])
@pytest.mark.parametrize("stride", [1, 4, WINDOW])
def test_by_definition(length, stride):
    """A label of the first window has all of its past, one of a later window at least window - stride + 1 tokens."""
    tokens = TOKENS[:length]
    expected = []
    for label in range(1, length):
        start = 0 if label <= WINDOW else -(-(label - WINDOW) // stride) * stride
        assert label - start <= WINDOW
        assert start == 0 or label - start > WINDOW - stride
        expected.append(log_probability(tokens[start : label + 1]))
    np.testing.assert_allclose(scored(tokens, stride), expected, rtol=1e-5)
    np.testing.assert_allclose(scored(tokens, stride, batch_size=32), expected, rtol=1e-5)


def test_blocks_side_by_side():
    """With a stride of the window it is the loss of the evaluation in training."""
    apply, params = model()
    batch = {name: jnp.asarray(a[0]) for name, a in whole_split(TOKENS, WINDOW, 8).items()}
    sums = NextToken()(apply, params, batch, None)
    np.testing.assert_allclose(-scored(TOKENS, WINDOW).mean(), sums.loss.sum() / sums.weight.sum(), rtol=1e-5)


def test_more_context_is_better_where_it_helps():
    """A model that copies from the token before the last: the shorter the stride, the fewer labels lack it."""

    def copies(params, tokens_BL):
        past_BL = jnp.pad(tokens_BL, ((0, 0), (1, 0)))[:, :-1]
        known_L = (jnp.arange(tokens_BL.shape[1]) > 0)[None, :, None]
        return jnp.where(known_L, 3.0 * jax.nn.one_hot(past_BL, VOCAB), jnp.zeros(VOCAB))

    periodic = np.tile([3, 1], 20)
    losses = [-scored(periodic, stride, of=(copies, {})).mean() for stride in (1, 3, WINDOW)]
    assert losses[0] == losses[1] < losses[2]


@pytest.mark.parametrize(
    ("tokens", "stride", "message"),
    [
        (TOKENS, 0, "stride 0 is not a positive number"),
        (TOKENS, 2.5, "stride 2.5 is not a positive number"),
        (TOKENS[None], 1, r"tokens \(1, \d+\) are not one sequence \(L,\)"),
        (TOKENS, WINDOW + 1, rf"stride {WINDOW + 1} is not in \[1, {WINDOW}\]"),
        (TOKENS[:1], 1, "1 tokens leave nothing to predict"),
    ],
)
def test_what_cannot_be(tokens, stride, message):
    with pytest.raises(ConfigError, match=message):
        scored(tokens, stride)
