"""Experts as a feed-forward sublayer."""

import jax
import jax.numpy as jnp
import numpy as np

from transformer.feed_forwards.experts import TopKExperts
from transformer.functional.masks import Tokens
from transformer.mixers.mixer import Context
from transformer.models.config import ModelConfig

KEY = jax.random.key(0)
TOKENS = Tokens.at(np.arange(8))
X = jnp.asarray(np.random.default_rng(0).normal(size=(1, 8, 16)), jnp.float32)


def test_each_shared_expert_drops_features_of_its_own():
    """Two that take each other away leave nothing, but what one of them drops and the other does not."""
    kind = TopKExperts(shared=2, dropout=0.5)
    module = kind.build(ModelConfig(d_model=16), key=KEY)
    first, second = module.shared
    module.out[...] = jnp.zeros_like(module.out[...])
    for own, other in zip(first.branches, second.branches, strict=True):
        other.kernel[...] = own.kernel[...]
    second.out.kernel[...] = -first.out.kernel[...]
    still, trained = (module(X, context=Context(TOKENS), key=key)[0] for key in (None, KEY))
    np.testing.assert_allclose(still, 0, atol=1e-6)
    assert np.abs(trained).max() > 1e-4
