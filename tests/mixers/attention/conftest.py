"""A small layer of attention, and what it computes written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.parameters import Normal
from transformer.embeddings.embedding import Embedding
from transformer.functional.masks import Causal, Tokens
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.projections import SumHeads
from transformer.mixers.mixer import Context
from transformer.models.config import ModelConfig

LENGTH, D = 6, 8
X = jnp.asarray(np.random.default_rng(0).normal(size=(2, LENGTH, D)), jnp.float32)
TEXT = np.asarray(X[0])
HEADS = Attention(num_heads=2)


@pytest.fixture
def config():
    """Makes a small config around a mixer."""
    return _config


def _config(mixer=HEADS, **choices):
    sizes = {"vocab_size": 11, "max_length": LENGTH, "num_layers": 2, "d_model": D}
    laws = {"initializer": Normal(0.5), "embedding": Embedding(initializer=Normal(0.5)), "scale_residual_init": False}
    return ModelConfig(**sizes | laws | {"position": None} | choices, mixer=mixer)


@pytest.fixture
def attention():
    """Makes a layer of two heads with some choices of attention, beside a position."""

    def made(position=None, causal=True, num_heads=2, **choices):
        mixer = Attention(num_heads=num_heads, **choices)
        return mixer.build(_config(mixer, position=position, causal=causal), key=jax.random.key(0))

    return made


@pytest.fixture
def run():
    """Calls a layer on two texts: (output, what it hands back)."""

    def ran(module, mask=None, **more):
        tokens = Tokens.at(jnp.arange(LENGTH))
        return module(X, context=Context(tokens, Causal() if mask is None else mask, **more))

    return ran


@pytest.fixture
def attend():
    """The output of a layer for one text, with no mask but the given one."""

    def attended(module, x=TEXT, mask=None):
        context = Context(Tokens.at(np.arange(LENGTH)), mask)
        return np.asarray(module(jnp.asarray(x)[None], context=context)[0][0])

    return attended


@pytest.fixture
def heads():
    """Cuts (B, L, D) into two heads."""
    return lambda x: np.asarray(x).reshape(*x.shape[:2], 2, -1)


@pytest.fixture
def mixed():
    """softmax(scores) V, heads side by side."""

    def product(scores_BHLS, v_BSHK, allowed=None):
        allowed = np.tri(LENGTH, dtype=bool) if allowed is None else allowed
        weights = jax.nn.softmax(jnp.where(allowed, scores_BHLS, -jnp.inf))
        return jnp.einsum("bhls,bshk->blhk", weights, v_BSHK).reshape(2, LENGTH, -1)

    return product


@pytest.fixture
def by_hand():
    """The output of a layer from its kernels: softmax(factor · (q·k + bias) + after) · v, merged.

    `at` is added to what queries and keys are made of.
    """

    def cut(x, size):
        return x.reshape(len(x), -1, size).transpose(1, 0, 2)

    def output(module, x=TEXT, *, factor, bias=0.0, after=0.0, at=0.0):
        def made(role, x):
            name = module.layer_of[role]
            return x if name is None else x @ np.asarray(getattr(module, name).kernel[...])

        q, k = (cut(made(role, x + at), module.sizes.head_dim) for role in ("query", "key"))
        weights = np.asarray(jax.nn.softmax(factor * (q @ k.transpose(0, 2, 1) + bias) + after))
        out = weights @ cut(made("value", x), module.sizes.value_dim)
        if isinstance(module.attention.merge, SumHeads):
            return out.sum(0)
        joined = out.transpose(1, 0, 2).reshape(len(x), -1)
        return joined if module.out is None else joined @ np.asarray(module.out.kernel[...])

    return output
