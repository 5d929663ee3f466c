"""Scores of attention heads, on patterns that are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.analysis.heads import (
    attention_distance,
    attention_entropy,
    induction_scores,
    previous_token_scores,
    repeated_tokens,
)

L = 8


def looking_back(steps: int) -> np.ndarray:
    """(1, 1, L, L): each query at the key so many steps before it, the first ones at themselves."""
    keys = np.arange(L) - steps
    return np.eye(L, dtype=np.float32)[np.where(keys < 0, np.arange(L), keys)][None, None]


def test_entropy_is_zero_for_one_key_and_log_of_the_number_for_all():
    even = jnp.full((3, 2, L, L), 1 / L)
    np.testing.assert_allclose(attention_entropy(even), np.log(L), rtol=1e-6)
    np.testing.assert_allclose(attention_entropy(looking_back(1)), 0, atol=1e-7)


def test_distance():
    np.testing.assert_allclose(attention_distance(looking_back(2)), 2 * (L - 2) / L, rtol=1e-6)
    last = looking_back(2)[:, :, -1:]  # a cached step
    np.testing.assert_allclose(attention_distance(last), 2, rtol=1e-6)


def test_previous_token_and_induction():
    for steps, (previous, induction) in {1: (1, 0), 3: (0, 1), 2: (0, 0)}.items():
        assert previous_token_scores(looking_back(steps)) == previous
        assert induction_scores(looking_back(steps), 4) == induction


def test_a_head_that_sees_the_first_token_alone_is_no_induction_head():
    """The last token of the first occurrence has nothing before it that it could have copied from."""
    sink = jnp.zeros((1, 1, L, L)).at[..., 0].set(1.0)
    assert induction_scores(sink, 4) == 0


def test_axes_in_front_stay():
    rng = np.random.default_rng(0)
    pattern = rng.dirichlet(np.ones(L), size=(3, 2, 4, L)).astype(np.float32)  # layers, sequences, heads, queries
    scores = (attention_entropy, attention_distance, previous_token_scores, lambda p: induction_scores(p, 4))
    for score in scores:
        assert score(pattern).shape == (3, 4)
        np.testing.assert_allclose(score(pattern)[1], score(pattern[1]), rtol=1e-6)


def test_errors():
    with pytest.raises(ValueError, match="a pattern of 1 queries and 8 keys"):
        previous_token_scores(looking_back(1)[:, :, -1:])
    for period in (-2, 0, 8, 9):
        with pytest.raises(ValueError, match=f"8 tokens do not repeat after {period}"):
            induction_scores(looking_back(1), period)
    with pytest.raises(ValueError, match="20 different tokens of 19"):
        repeated_tokens(jax.random.key(0), 1, 20, 19)
    with pytest.raises(ValueError, match="-2 different tokens of 19"):
        repeated_tokens(jax.random.key(0), 1, -2, 19)


def test_repeated_tokens():
    tokens = np.asarray(repeated_tokens(jax.random.key(0), 5, 6, 19))
    np.testing.assert_array_equal(tokens[:, :6], tokens[:, 6:])
    assert all(len(set(row)) == 6 for row in tokens)
    assert len({tuple(row) for row in tokens}) == 5


def test_scores_are_means_over_sequences():
    one, three = (np.repeat(looking_back(1), rows, 0) for rows in (1, 3))
    for score in (attention_distance, previous_token_scores):
        np.testing.assert_allclose(score(three), score(one), rtol=1e-6)
    repeated = np.repeat(looking_back(3), 3, 0)
    np.testing.assert_allclose(induction_scores(repeated, 4), 1, rtol=1e-6)
