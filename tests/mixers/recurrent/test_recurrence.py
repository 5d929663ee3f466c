import jax
import jax.numpy as jnp
import numpy as np
import pytest

import transformer as T
from transformer.functional.masks import Tokens
from transformer.functional.recurrences import recur


def step(state, inputs):
    """A recurrence whose state is a running mixture."""
    after = 0.5 * state + inputs
    return after, 2 * after


X_BLD = np.random.default_rng(0).normal(size=(2, 6, 3)).astype(np.float32)
START = jnp.zeros((2, 3))


def test_a_recurrence_is_its_steps():
    found, last = recur(step, START, X_BLD, Tokens.at(np.arange(6)))
    state = np.zeros((2, 3))
    for i in range(6):
        state = 0.5 * state + X_BLD[:, i]
        np.testing.assert_allclose(found[:, i], 2 * state, rtol=1e-5)
    np.testing.assert_allclose(last, state, rtol=1e-5)


def test_a_document_begins_with_an_empty_state():
    segments = np.array([[0, 0, 1, 1, 1, 2]] * 2)
    found, _ = recur(step, START, X_BLD, Tokens.at(np.arange(6), segments))
    for first, end in ((0, 2), (2, 5), (5, 6)):
        own, _ = recur(step, START, X_BLD[:, first:end], Tokens.at(np.arange(end - first)))
        np.testing.assert_allclose(found[:, first:end], own, rtol=1e-5)


def test_padding_leaves_the_state_as_it_was():
    valid = np.array([[True] * 6, [True, True, False, True, False, False]])
    _, last = recur(step, START, X_BLD, Tokens.at(np.arange(6), valid=valid))
    _, own = recur(step, START[1:], X_BLD[1:, [0, 1, 3]], Tokens.at(np.arange(3)))
    np.testing.assert_allclose(last[1], own[0], rtol=1e-5)


def test_a_later_segment_continues_the_state():
    tokens = Tokens.at(np.arange(6))
    whole, last = recur(step, START, X_BLD, tokens)
    _, between = recur(step, START, X_BLD[:, :4], Tokens.at(np.arange(4)))
    rest, end = recur(step, between, X_BLD[:, 4:], Tokens.at(np.arange(2)))
    np.testing.assert_allclose(rest, whole[:, 4:], rtol=1e-5)
    np.testing.assert_allclose(end, last, rtol=1e-5)


def test_hgrn_is_equation_one():
    model = T.ModelConfig(vocab_size=5, d_model=4, num_layers=1, mixer=T.HGRN(lower_bound=0.25), position=None)
    layer = model.mixer.build(model, key=jax.random.key(0))
    params = jax.tree.map(lambda p: jax.random.normal(jax.random.key(1), p.shape), layer.params())
    layer.params = lambda: params
    x_BLD = jax.random.normal(jax.random.key(2), (1, 5, 4))
    found, _ = layer(x_BLD, context=T.Context(Tokens.at(np.arange(5))))
    hidden = np.zeros(4)
    for i in range(5):
        x = np.asarray(x_BLD[0, i])
        forget, gate = (1 / (1 + np.exp(-x @ params[name])) for name in ("forget", "gate"))
        kept, raw = 0.25 + 0.75 * forget, x @ params["candidate"]
        hidden = kept * hidden + (1 - kept) * raw / (1 + np.exp(-raw))
        np.testing.assert_allclose(found[0, i], (gate * hidden) @ params["out"], rtol=2e-4, atol=1e-5)


def test_errors():
    with pytest.raises(T.ConfigError, match=r"hgrn.lower_bound: 1 is not in \[0, 1\)"):
        T.HGRN(lower_bound=1)
