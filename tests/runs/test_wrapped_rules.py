"""Rules made of another rule, against their formulas in NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from transformer.core.errors import ConfigError
from transformer.core.parameters import Parameter
from transformer.runs.muon import Muon
from transformer.runs.optimizer import OptimizerConfig
from transformer.runs.rules import SGD, AdamW, Lion, ScheduleFree
from transformer.runs.schedules import ConstantRate
from transformer.runs.wrapped_rules import Cautious, Hyperball
from transformer.training.optimizer import Numbers, make_optimizer

EXPERTS = Parameter((2, 3, 5), stacked=True)
RATE, DECAY = 0.1, 0.5


@pytest.mark.parametrize("rule", [AdamW(), Lion(), SGD(nesterov=True)], ids=str)
def test_a_cautious_rule_moves_with_the_gradient(rule, directions, gradients):
    """The directions of each array are masked and scaled by themselves: layer by layer, and a number in a layer."""
    found, plain = directions(Cautious(rule), gradients), directions(rule, gradients)
    disagrees = 0
    for cautious, direction, gradient in zip(found, plain, gradients, strict=True):
        for name, size in (("kernel", 24), ("gate", 1)):
            u, g = direction["blocks"][name], gradient["blocks"][name]
            for layer in range(3):
                agrees = u[layer] * g[layer] > 0
                expected = np.where(agrees, u[layer], 0) * size / (1 + agrees.sum())
                np.testing.assert_allclose(cautious["blocks"][name][layer], expected, rtol=1e-5)
                disagrees += size - agrees.sum()
    assert disagrees > 10


def hyperball_steps(rule, start, gradients):
    """Parameters of two layers of experts after each step, with weight decay."""
    specs = {"blocks": {"kernel": EXPERTS}}
    config = OptimizerConfig(rule=rule, schedule=ConstantRate(), clip_norm=None)
    made, params = make_optimizer(config, len(gradients), specs), {"blocks": {"kernel": jnp.asarray(start)}}
    state, numbers = made.init(params), Numbers(*(jnp.float32(number) for number in (RATE, DECAY, 0)))
    for gradient in gradients:
        updates, state = made.update({"blocks": {"kernel": jnp.asarray(gradient)}}, state, params, numbers=numbers)
        params = optax.apply_updates(params, updates)
        yield np.asarray(jax.tree.leaves(params)[0], np.float64)


def test_hyperball_keeps_the_norm_of_every_matrix():
    """By its formula, expert by expert; one that begins at 0 moves as under the rule."""
    rng = np.random.default_rng(0)
    start, *gradients = rng.normal(size=(5, 2, 2, 3, 5)).astype(np.float32)
    start[0, 1] = 0.0
    rule = SGD(momentum=0.0)
    steps, free = hyperball_steps(Hyperball(rule), start, gradients), list(hyperball_steps(rule, start, gradients))
    norm = functools.partial(np.linalg.norm, axis=(-2, -1), keepdims=True)
    w = np.asarray(start, np.float64)
    for params, gradient, expected in zip(steps, gradients, free, strict=True):
        np.testing.assert_allclose(params[0, 1], expected[0, 1], rtol=1e-5)
        w = (1 - RATE * DECAY) * w - RATE * norm(start) * gradient / norm(gradient)
        w *= norm(start) / np.maximum(norm(w), 1e-30)
        others = np.array([[True, False], [True, True]])
        np.testing.assert_allclose(params[others], w[others], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(norm(params)[others], norm(start)[others], rtol=1e-5)


def test_hyperball_stays_where_there_is_no_gradient():
    start = np.random.default_rng(0).normal(size=(2, 2, 3, 5)).astype(np.float32)
    (after,) = hyperball_steps(Hyperball(), start, [np.zeros_like(start)])
    np.testing.assert_allclose(after, start, rtol=1e-6)


def test_what_is_no_matrix_moves_as_under_the_rule(directions, gradients):
    for one, other in zip(directions(Hyperball(), gradients), directions(Muon(), gradients), strict=True):
        jax.tree.map(
            np.testing.assert_array_equal,
            (one["table"], one["blocks"]["gate"]),
            (other["table"], other["blocks"]["gate"]),
        )


def test_a_cautious_rule_has_steps_of_the_size_of_its_own():
    assert Cautious(AdamW()).entrywise
    assert not Cautious(Muon()).entrywise


@pytest.mark.parametrize("wrapper", [Cautious, Hyperball])
def test_a_rule_that_is_more_than_a_direction_is_refused(wrapper):
    """One line; and any other has a text form."""
    for rule in (ScheduleFree(), Hyperball()):
        with pytest.raises(ConfigError, match=f"{wrapper.name}.rule: {rule.name}.* is more than a direction"):
            wrapper(rule)
    made = wrapper(Lion(beta1=0.8))
    assert wrapper.parse(str(made)) == made
