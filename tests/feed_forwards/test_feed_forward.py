"""The position-wise feed-forward sublayer."""

from dataclasses import dataclass

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.activations.activation import GLU, ReLU
from transformer.core.errors import ConfigError
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.models.config import ModelConfig

KEY = jax.random.key(0)
MODEL = ModelConfig(d_model=16)
X = jnp.asarray(np.random.default_rng(0).normal(size=(1, 8, 16)), jnp.float32)


def test_feed_forward():
    """activation(x W) W_out in numpy, with one branch and with two; branch 0 is shared by both."""
    kinds = (FeedForward(activation=activation) for activation in (ReLU(), GLU(gate=ReLU())))
    one, two = (kind.build(MODEL, key=KEY) for kind in kinds)
    w, out = (np.asarray(k[...]) for k in (one.branches[0].kernel, one.out.kernel))
    chex.assert_trees_all_close(one(X)[0], np.maximum(np.asarray(X) @ w, 0) @ out, atol=1e-5)
    v = np.asarray(two.branches[1].kernel[...])
    expected = (np.maximum(np.asarray(X) @ w, 0) * (np.asarray(X) @ v)) @ out
    chex.assert_trees_all_close(two(X)[0], expected, atol=1e-5)
    assert w.shape == (16, 64)
    assert len(two.branches) == 2


def test_the_feed_forward_sublayer_is_position_wise():
    """Permuting tokens commutes with it, and a token alone has the output it has among others."""
    layer = FeedForward(bias=True).build(MODEL, key=KEY)
    order = np.array([4, 2, 5, 0, 7, 1, 6, 3])
    out, _ = layer(X)
    chex.assert_trees_all_close(layer(X[:, order])[0], out[:, order], rtol=1e-5, atol=1e-5)
    chex.assert_trees_all_close(layer(X[:, 2:3])[0], out[:, 2:3], rtol=1e-5, atol=1e-5)
    gradient = jax.grad(lambda x: (layer(x)[0][0, 2] ** 2).sum())(X)[0]
    assert np.flatnonzero(np.abs(gradient).max(-1)).tolist() == [2]


def test_a_method_that_nothing_calls_is_refused():
    @dataclass(frozen=True, kw_only=True)
    class AsAMixer(FeedForward):
        def __call__(self, x_BLD, params):
            return x_BLD

    with pytest.raises(ConfigError, match=r"asamixer defines __call__, which nothing calls; define build"):
        ModelConfig(feed_forward=AsAMixer())
