"""Functions of scores."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.core.modules import split
from transformer.core.parameters import ONES, Parameter
from transformer.embeddings.embedding import Head
from transformer.functional.masks import Tokens
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.backends import Chunked
from transformer.mixers.attention.base import ScoreMod
from transformer.mixers.attention.cross_attention import CrossAttention
from transformer.mixers.attention.score_mods import LogLength, SSMax
from transformer.mixers.mixer import Context, Source
from transformer.models.language_model import LanguageModel

LENGTH, D = 6, 8
TOKENS = jnp.asarray([[3, 1, 4, 1, 5, 9]])
X = jnp.asarray(np.random.default_rng(0).normal(size=(2, LENGTH, D)), jnp.float32)


@dataclass(frozen=True)
class Nearness(ScoreMod):
    """s - ½ |i - j| in the first head, s in others."""

    positional = True

    def __call__(self, scores, queries, keys, params):
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
    mixers = [Attention(num_heads=2, score_mod=score_mod) for score_mod in (Nearness(), SSMax(), None)]
    crossing, scalable, plain = (CrossAttention(mixer, config(mixer), key=jax.random.key(0)) for mixer in mixers)
    assert not scalable.params  # it would be a factor that nothing reads
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


@pytest.mark.parametrize("backend", [None, Chunked(block=2)], ids=str)
def test_each_head_has_its_share_of_the_logarithm(backend, attention, run, heads, mixed):
    """Weights n^(a s) / Σ n^(a s), and a gradient for every a, exact and in blocks (Nakanishi 2025)."""
    module = attention(score_mod=SSMax(), backend=backend)
    own = module.params["score_mod"]
    np.testing.assert_allclose(own.factors[...], [0.168, 0.168])
    own.factors[...] = jnp.array([0.5, 2.0])
    scores = np.einsum("blhk,bshk->bhls", heads(module.query(X)), heads(module.key(X))).astype(np.float64) / 2
    powers = np.arange(1, LENGTH + 1)[:, None] ** (np.array([0.5, 2.0])[:, None, None] * scores) * np.tri(LENGTH)
    weights = powers / powers.sum(-1, keepdims=True)
    found = np.einsum("bhls,bshk->blhk", weights, heads(module.value(X))).reshape(2, LENGTH, D)
    np.testing.assert_allclose(run(module)[0], found @ module.out.kernel[...], rtol=1e-4, atol=1e-5)


def test_in_blocks_the_factors_have_the_same_gradients(config):
    mixers = [Attention(num_heads=2, score_mod=SSMax(), backend=backend) for backend in (None, Chunked(block=2))]
    params, _ = split(LanguageModel(config(mixers[0]), key=jax.random.key(0)))
    gradients = []
    for mixer in mixers:
        _, apply = split(LanguageModel(config(mixer), key=jax.random.key(0)))
        gradients.append(jax.grad(lambda params, apply=apply: (apply(params, TOKENS) ** 2).sum())(params))
    exact, ours = (one["blocks"]["kinds"]["0"]["attention"]["params"]["score_mod"]["factors"] for one in gradients)
    assert np.abs(exact).min() > 1e-3
    np.testing.assert_allclose(ours, exact, rtol=1e-3)


def test_logits_have_no_heads():
    @dataclass(frozen=True)
    class PerHead(Nearness):
        name, positional = "per_head", False

        def parameters(self, num_heads):
            return {"factors": Parameter((num_heads,), ONES)}

    with pytest.raises(ConfigError, match=r"head.score_mod: per_head has parameters of heads, and logits have none"):
        Head(score_mod=PerHead()).check(D)
