"""Experts: who goes where, and what comes of it, by hand."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.arrays import compiled_for
from transformer.core.errors import ConfigError
from transformer.feed_forwards.experts import SigmoidTopK, TopKExperts, TopKProbabilities
from transformer.feed_forwards.routing import (
    chosen,
    excess,
    expert_choice,
    expert_products,
    expert_rows,
    imbalance,
    of_best_groups,
    router_z,
    shares,
)
from transformer.models.config import ModelConfig

B, L, E = 2, 5, 3
LOGITS = jnp.asarray(np.random.default_rng(0).normal(size=(B, L, E)), jnp.float32)


def pairs(routes):
    """(token, expert) to weight."""
    experts = np.repeat(np.arange(E), routes.sizes_E)
    return dict(zip(zip(routes.tokens_X.tolist(), experts.tolist(), strict=True), routes.weights_X, strict=True))


@pytest.mark.parametrize("top", [1, 2, 3])
def test_every_token_has_its_likeliest_experts(top):
    """None is dropped; the weights are the softmax over the chosen ones, or the probability of the only one."""
    found, logits = pairs(TopKExperts(E, top).route(LOGITS, None, {})[0]), np.asarray(LOGITS).reshape(-1, E)
    expected = {}
    for token, own in enumerate(logits):
        chosen = np.argsort(-own)[:top]
        weights = np.exp(own[chosen]) / np.exp(own if top == 1 else own[chosen]).sum()
        expected |= {(token, int(e)): w for e, w in zip(chosen, weights, strict=True)}
    assert found.keys() == expected.keys()
    for pair, weight in expected.items():
        np.testing.assert_allclose(found[pair], weight, rtol=1e-5)


def test_every_expert_has_its_likeliest_tokens():
    """As many of each sequence as its share, real ones only; the others of the fixed number weigh nothing."""
    valid = jnp.arange(L) < jnp.array([[5], [2]])
    found = {pair: w for pair, w in pairs(expert_choice(LOGITS, 1.5, valid)).items() if w > 0}
    probabilities = np.asarray(jax.nn.softmax(LOGITS))
    expected = {}
    for b, count in enumerate((5, 2)):
        for e in range(E):
            own = probabilities[b, :count, e]
            for token in np.argsort(-own)[: int(np.ceil(count * 1.5 / E))]:
                expected[(b * L + int(token), e)] = own[token]
    assert found.keys() == expected.keys()
    for pair, probability in expected.items():
        np.testing.assert_allclose(found[pair], probability, rtol=1e-5)


@pytest.mark.parametrize(("length", "experts", "share"), [(50, 2, 0.6), (25, 2, 1.2), (45, 3, 1.6), (50, 5, 1.1)])
def test_padding_changes_no_capacity(length, experts, share):
    """Products that are whole only up to rounding, for which ceilings of two precisions are two numbers."""
    logits = jax.random.normal(jax.random.key(0), (1, length, experts))
    padded = jnp.pad(logits, ((0, 0), (0, length), (0, 0)))
    alone = expert_choice(logits, share, None)
    beside = expert_choice(padded, share, (jnp.arange(2 * length) < length)[None])
    taken = [sorted(routes.tokens_X[routes.weights_X > 0].tolist()) for routes in (alone, beside)]
    assert taken[0] == taken[1]


@pytest.mark.parametrize(("share", "length", "experts", "expected"), [(0.14, 100, 2, 7), (0.15, 100, 2, 8)])
def test_a_capacity_that_is_whole_is_not_rounded_up(share, length, experts, expected):
    """Of the product of the numbers as they are written, which in floats is a little more."""
    routes = expert_choice(jnp.zeros((1, length, experts)), share, None)
    assert routes.sizes_E.tolist() == [expected] * experts


PLATFORMS = pytest.mark.parametrize("platform", ["cpu", "tpu"])
"""Those whose products are traced in another way, here all computed by a CPU."""


@PLATFORMS
def test_products_with_the_own_expert(platform):
    """Row by row, values and gradients."""
    x = jnp.asarray(np.random.default_rng(1).normal(size=(6, 4)), jnp.float32)
    kernels = jnp.asarray(np.random.default_rng(2).normal(size=(E, 4, 3)), jnp.float32)
    experts = np.repeat(np.arange(E), [1, 3, 2])

    @compiled_for(platform)
    def ours(x, kernels):
        return expert_products(x, kernels, jnp.array([1, 3, 2], jnp.int32))

    def by_hand(x, kernels):
        return jnp.einsum("xd,xdf->xf", x, kernels[experts])

    for f in (lambda f: f(x, kernels), lambda f: jax.grad(lambda *a: (f(*a) ** 2).sum(), argnums=(0, 1))(x, kernels)):
        chex.assert_trees_all_close(f(ours), f(by_hand), rtol=1e-5, atol=1e-5)


def unequal(logits, top, valid=None):
    return imbalance(jax.nn.softmax(logits), shares(chosen(logits, top), E, valid), valid)


def test_penalties():
    """Balance is 1 where all experts are as likely; all on one expert is E. Padding has no say."""
    uniform = jnp.zeros((B, L, E)) + 1e-6 * LOGITS
    np.testing.assert_allclose(unequal(uniform, E), 1.0, rtol=1e-4)
    one = jnp.zeros((B, L, E)).at[..., 0].set(50.0)
    np.testing.assert_allclose(unequal(one, 1), E, rtol=1e-4)
    valid = jnp.arange(L) < jnp.array([[5], [2]])
    other = jnp.where(valid[..., None], LOGITS, 9.0)
    for penalty in (lambda x: unequal(x, 1, valid), lambda x: router_z(x, valid)):
        np.testing.assert_allclose(penalty(LOGITS), penalty(other), rtol=1e-6)
    np.testing.assert_allclose(router_z(jnp.zeros((B, L, E)), None), np.log(E) ** 2, rtol=1e-6)


def test_a_bias_changes_the_choice_and_not_the_weights():
    """With a large one an expert is always chosen, and weighs as much as its logit says."""
    found = pairs(TopKExperts(E).route(LOGITS, None, {"bias": jnp.array([0.0, 50.0, 0.0])})[0])
    logits = np.asarray(LOGITS).reshape(-1, E)
    for token, own in enumerate(logits):
        other = 0 if own[0] > own[2] else 2
        np.testing.assert_allclose(found[token, 1], 1 / (1 + np.exp(own[other] - own[1])), rtol=1e-5)


def test_weights_that_are_probabilities_among_all():
    found, probabilities = pairs(TopKProbabilities(E).route(LOGITS, None, {})[0]), np.asarray(jax.nn.softmax(LOGITS))
    expected = {}
    for token, own in enumerate(probabilities.reshape(-1, E)):
        expected |= {(token, int(e)): own[e] for e in np.argsort(-own)[:2]}
    assert found.keys() == expected.keys()
    for pair, weight in expected.items():
        np.testing.assert_allclose(found[pair], weight, rtol=1e-5)


def unequal_scores(scores):
    """DeepSeek-V3's loss of one sequence, from its scores alone."""
    taken = np.zeros(E)
    for own in scores:
        taken[np.argsort(-own)[:2]] += 1
    return E * (taken / taken.sum() * (scores / scores.sum(1, keepdims=True)).mean(0)).sum()


def test_scores_by_sigmoid():
    """Weights are shares of σ among the chosen, times the factor; the bias adds to σ, for the choice alone.

    The balance is that of each sequence, without the bias; a sequence without tokens has no say.
    """
    bias = np.array([0.0, 0.4, -0.2], np.float32)
    kind = SigmoidTopK(E, top=2, factor=2.5, balance=1.0, bias_step=0.5)
    routes, penalty = kind.route(LOGITS, None, {"bias": jnp.asarray(bias)})
    found, scores = pairs(routes), 1 / (1 + np.exp(-np.asarray(LOGITS, np.float64).reshape(-1, E)))
    expected = {}
    for token, own in enumerate(scores):
        best = np.argsort(-(own + bias))[:2]
        expected |= {(token, int(e)): 2.5 * own[e] / own[best].sum() for e in best}
    assert found.keys() == expected.keys()
    for pair, weight in expected.items():
        np.testing.assert_allclose(found[pair], weight, rtol=1e-5)
    np.testing.assert_allclose(penalty, np.mean([unequal_scores(own) for own in scores.reshape(B, L, E)]), rtol=1e-5)
    valid = jnp.arange(L) < jnp.array([[5], [0]])
    _, penalty = kind.route(LOGITS, valid, {"bias": jnp.asarray(bias)})
    np.testing.assert_allclose(penalty, unequal_scores(scores[:5]), rtol=1e-5)


def test_scores_that_all_vanish_have_a_loss():
    """σ(-104) is 0 in float32, and its share of the sum 0 / 0."""
    _, penalty = SigmoidTopK(4, balance=1.0).route(jnp.full((1, 2, 4), -104.0), None, {"bias": jnp.zeros(4)})
    np.testing.assert_allclose(penalty, 1.0, rtol=1e-6)


def test_experts_of_the_best_groups():
    """Groups (0, 1), (2, 3) and (4, 5): sums 1.0, 1.1 and 0.9, though the third has the highest score."""
    scores = jnp.array([0.6, 0.4, 0.5, 0.6, 0.9, 0.0])
    np.testing.assert_allclose(of_best_groups(scores, 3, 2), [0.6, 0.4, 0.5, 0.6, -np.inf, -np.inf])
    np.testing.assert_allclose(of_best_groups(scores, 1, 1), scores)
    np.testing.assert_allclose(of_best_groups(scores, 6, 1), [-np.inf] * 4 + [0.9, -np.inf])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"top": 1}, r"sigmoid_top_k\.top: 1 has the weight 1 whatever its score; use top_k"),
        ({"top": 9}, r"sigmoid_top_k\.top: 9 is not in \[1, 8\], the experts"),
        ({"num_groups": 3}, r"sigmoid_top_k\.num_groups: 3 do not divide 8 experts"),
        ({"num_groups": 2, "top_groups": 3}, r"sigmoid_top_k\.top_groups: 3 of 2 groups"),
        ({"num_groups": 8, "top": 2}, r"sigmoid_top_k\.top_groups: 1 of 8 groups with 1 experts, .* takes 2"),
    ],
)
def test_groups_that_do_not_fit(fields, said):
    with pytest.raises(ConfigError, match=said):
        ModelConfig(feed_forward=SigmoidTopK(8, **fields))


def test_the_bias_of_the_own_expert():
    biases = jnp.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    found = expert_rows(biases, jnp.array([2, 0, 1], jnp.int32), 3)
    np.testing.assert_array_equal(found, [[1, 2], [1, 2], [5, 6]])


def test_a_bias_is_moved_towards_equal_loads():
    """Nothing is added to the loss; the gradient is +1 for an expert with too many real tokens, -1 with too few."""
    logits = jnp.zeros((1, 4, E)).at[0, :3, 0].set(1.0).at[0, 3, 2].set(9.0)
    for valid, signs in ((None, [1, -1, -1]), (jnp.arange(4)[None] == 3, [-1, -1, 1])):
        loads_E = shares(chosen(logits, 1), E, valid)
        value, gradient = jax.value_and_grad(excess)(jnp.zeros(E), loads_E)
        assert value == 0
        assert gradient.tolist() == signs


@pytest.mark.parametrize(("platform", "shared"), [("cpu", ()), ("tpu", ()), ("tpu", (2,))])
def test_products_of_replicas(platform, shared):
    """Values and gradients mapped over logits, rows and kernels, as replicas are; on TPUs kernels may be shared."""
    rng = np.random.default_rng(4)
    logits_RBLE = jnp.asarray(rng.normal(size=(2, 1, 6, 3)), jnp.float32)
    x_RTD = jnp.asarray(rng.normal(size=(2, 6, 4)), jnp.float32)
    kernels_REDF = jnp.asarray(rng.normal(size=(2, 3, 4, 5)), jnp.float32)

    @compiled_for(platform)
    def product(logits_BLE, x_TD, kernels_EDF):
        routes = expert_choice(logits_BLE, 1.5, None)
        return expert_products(x_TD[routes.tokens_X], kernels_EDF, routes.sizes_E)

    def everything(*arrays):
        grads = jax.grad(lambda *own: (product(*own) ** 2).sum(), argnums=(1, 2))(*arrays)
        return product(*arrays), *grads

    arrays = [a[0] if i in shared else a for i, a in enumerate((logits_RBLE, x_RTD, kernels_REDF))]
    axes = [None if i in shared else 0 for i in range(3)]
    both = jax.vmap(everything, axes)(*arrays)
    for r in range(2):
        alone = everything(*(a if i in shared else a[r] for i, a in enumerate(arrays)))
        chex.assert_trees_all_close([a[r] for a in both], list(alone), rtol=1e-5, atol=1e-5)


def test_the_loss_of_large_logits_is_the_mean_of_squares():
    """Not the square of the mean (Zoph et al. 2022, equation 5)."""
    sums = np.log(np.exp(np.asarray(LOGITS, np.float64)).sum(-1))
    np.testing.assert_allclose(router_z(LOGITS, None), (sums**2).mean(), rtol=1e-5)


@pytest.mark.parametrize("valid", [None, np.arange(L) < np.array([[5], [2]])], ids=["whole", "padded"])
def test_what_a_router_adds_to_the_loss(valid):
    """balance · E Σ f P + router_z · mean (log Σ exp)², over real tokens; the bias has bias_step times a sign."""
    there = np.ones((B, L), bool) if valid is None else valid
    logits = np.asarray(LOGITS, np.float64)[there]
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    loads = np.bincount(np.argsort(-logits, 1)[:, :2].ravel(), minlength=E) / (2 * len(logits))
    expected = 0.5 * E * (loads * probabilities.mean(0)).sum() + 0.25 * (np.log(np.exp(logits).sum(-1)) ** 2).mean()
    kind = TopKExperts(E, top=2, balance=0.5, router_z=0.25, bias_step=0.125)

    def penalty(bias_E):
        return kind.route(LOGITS, None if valid is None else jnp.asarray(valid), {"bias": bias_E})[1]

    found, gradient = jax.value_and_grad(penalty)(jnp.zeros(E))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(gradient, 0.125 * np.sign(loads - 1 / E), rtol=1e-6)


def test_a_token_takes_experts_of_the_best_groups_alone():
    """Of groups (0, 1) and (2, 3) with sums of scores σ, though the best expert is in the other one."""
    logits = jnp.array([[[2.0, -3.0, 0.9, 0.8]]])
    routes, _ = SigmoidTopK(4, top=2, num_groups=2, top_groups=1).route(logits, None, {"bias": jnp.zeros(4)})
    assert routes.sizes_E.tolist() == [0, 0, 1, 1]
