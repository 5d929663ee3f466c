"""Recurrent layers with random parameters against equations in plain NumPy, one token after the other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.analysis.counts import cache_bytes
from transformer.functional.masks import Tokens
from transformer.mixers.mixer import Context
from transformer.models.config import ModelConfig

D, LENGTH = 8, 11


def _config(mixer, num_layers=1):
    return ModelConfig(vocab_size=5, d_model=D, num_layers=num_layers, mixer=mixer, position=None)


@pytest.fixture
def config():
    """Makes a small config around a mixer."""
    return _config


@pytest.fixture
def initial():
    """The initial parameters of a mixer, float64."""

    def values(mixer):
        params = mixer.build(_config(mixer), key=jax.random.key(0)).params()
        return {name: np.asarray(array, np.float64) for name, array in params.items()}

    return values


@pytest.fixture
def follows():
    """Checks that a layer with random parameters does what its equations, a function of (x (L, D), params), say."""

    def check(mixer, equations, stretch=1.0):
        layer = mixer.build(_config(mixer), key=jax.random.key(0))
        rng = np.random.default_rng(0)
        params = {}
        for name, array in layer.params().items():
            fan_in = array.shape[-2] if array.ndim > 1 and array.shape[-2] > 2 else 1
            params[name] = rng.normal(size=array.shape) / fan_in**0.5
        layer.params = lambda: {name: jnp.asarray(array, jnp.float32) for name, array in params.items()}
        x_LD = stretch * rng.normal(size=(LENGTH, D))
        context = Context(Tokens.at(np.arange(LENGTH)))
        found, _ = layer(jnp.asarray(x_LD[None], jnp.float32), context=context)
        expected = equations(x_LD, params)
        assert expected.std() > 0.05
        np.testing.assert_allclose(found[0], expected, rtol=1e-3, atol=2e-4 * np.abs(expected).max())

    return check


class Plain:
    """What the papers' equations have in common."""

    @staticmethod
    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    @staticmethod
    def silu(x):
        return x / (1 + np.exp(-x))

    @staticmethod
    def softplus(x):
        return np.log1p(np.exp(x))

    @staticmethod
    def unit(x):
        return x / np.sqrt((x**2).sum(-1, keepdims=True) + 1e-6)

    @staticmethod
    def rms(x, eps=1e-5):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)

    @staticmethod
    def layer_norm(x, eps=1e-5):
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)

    @staticmethod
    def convolved(x_LX, kernel_WX):
        out = np.zeros_like(x_LX)
        for t in range(len(x_LX)):
            for i in range(min(len(kernel_WX), t + 1)):
                out[t] += kernel_WX[i] * x_LX[t - i]
        return out

    @staticmethod
    def beside(p, kind):
        """The parameters of one kind of queries, keys and values, one beside the other."""
        return np.concatenate([p[f"{role}_{kind}"] for role in ("query", "key", "value")], -1)

    @classmethod
    def projected(cls, x_LD, p, heads, key_heads=None, bias=0.0):
        """q, k (L, H, K) and v (L, H, V); with a convolution in `p`, convolved and with SiLU."""
        parts = [x_LD @ p[name] for name in ("query", "key", "value")]
        if "query_taps" in p:
            edges = np.cumsum([part.shape[1] for part in parts])[:2]
            parts = np.split(cls.silu(cls.convolved(np.concatenate(parts, 1), cls.beside(p, "taps")) + bias), edges, 1)
        key_heads = key_heads or heads
        q, k = (np.repeat(x.reshape(len(x), key_heads, -1), heads // key_heads, 1) for x in parts[:2])
        return q, k, parts[2].reshape(len(x_LD), heads, -1)


@pytest.fixture
def plain():
    return Plain


@pytest.fixture
def remembers():
    """Checks that a model's memory of two layers is so many float32 numbers a layer, however long the cache."""

    def check(mixer, numbers):
        config = _config(mixer, num_layers=2)
        for length in (4, 4096):
            assert cache_bytes(config, length) == 2 * 4 * numbers

    return check
