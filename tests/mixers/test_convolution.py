import jax
import numpy as np
import pytest

import transformer as T
from transformer.functional.masks import Tokens


def test_a_gated_convolution_by_hand():
    model = T.ModelConfig(vocab_size=5, d_model=4, num_layers=1, mixer=T.Convolution(width=3))
    layer = model.mixer.build(model, key=jax.random.key(0))
    params = {name: jax.random.normal(jax.random.key(i), p.shape) for i, (name, p) in enumerate(layer.params().items())}
    layer.params = lambda: params
    x_BLD = jax.random.normal(jax.random.key(9), (1, 6, 4))
    found, _ = layer(x_BLD, context=T.Context(Tokens.at(np.arange(6))))
    inputs = np.asarray(x_BLD[0] @ params["into"])
    for i in range(6):
        mixed = sum(params["taps"][w] * inputs[i - w] for w in range(3) if i >= w)
        gate = 1 / (1 + np.exp(-np.asarray(x_BLD[0, i]) @ params["gate"]))
        np.testing.assert_allclose(found[0, i], (gate * mixed) @ params["out"], rtol=2e-4, atol=1e-5)


def test_its_cache_is_a_ring_of_its_width():
    config = T.ModelConfig(vocab_size=5, d_model=4, num_layers=2, mixer=T.Convolution(width=3), position=None)
    assert T.cache_bytes(config, 64) == 2 * 3 * 4 * 4


def test_errors():
    with pytest.raises(T.ConfigError, match=r"convolution.width: 0 is not a positive number"):
        T.Convolution(width=0)
