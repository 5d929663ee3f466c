"""The Fourier transform as a mixer."""

import jax.numpy as jnp
import numpy as np

from transformer.functional.masks import Padding, Segment, Tokens
from transformer.mixers.fourier import fourier_mix

LENGTH, D = 6, 8
X = jnp.asarray(np.random.default_rng(0).normal(size=(2, LENGTH, D)), jnp.float32)


def test_long_sequences():
    """Products of places past 4,096 are no whole numbers of float32."""
    length = 6000
    x = np.zeros((1, length, 2), np.float32)
    x[0, -3] = 1.0, -1.0
    found = fourier_mix(jnp.asarray(x), jnp.ones((1, length, length), bool))[0]
    np.testing.assert_allclose(found, np.fft.fft2(x[0]).real, rtol=1e-4, atol=1e-4)


def test_fourier_is_the_transform_of_each_document():
    """Alone it is the real part of the two-dimensional transform; packed or padded, the same of each document."""
    alone = np.fft.fft2(np.asarray(X[0])).real
    full = jnp.ones((1, LENGTH, LENGTH), bool)
    np.testing.assert_allclose(fourier_mix(X, full)[0], alone, rtol=1e-4, atol=1e-4)
    tokens = Tokens.at(jnp.array([0, 1, 0, 1, 2, 3]), jnp.array([[0, 0, 1, 1, 1, 1]]), jnp.arange(LENGTH)[None] < 5)
    packed = fourier_mix(X, (Segment() & Padding())(tokens, tokens)[:, 0])[0]
    for place in (slice(0, 2), slice(2, 5)):
        expected = np.fft.fft2(np.asarray(X[0, place])).real
        np.testing.assert_allclose(packed[place], expected, rtol=1e-4, atol=1e-4)
