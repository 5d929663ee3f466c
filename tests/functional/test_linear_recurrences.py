"""The chunked form of a linear recurrence against its steps: values, gradients, documents, extremes, memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from transformer.functional.linear_recurrences import (
    TOGETHER,
    Erase,
    Update,
    inverse_unit_triangular,
    linear_recurrence,
    linear_step,
)

B, H, K, V = 2, 2, 4, 3
L = 21
KINDS = ("plain", "head decay", "feature decay", "delta", "gated delta", "feature delta", "three keys")
WEIGHTS = np.random.default_rng(1).normal(size=(B, L, H, V))


def made(kind, length=L, dtype=np.float64):
    """(an update of a kind, a state)."""
    rng = np.random.default_rng(KINDS.index(kind))

    def normal(*size):
        return rng.normal(size=(B, length, H, *size)).astype(dtype)

    q, k, v = normal(K), normal(K), normal(V)
    sizes = {"head decay": 1, "gated delta": 1, "feature decay": K, "feature delta": K, "three keys": K}
    log_decay = -(normal(sizes[kind]) ** 2) if kind in sizes else None
    erase = None
    if "delta" in kind:
        k = k / np.linalg.norm(k, axis=-1, keepdims=True)
        erase = Erase(rng.uniform(0, 2, (B, length, H)).astype(dtype))
    if kind == "three keys":
        erase = Erase(rng.uniform(0, 1, (B, length, H)).astype(dtype), 0.5 * normal(K), 0.5 * normal(K))
    state = rng.normal(size=(B, H, K, V)).astype(dtype)
    return jax.tree.map(jnp.asarray, Update(q, k, v, log_decay, erase)), jnp.asarray(state)


def stepped(update, state, documents_BL=None, valid_BL=None):
    """The definition: one token after the other."""
    length = update.q_BLHK.shape[1]
    valid_BL = jnp.ones((B, length), bool) if valid_BL is None else jnp.asarray(valid_BL)
    documents_BL = jnp.zeros((B, length), int) if documents_BL is None else jnp.asarray(documents_BL)
    begins_BL = jnp.diff(documents_BL, axis=1, prepend=documents_BL[:, :1]) != 0

    def one(state, turn):
        update, begins_B, valid_B = turn
        before = jnp.where(begins_B[:, None, None, None], jnp.zeros_like(state), state)
        after, y_BHV = linear_step(before, update)
        return jnp.where(valid_B[:, None, None, None], after, before), y_BHV

    turns = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), (update, begins_BL, valid_BL))
    last, y_LBHV = lax.scan(one, state, turns)
    return jnp.moveaxis(y_LBHV, 0, 1), last


def close(found, expected, tolerance):
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_is_its_equation(kind):
    with jax.enable_x64(True):
        update, state = made(kind)
        update = jax.tree.map(lambda x: x[:, 0], update)
        found, y_BHV = linear_step(state, update)
    for b, h in np.ndindex(B, H):
        q, k, v, log_decay, erase = jax.tree.map(lambda x, at=(b, h): np.asarray(x[at]), update)
        before = np.asarray(state[b, h])
        faded = before if log_decay is None else np.diag(np.exp(log_decay) * np.ones(K)) @ before
        after = faded + np.outer(k, v)
        if erase is not None:
            read, write = (k if one is None else one for one in (erase.read_BLHK, erase.write_BLHK))
            after = after - erase.rate_BLH * np.outer(write, read) @ faded
        np.testing.assert_allclose(found[b, h], after, rtol=1e-9)
        np.testing.assert_allclose(y_BHV[b, h], after.T @ q, rtol=1e-9)


DOCUMENTS = np.array([[0] * 5 + [1] * 4 + [2] * 1 + [3] * 11, [4] * 3 + [5] * 13 + [6] * 5])
VALID = np.random.default_rng(2).random((B, L)) < 0.6
PLACES = {
    "whole": {},
    "documents": {"documents_BL": DOCUMENTS},
    "documents and padding": {"documents_BL": DOCUMENTS, "valid_BL": VALID},
}


@pytest.mark.parametrize("kind", KINDS)
def test_chunks_equal_the_steps(kind):
    """In chunks that fill the length or not, of one token or more than all; chunks of 1 and 2 are several groups."""
    assert 2 * TOGETHER < L
    with jax.enable_x64(True):
        update, state = made(kind)
        expected = jax.jit(stepped)(update, state)
        for chunk in (1, 2, 5, 16, 64):
            found = jax.jit(linear_recurrence, static_argnames="chunk")(update, state, chunk=chunk)
            assert found[0].dtype == jnp.float64
            close(found, expected, 1e-9)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["head decay", "feature delta", "three keys"])
def test_values_and_gradients_of_packed_and_padded_rows(kind, place):
    """Every document after the first begins empty, the first goes on, and padding changes nothing."""
    where = PLACES[place]
    shown = where.get("valid_BL", np.ones((B, L), bool))[..., None, None]

    def value_and_gradients(function, **how):
        def loss(update, state):
            y_BLHV, last = function(update, state, **where, **how)
            y_BLHV = jnp.where(shown, y_BLHV, 0.0)
            return (WEIGHTS * y_BLHV).sum() + jnp.sin(last).sum(), (y_BLHV, last)

        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))(update, state)

    with jax.enable_x64(True):
        update, state = made(kind)
        expected = value_and_gradients(stepped)
        for chunk in (2, 5):
            close(value_and_gradients(linear_recurrence, chunk=chunk), expected, 1e-9)


@pytest.mark.parametrize("kind", ["plain", "feature delta"])
def test_a_second_call_goes_on(kind):
    with jax.enable_x64(True):
        update, state = made(kind)
        whole, last = linear_recurrence(update, state, documents_BL=jnp.asarray(DOCUMENTS), chunk=4)
        first, rest = (jax.tree.map(lambda x, cut=cut: x[:, cut], update) for cut in (slice(7), slice(7, None)))
        y_first, between = linear_recurrence(first, state, documents_BL=jnp.asarray(DOCUMENTS[:, :7]), chunk=4)
        # Both rows are within a document at the cut.
        y_rest, end = linear_recurrence(rest, between, documents_BL=jnp.asarray(DOCUMENTS[:, 7:]), chunk=4)
        close((jnp.concatenate([y_first, y_rest], 1), end), (whole, last), 1e-9)


@pytest.mark.parametrize("kind", ["feature decay", "gated delta"])
def test_a_row_of_padding_keeps_its_state(kind):
    update, state = made(kind, dtype=np.float32)
    _, last = linear_recurrence(update, state, valid_BL=jnp.zeros((B, L), bool))
    np.testing.assert_array_equal(last, state)


@pytest.mark.parametrize("kind", ["head decay", "feature delta"])
def test_extreme_decays_are_finite(kind):
    """From nothing, log 1 = 0, to e^-50 a token: over 64 tokens a factor no float holds, nor its inverse."""

    def gradient(function):
        def loss(update, state):
            y_BLHV, last = function(update, state)
            return (y_BLHV**2).sum() + (last**2).sum(), (y_BLHV, last)

        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))

    update, state = made(kind, 70, np.float32)
    shape = update.log_decay_BLHK.shape
    in_chunks, in_steps = gradient(linear_recurrence), gradient(stepped)
    for logs in ([0.0], [-50.0], [0.0, -1e-4, -1.0, -50.0]):
        log_decay = np.random.default_rng(0).choice(np.float32(logs), shape)
        faded = update._replace(log_decay_BLHK=jnp.asarray(log_decay))
        found, expected = in_chunks(faded, state), in_steps(faded, state)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            assert np.isfinite(one).all()
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4 * (1 + np.abs(other).max()))


def test_identical_keys_at_the_full_rate():
    """The worst triangular system: its inverse has entries ±2, while the powers of its matrix reach 2^C."""
    update, state = made("delta", 256, np.float32)
    same = jnp.broadcast_to(update.k_BLHK[:, :1], update.k_BLHK.shape)
    update = update._replace(k_BLHK=same, erase=Erase(jnp.full((B, 256, H), 2.0)))
    found, expected = (jax.jit(how)(update, state) for how in (linear_recurrence, stepped))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=5e-4 * np.abs(other).max())


@pytest.mark.parametrize("size", [1, 7, 16])
def test_the_inverse_and_its_gradient(size):
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        lower, weights = jnp.tril(rng.normal(size=(2, size, size)), -1), rng.normal(size=(2, size, size))
        found, gradient = jax.value_and_grad(lambda x: (weights * inverse_unit_triangular(x)).sum())(lower)
        inverse = np.linalg.inv(np.eye(size) + lower)
        np.testing.assert_allclose(inverse_unit_triangular(lower), inverse, rtol=1e-9, atol=1e-9)
        turned = np.swapaxes(inverse, 1, 2)
        np.testing.assert_allclose(found, (weights * inverse).sum(), rtol=1e-9)
        np.testing.assert_allclose(gradient, -np.tril(turned @ weights @ turned, -1), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["head decay", "feature delta"])
def test_memory_grows_with_the_length_and_is_a_fraction_of_the_steps(kind):
    """Of the gradient's program; heads of 64 features, whose states the steps all keep."""

    def temporaries(function, length):
        def loss(update, state):
            y_BLHV, last = function(update, state)
            return (y_BLHV**2).sum() + (last**2).sum()

        def shape(x):
            sizes = {K: 64, V: 64, L: length, B: B, H: H, 1: 1}
            return jax.ShapeDtypeStruct([sizes[n] for n in x.shape], x.dtype)

        shapes = jax.tree.map(shape, made(kind, dtype=np.float32))
        compiled = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(*shapes).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    at_2048 = temporaries(linear_recurrence, 2048)
    assert at_2048 < temporaries(stepped, 2048) / 4
    assert at_2048 < 2.1 * temporaries(linear_recurrence, 1024)
