"""A model of vectors: a language model without its tables."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.core.modules import split
from transformer.core.parameters import Normal
from transformer.embeddings.embedding import Embedding, Head
from transformer.feed_forwards.experts import TopKExperts
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.attention.attention import Attention
from transformer.mixers.recurrent.delta import GatedDeltaNet
from transformer.models.build import build
from transformer.models.classifier import ClassifierConfig
from transformer.models.config import ModelConfig
from transformer.models.vectors import VectorConfig
from transformer.norms.norm import RMSNorm
from transformer.positions.relative import ALiBi
from transformer.positions.rotary import RoPE
from transformer.residuals.multi_stream import HyperConnections
from transformer.residuals.residual import PeriNorm, PostNorm
from transformer.residuals.scaled_branches import TFixup

KEY = jax.random.key(0)
V, L = 7, 6
SIZES = {
    "max_length": L,
    "num_layers": 2,
    "d_model": 8,
    "mixer": Attention(num_heads=2),
    "feed_forward": FeedForward(d_ff=8),
    "initializer": Normal(0.4),
    "embedding": Embedding(initializer=Normal(0.4)),
}
CHOICES = {
    "plain": {},
    "rope": {"position": RoPE(), "norm": RMSNorm()},
    "alibi and post": {"position": ALiBi(), "residual": PostNorm()},
    "a recurrence": {"mixer": GatedDeltaNet(num_heads=2, key_dim=4, value_dim=4), "position": None},
    "hyper-connections": {"residual": HyperConnections()},
    "a norm of the embedded": {"residual": PeriNorm(), "head.scale": 0.5},
    "experts": {"feed_forward": TopKExperts(num_experts=2, top=1, d_ff=8)},
}


def vectors(**choices):
    return VectorConfig(**SIZES, features=V, outputs=3).replace(choices)


@functools.cache
def jacobian(causal, name="plain"):
    """The largest change of any number at place t with any number of the vector at s, (t, s)."""
    config = vectors(**CHOICES[name], causal=causal)
    x = np.random.default_rng(0).normal(size=(1, L, V)).astype(np.float32)
    return np.abs(jax.jit(jax.jacobian(build(config, key=KEY)))(x)).max((0, 2, 3, 5))


def test_numbers_for_each_vector():
    """Float32; vectors of another dtype are first rounded to that of the model."""
    x = np.random.default_rng(0).normal(size=(2, L, V))
    for given, dtype in ((jnp.bfloat16, "float32"), (jnp.float32, "bfloat16")):
        model = build(vectors(dtype=dtype), key=KEY)
        out = model(jnp.asarray(x, given))
        assert (out.shape, out.dtype) == ((2, L, 3), jnp.float32)
        np.testing.assert_array_equal(out, model(jnp.asarray(x, given).astype(dtype)))


@pytest.mark.parametrize("name", CHOICES)
def test_on_one_hot_vectors_it_is_a_language_model(name):
    """With the tables as kernels: the layers between are the same, and so is what they add to the loss."""
    texts = ModelConfig(**SIZES, vocab_size=V, head=Head(tied=False)).replace(CHOICES[name])
    params, apply = split(build(texts, key=KEY))
    own, run = split(build(vectors(**CHOICES[name], outputs=V), key=KEY))
    kernels = {"embedding": params["embedding"]["table"], "head": params["output"]["table"].T}
    own |= {part: own[part] | {"kernel": kernel} for part, kernel in kernels.items()}
    tokens = np.array([[3, 1, 4, 1, 5, 6], [2, 6, 5, 3, 5, 0]])
    wanted = jax.jit(functools.partial(apply, with_penalty=True))(params, tokens)
    found = jax.jit(functools.partial(run, with_penalty=True))(own, np.eye(V, dtype=np.float32)[tokens])
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert np.abs(wanted[0]).max() > 0.1


@pytest.mark.parametrize("name", ["plain", "a recurrence"])
def test_a_number_depends_on_no_later_vector(name):
    """By gradient; on all others it does."""
    seen = jacobian(True, name)
    np.testing.assert_array_equal(seen > 0, np.tril(np.ones((L, L), bool)))


def test_an_encoder_sees_all_vectors():
    assert (jacobian(False) > 0).all()


def test_a_key_turns_dropout_on():
    """The same numbers again under the same key, others under another."""
    model, x = build(vectors(dropout=0.5), key=KEY), jnp.ones((1, L, V))
    plain, one, again, other = (model(x, key=key) for key in (None, KEY, KEY, jax.random.key(1)))
    np.testing.assert_array_equal(one, again)
    for a, b in ((plain, one), (one, other)):
        assert np.abs(a - b).max() > 1e-3


def test_a_residual_connection_scales_the_first_layer():
    """As it does a table of tokens."""
    plain, scaled = (split(build(vectors(**more), key=KEY))[0] for more in ({}, {"residual": TFixup()}))
    gain = vectors(residual=TFixup()).embedding_gain
    assert gain != 1
    np.testing.assert_allclose(scaled["embedding"]["kernel"], gain * plain["embedding"]["kernel"], rtol=1e-6)
    np.testing.assert_array_equal(scaled["head"]["kernel"], plain["head"]["kernel"])


@pytest.mark.parametrize("name", ["predict_ahead", "memory_length"])
def test_what_is_of_the_next_token_is_refused(name):
    said = rf"^model\.{name}: 2 needs logits of tokens, and this model"
    with pytest.raises(ConfigError, match=f"{said} reads vectors"):
        vectors(**{name: 2, "position": RoPE()})
    with pytest.raises(ConfigError, match=f"{said} has those of classes"):
        ClassifierConfig(**{name: 2, "causal": True, "position": RoPE()})


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((L, V), "float32", rf"\({L}, {V}\), not \(B, L, {V}\)"),
        ((1, L, V + 1), "float32", rf"\(1, {L}, {V + 1}\), not \(B, L, {V}\)"),
        ((1, L, V), "complex64", "complex64 is given, and a model reads floats"),
        ((1, L, V), "bool", "bool is given, and a model reads floats"),
    ],
)
def test_what_is_no_sequence_of_vectors(shape, dtype, message):
    with pytest.raises(ConfigError, match=f"^vectors: {message}$"):
        build(vectors(), key=KEY)(jnp.ones(shape, dtype))


def test_more_vectors_than_positions():
    with pytest.raises(ConfigError, match=r"7 tokens are more than max_length 6, and position learned"):
        build(vectors(), key=KEY)(jnp.ones((1, L + 1, V)))
