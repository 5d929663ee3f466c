"""Convolutions of neighbouring tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.functional.convolution import convolve, convolve_next, convolve_slots
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


SEGMENTS = np.array([[3, 3, 7, 7, 7, 7], [1, 1, 1, 1, 0, 0]])
VALID = np.array([[1, 0, 1, 0, 1, 1], [0, 1, 1, 0, 0, 1]], bool)
TOKENS = {
    "whole": Tokens.at(np.arange(LENGTH)),
    "documents": Tokens.at(np.arange(LENGTH), SEGMENTS),
    "padding": Tokens.at(np.arange(LENGTH), valid=VALID),
    "both": Tokens.at(np.arange(LENGTH), SEGMENTS, VALID),
    "the same in every row": Tokens.at(np.arange(LENGTH), SEGMENTS[0], VALID[1]),
}


def one_after_the_other(x, kernel, before, tokens):
    """The loop over rows and tokens, each of which reads what its document has read, and what is kept of all."""
    segments, valid = (
        np.broadcast_to(np.asarray(array), x.shape[:2])
        for array in (
            np.zeros((1, 1)) if tokens.segments is None else tokens.segments,
            [[True]] if tokens.valid is None else tokens.valid,
        )
    )
    found, kept = np.zeros(x.shape), []
    for b in range(len(x)):
        read = [(segments[b, 0], row) for row in before[b]]
        for t in np.flatnonzero(valid[b]):
            read.append((segments[b, t], x[b, t]))
            for i in range(min(len(kernel), len(read))):
                of, row = read[-1 - i]
                found[b, t] += kernel[i] * row * (of == segments[b, t])
        kept.append([row for _, row in read][len(read) - len(before[b]) :])
    return found, np.array(kept).reshape(before.shape)


@pytest.mark.parametrize("width", [1, 2, 4, 9])
@pytest.mark.parametrize("tokens", TOKENS.values(), ids=TOKENS)
def test_a_convolution_of_what_follows(tokens, width):
    """Of a kernel of one token, of more than the row has, and where padding lies between tokens."""
    rng = np.random.default_rng(1)
    kernel, before = rng.normal(size=(width, D)), rng.normal(size=(2, width - 1, D))
    args = (jnp.asarray(array, jnp.float32) for array in (X, kernel, before))
    found, latest = convolve_next(*args, tokens)
    expected, kept = one_after_the_other(np.asarray(X), kernel, before, tokens)
    there = np.ones((2, LENGTH), bool) if tokens.valid is None else np.broadcast_to(tokens.valid, (2, LENGTH))
    np.testing.assert_allclose(found[there], expected[there], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(latest, kept, rtol=1e-6)


def test_what_follows_token_by_token():
    """The window that is handed on is all that a later call needs."""
    kernel, window = jnp.asarray(np.random.default_rng(1).normal(size=(3, D)), jnp.float32), jnp.zeros((2, 2, D))
    whole = convolve(X, kernel, Tokens.at(np.arange(LENGTH)))
    for t in range(LENGTH):
        found, window = convolve_next(X[:, t : t + 1], kernel, window, Tokens.at([t]))
        np.testing.assert_allclose(found[:, 0], whole[:, t], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tokens", TOKENS.values(), ids=TOKENS)
def test_gradients_of_what_follows(tokens):
    """Those of a sum that weighs every output, by the loop with one number changed at a time."""
    rng = np.random.default_rng(2)
    args = [np.asarray(X), rng.normal(size=(3, D)), rng.normal(size=(2, 2, D))]
    there = np.ones((2, LENGTH), bool) if tokens.valid is None else np.broadcast_to(tokens.valid, (2, LENGTH))
    weights = rng.normal(size=X.shape) * there[..., None]

    def loss(*args):
        return (convolve_next(*args, tokens)[0] * jnp.asarray(weights, jnp.float32)).sum()

    found = jax.grad(loss, (0, 1, 2))(*(jnp.asarray(array, jnp.float32) for array in args))
    for which, gradient in enumerate(found):
        for index in rng.permutation(args[which].size)[:12]:
            moved = [np.array(array, np.float64) for array in args]
            moved[which].flat[index] += 1.0
            change = one_after_the_other(*moved, tokens)[0] - one_after_the_other(*args, tokens)[0]
            np.testing.assert_allclose(gradient.ravel()[index], (change * weights).sum(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("valid", [[True, False], [False, True], [False, False]])
def test_padding_among_two_tokens(valid):
    rng = np.random.default_rng(3)
    x, kernel, before = rng.normal(size=(1, 2, D)), rng.normal(size=(3, D)), rng.normal(size=(1, 2, D))
    tokens = Tokens.at(np.arange(2), valid=np.array([valid]))
    found, latest = convolve_next(*(jnp.asarray(array, jnp.float32) for array in (x, kernel, before)), tokens)
    expected, kept = one_after_the_other(x, kernel, before, tokens)
    np.testing.assert_allclose(found[0, valid], expected[0, valid], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(latest, kept, rtol=1e-6)


def test_a_product_with_the_hessian_under_vmap():
    """Of several directions at once, as of each."""
    kernel = jnp.asarray(np.random.default_rng(0).normal(size=(3, D)), jnp.float32)

    def product(direction):
        def loss(kernel):
            return jnp.square(convolve_next(X, kernel, jnp.zeros((2, 2, D)), Tokens.first(LENGTH))[0]).sum()

        return jax.jvp(jax.grad(loss), (kernel,), (direction,))[1]

    directions = jnp.stack([kernel, 2 * kernel[::-1]])
    np.testing.assert_allclose(jax.vmap(product)(directions), [product(one) for one in directions], rtol=1e-5)
