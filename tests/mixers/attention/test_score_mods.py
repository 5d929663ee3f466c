"""Functions of scores."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.functional.masks import Tokens
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.backends import Chunked
from transformer.mixers.attention.base import ScoreMod
from transformer.mixers.attention.cross_attention import CrossAttention
from transformer.mixers.attention.score_mods import LogLength
from transformer.mixers.mixer import Context, Source

LENGTH, D = 6, 8
X = jnp.asarray(np.random.default_rng(0).normal(size=(2, LENGTH, D)), jnp.float32)


@dataclass(frozen=True)
class Nearness(ScoreMod):
    """s - ½ |i - j| in the first head, s in others."""

    positional = True

    def __call__(self, scores, queries=None, keys=None):
        distance_BLS = jnp.abs(queries.positions[:, :, None] - keys.positions[:, None]).astype(jnp.float32)
        return scores - jnp.where(jnp.arange(2) == 0, 0.5, 0.0)[:, None, None] * distance_BLS[:, None]


@pytest.mark.parametrize("backend", [None, Chunked(block=2)], ids=str)
def test_a_score_may_depend_on_head_and_positions(backend, config, attention, run, heads, mixed):
    """A function of scores, heads, queries and keys, exact and in blocks; cross-attention has none of positions."""
    module = attention(score_mod=Nearness(), backend=backend)
    distance = np.abs(np.arange(LENGTH)[:, None] - np.arange(LENGTH))
    scores = jnp.einsum("blhk,bshk->bhls", heads(module.query(X)), heads(module.key(X))) / 2
    scores -= np.array([0.5, 0])[:, None, None] * distance
    np.testing.assert_allclose(run(module)[0], module.out(mixed(scores, heads(module.value(X)))), rtol=1e-4, atol=1e-5)
    mixers = [Attention(num_heads=2, score_mod=score_mod) for score_mod in (Nearness(), None)]
    crossing, plain = (CrossAttention(mixer, config(mixer), key=jax.random.key(0)) for mixer in mixers)
    tokens = Tokens.at(jnp.arange(LENGTH))
    context = Context(tokens, source=Source(tokens, X))
    np.testing.assert_array_equal(crossing(X, context=context)[0], plain(X, context=context)[0])


def test_scores_grow_with_the_logarithm_of_the_length(attention, run, heads, mixed):
    """Up to the length of training nothing changes; the n-th token has log n / log trained times its scores."""
    module, plain = attention(score_mod=LogLength(trained=4)), attention()
    np.testing.assert_allclose(run(module)[0][:, :4], run(plain)[0][:, :4], rtol=1e-5, atol=1e-6)
    scores = jnp.einsum("blhk,bshk->bhls", heads(module.query(X)), heads(module.key(X))) / 2
    scores *= np.maximum(np.log(np.arange(1, LENGTH + 1)) / np.log(4), 1)[:, None]
    np.testing.assert_allclose(run(module)[0], module.out(mixed(scores, heads(module.value(X)))), rtol=1e-4, atol=1e-5)
