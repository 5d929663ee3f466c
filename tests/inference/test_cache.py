"""The cache: a sequence read in pieces has the logits of the same sequence read at once."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.config.activations import ReLU
from transformer.config.attention import FullReach, Merge, Projection, Reach, Scale, SlidingWindow
from transformer.config.implementations import AttentionImplementation, Chunked, Layers
from transformer.config.model import EncoderDecoderConfig, ModelConfig
from transformer.config.norms import Norm, RMSNorm
from transformer.config.parameters import Normal
from transformer.config.positions import Position, Sinusoidal2D
from transformer.config.residuals import Residual
from transformer.config.variant import ConfigError
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.models.language_model import LanguageModel
from transformer.models.pure import split

LENGTH, SPAN, VOCAB = 10, 3, 8
# The programs here are many and run once: less work on each.
QUICK = {"xla_backend_optimization_level": 0}
SIZES = {"vocab_size": VOCAB, "max_length": LENGTH, "num_layers": 2, "d_model": 16, "num_heads": 4, "d_ff": 16}
# Embeddings that are not tied and large weights: logits differ between tokens and between positions.
LAWS = {"initializer": Normal(0.3), "embedding_initializer": Normal(0.3), "tie_embeddings": False}
CHEAP = {"norm": RMSNorm(), "activation": ReLU()}
TOKENS = np.random.default_rng(0).integers(0, VOCAB, (2, LENGTH))
# A prompt longer than the window, two tokens at once, and steps of one; a row of the padded schedule
# is what each sequence reads: the second has a shorter prompt and pauses twice.
PLAIN = [np.ones((2, width), bool) for width in (4, 2, 1, 1, 1, 1)]
PADDED = [
    np.array(valid, bool)
    for valid in (
        [[1, 1, 1, 1], [1, 1, 0, 0]],
        [[1, 1], [1, 0]],
        [[1], [1]],
        [[0], [1]],
        [[1], [1]],
        [[1], [1]],
    )
]


def shipped(family):
    """The variants of a family for tokens, small enough to matter here."""
    small = {Chunked(): Chunked(block=2), SlidingWindow(): SlidingWindow(SPAN)}
    values = [cls() for cls in family.variants().values() if cls.__module__.startswith("transformer.")]
    return [small.get(value, value) for value in values if value != Sinusoidal2D()]


def pairwise(*families):
    """Combinations in which every two values of different families meet: the first that bring most new pairs."""
    products = [frozenset(enumerate(choice)) for choice in itertools.product(*families)]
    pairs = {choice: set(itertools.combinations(sorted(choice, key=lambda c: c[0]), 2)) for choice in products}
    chosen, missing = [], set().union(*pairs.values())
    while missing:
        chosen.append(max(products, key=lambda choice: len(pairs[choice] & missing)))
        missing -= pairs[chosen[-1]]
    return [tuple(value for _, value in sorted(choice, key=lambda c: c[0])) for choice in chosen]


def pure(config_class=ModelConfig, model=LanguageModel, **choices):
    return split(model(config_class(**SIZES | LAWS | CHEAP | choices), key=jax.random.key(0)))


def in_pieces(apply, params, cache, schedule):
    """The logits of the tokens that each sequence reads, in order, and the last cache."""
    read = np.zeros(len(TOKENS), int)
    where, outputs = [], []
    for valid in schedule:
        index = np.minimum(read[:, None] + np.maximum(valid.cumsum(1) - 1, 0), LENGTH - 1)
        # Padding is a token like another, so that it would matter where it is seen.
        piece = np.where(valid, np.take_along_axis(TOKENS, index, 1), VOCAB - 1)
        mask = {} if valid.all() else {"valid_BL": jnp.asarray(valid)}
        logits, cache = apply(params, jnp.asarray(piece), cache, method="extend", **mask)
        outputs.append(logits)
        where.append(np.where(valid, index, -1))
        read += valid.sum(1)
    return jnp.concatenate(outputs, 1), np.concatenate(where, 1), cache


def assert_same(got, expected):
    """Equal to 1e-5 of the largest."""
    expected = np.asarray(expected)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def check(params, apply, schedule):
    """The logits of the pieces are those of the whole, and so many slots were used."""
    where = None

    def run(params, tokens):
        nonlocal where
        cache = apply(params, *tokens.shape, method="start")
        pieces, where, cache = in_pieces(apply, params, cache, schedule)
        return apply(params, tokens), pieces, cache.tokens.positions

    full, pieces, slots = jax.jit(run, compiler_options=QUICK)(params, jnp.asarray(TOKENS))
    for row in range(len(TOKENS)):
        real = where[row] >= 0
        assert_same(pieces[row][real], full[row][where[row][real]])
    # The comparison is of something: tokens, and positions with the same token, have other logits.
    assert np.abs(np.diff(full, axis=1)).max(-1).min() > 1e-3
    return slots.shape[1]


FAMILIES = [shipped(family) for family in (Position, AttentionImplementation, Reach)]
COMBINATIONS = pairwise(*FAMILIES, [1, 2, 4], [PLAIN, PADDED])
