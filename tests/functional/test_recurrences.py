"""Elementwise recurrences in parallel against their loop; `recur` is tested with the mixers that step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.functional.masks import Tokens
from transformer.functional.recurrences import recur, recur_elementwise

B, L, X = 2, 11, 3
RNG = np.random.default_rng(0)
KEPT, NEW, START = RNG.uniform(-1, 1, (B, L, X)), RNG.normal(size=(B, L, X)), RNG.normal(size=(B, X))
SEGMENTS = np.array([[3] * 4 + [5] * 1 + [2] * 6, [0] * 6 + [1] * 5])
VALID = np.array([[1, 1, 0, 1, 0, 0, 1, 1, 1, 1, 0], [0, 1, 1, 1, 1, 0, 1, 1, 0, 1, 1]], bool)
TOKENS = {
    "whole": Tokens.at(np.arange(L)),
    "documents": Tokens.at(np.arange(L), SEGMENTS),
    "padding": Tokens.at(np.arange(L), valid=VALID),
    "both": Tokens.at(np.arange(L), SEGMENTS, VALID),
    "padding of its own segment": Tokens.at(np.arange(L), np.where(VALID, SEGMENTS, 9), VALID),
    "the same in every row": Tokens.at(np.arange(L), SEGMENTS[0], VALID[1]),
}


def looped(kept_BLX, new_BLX, state_BX, tokens):
    """The plain loop over rows and tokens."""
    segments, valid = (
        None if x is None else np.broadcast_to(np.asarray(x), (B, L)) for x in (tokens.segments, tokens.valid)
    )
    found = np.zeros((B, L, X))
    for b in range(B):
        hidden, document = np.asarray(state_BX[b]), None
        for t in range(L):
            if valid is None or valid[b, t]:
                if segments is not None and document not in (None, segments[b, t]):
                    hidden = np.zeros(X)
                document = None if segments is None else segments[b, t]
                hidden = kept_BLX[b, t] * hidden + new_BLX[b, t]
            found[b, t] = hidden
    return found, found[:, -1]


@pytest.mark.parametrize("tokens", TOKENS.values(), ids=TOKENS)
def test_elementwise_equals_the_loop(tokens):
    """Documents begin empty, the first goes on from the given state, padding hands on the state."""
    with jax.enable_x64(True):
        found = jax.jit(recur_elementwise)(*map(jnp.asarray, (KEPT, NEW, START)), tokens)
    for one, other in zip(found, looped(KEPT, NEW, START, tokens), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_a_second_call_goes_on():
    with jax.enable_x64(True):
        kept, new, start = map(jnp.asarray, (KEPT, NEW, START))
        whole, last = recur_elementwise(kept, new, start, Tokens.at(np.arange(L), SEGMENTS, VALID))
        for cut in (3, 9):  # within a document of each row
            first = Tokens.at(np.arange(cut), SEGMENTS[:, :cut], VALID[:, :cut])
            rest = Tokens.at(np.arange(cut, L), SEGMENTS[:, cut:], VALID[:, cut:])
            _, between = recur_elementwise(kept[:, :cut], new[:, :cut], start, first)
            found, end = recur_elementwise(kept[:, cut:], new[:, cut:], between, rest)
            np.testing.assert_allclose(found, whole[:, cut:], rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(end, last, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("decay", [np.ones(4, np.float32), np.ones((2, 1, 4), np.float32)], ids=["(K,)", "(B, 1, K)"])
def test_an_input_that_is_not_of_every_token_is_refused(decay):
    """A decay that all tokens share is broadcast by the recurrence, which knows its axes."""
    inputs = np.ones((2, 3, 4), np.float32), decay
    with pytest.raises(ValueError, match=r"one has the shape .*, and L is 3"):
        recur(lambda state, inputs: (state, state), np.zeros((2, 4), np.float32), inputs, Tokens.at(range(3)))
