"""Convolutions of neighbouring tokens."""

import jax.numpy as jnp
import numpy as np

from transformer.functional.convolution import convolve, convolve_slots
from transformer.functional.masks import Tokens

LENGTH, D = 6, 8
X = jnp.asarray(np.random.default_rng(0).normal(size=(2, LENGTH, D)), jnp.float32)


def test_a_convolution_of_each_document():
    """Alone it is numpy's of every feature; packed, padded or out of the slots of a cache the same of each document."""
    rng = np.random.default_rng(0)
    kernel = jnp.asarray(rng.normal(size=(3, D)), jnp.float32)

    def alone(x):
        return np.stack([np.convolve(x[:, i], kernel[:, i])[: len(x)] for i in range(D)], 1)

    tokens = Tokens.at(jnp.array([0, 1, 0, 1, 2, 3]), jnp.array([[0, 0, 1, 1, 1, 1]]), jnp.arange(LENGTH)[None] < 5)
    packed = convolve(X, kernel, tokens)[0]
    for place in (slice(0, 2), slice(2, 5)):
        np.testing.assert_allclose(packed[place], alone(np.asarray(X[0, place])), rtol=1e-5, atol=1e-5)
    running = tokens._replace(positions=jnp.arange(LENGTH)[None])  # a document may go on counting
    np.testing.assert_array_equal(convolve(X, kernel, running)[0, :5], packed[:5])
    order = rng.permutation(LENGTH)
    slots = Tokens.at(jnp.asarray(order), valid=jnp.ones((1, LENGTH), bool))
    last = Tokens.at(jnp.array([4, 5]))
    found = convolve_slots(X[:1, order], kernel, last, slots)[0]
    np.testing.assert_allclose(found, alone(np.asarray(X[0]))[4:], rtol=1e-5, atol=1e-5)
