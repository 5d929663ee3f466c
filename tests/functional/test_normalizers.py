"""From scores to weights: each by its formula, and linear forms as recurrences."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.functional.attention import attention, masked_softmax
from transformer.functional.masks import Causal, Tokens
from transformer.functional.normalizers import (
    Decay,
    Normalized,
    ReLUWeigh,
    SigmoidWeigh,
    Softmax,
    TalkingHeads,
    elu_features,
    random_features,
)

B, G, R, L, S, K = 2, 2, 2, 4, 5, 3
RNG = np.random.default_rng(0)
SCORES = jnp.asarray(RNG.normal(size=(B, G, R, L, S)), jnp.float32)
ALLOWED = jnp.asarray(RNG.random((B, 1, 1, L, S)) < 0.6).at[0, 0, 0, 0].set(False)
ROWS, COLUMNS = Tokens.at(np.arange(L)), Tokens.at(np.arange(S))
SINK = jnp.asarray(RNG.normal(size=G * R), jnp.float32)


def test_a_sink_is_a_key_without_a_value():
    """The weights are those of softmax over one score more, whose own weight is left out."""
    more = jnp.concatenate([SCORES, jnp.broadcast_to(SINK.reshape(G, R, 1, 1), (B, G, R, L, 1))], -1)
    allowed = jnp.concatenate([ALLOWED, jnp.ones((B, 1, 1, L, 1), bool)], -1)
    expected = masked_softmax(more, allowed)[..., :-1]
    chex.assert_trees_all_close(Softmax(SINK)(SCORES, ALLOWED, ROWS, COLUMNS), expected, atol=1e-6)
    assert not Softmax(SINK)(SCORES, ALLOWED, ROWS, COLUMNS)[0, :, :, 0].any()


@pytest.mark.parametrize(
    ("weigh", "formula"),
    [
        (SigmoidWeigh(), lambda s, n: 1 / (1 + np.exp(-(s - np.log(n))))),
        (ReLUWeigh(), lambda s, n: np.maximum(s, 0) / n),
    ],
)
@pytest.mark.parametrize("masked", [True, False])
def test_each_weight_by_itself(weigh, formula, masked):
    """A function of the score and of how many keys there are; 0 where nothing is allowed."""
    allowed = np.broadcast_to(ALLOWED if masked else True, SCORES.shape)
    count = np.maximum(allowed.sum(-1, keepdims=True), 1)
    expected = np.where(allowed, formula(np.asarray(SCORES), count), 0)
    chex.assert_trees_all_close(
        weigh(SCORES, ALLOWED if masked else None, ROWS, COLUMNS), expected.astype(np.float32), atol=1e-6
    )


def test_talking_heads():
    """Heads mixed before and after softmax; a mask is not talked around."""
    before, after = (jnp.asarray(RNG.normal(size=(4, 4)), jnp.float32) for _ in range(2))
    heads = np.asarray(SCORES).reshape(B, 4, L, S)
    mixed = np.einsum("bhls,hi->bils", heads, before).reshape(SCORES.shape)
    weights = np.asarray(masked_softmax(jnp.asarray(mixed), ALLOWED)).reshape(B, 4, L, S)
    expected = np.einsum("bhls,hi->bils", weights, after).reshape(SCORES.shape)
    out = TalkingHeads(before, after)(SCORES, ALLOWED, ROWS, COLUMNS)
    chex.assert_trees_all_close(out, expected, atol=1e-5)
    assert not np.asarray(out)[~np.broadcast_to(ALLOWED, out.shape)].any()


def qkv():
    return (jnp.asarray(RNG.normal(size=(1, L, 2, K)), jnp.float32) for _ in range(3))


def attended(q, k, v, weigh):
    return attention(q, k, v, queries=ROWS, keys=ROWS, mask=Causal(), weigh=weigh, scale=1.0).out


def test_linear_attention_is_a_recurrence():
    """Σ φ(k)vᵀ and Σ φ(k), token by token, give the weights of the whole (Katharopoulos et al. 2020, equation 18)."""
    q, k, v = qkv()
    q, k = elu_features(q), elu_features(k)
    state, total, outs = jnp.zeros((1, 2, K, K)), jnp.zeros((1, 2, K)), []
    for t in range(L):
        state += jnp.einsum("bhk,bhv->bhkv", k[:, t], v[:, t])
        total += k[:, t]
        outs.append(jnp.einsum("bhk,bhkv->bhv", q[:, t], state) / jnp.einsum("bhk,bhk->bh", q[:, t], total)[..., None])
    chex.assert_trees_all_close(attended(q, k, v, Normalized()), jnp.stack(outs, 1), atol=1e-5)


def test_retention_is_a_recurrence():
    """S ← γS + kvᵀ (Sun Y. et al. 2023, equation 6)."""
    q, k, v = qkv()
    gamma, state, outs = jnp.array([0.9, 0.5]), jnp.zeros((1, 2, K, K)), []
    for t in range(L):
        state = gamma[:, None, None] * state + jnp.einsum("bhk,bhv->bhkv", k[:, t], v[:, t])
        outs.append(jnp.einsum("bhk,bhkv->bhv", q[:, t], state))
    chex.assert_trees_all_close(attended(q, k, v, Decay(gamma)), jnp.stack(outs, 1), atol=1e-5)


def test_random_features_stand_for_exponentials():
    """φ(q)·φ(k) is exp(q·k) on average."""
    q, k = (jnp.asarray(0.5 * RNG.normal(size=(1, 1, 1, K)), jnp.float32) for _ in range(2))
    directions = jax.random.normal(jax.random.key(0), (200_000, K))
    product = (random_features(q, directions) * random_features(k, directions)).sum()
    np.testing.assert_allclose(product, np.exp((q * k).sum()), rtol=2e-2)
