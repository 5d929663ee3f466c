"""The mean of the parameters after the last steps."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from transformer.core.errors import ConfigError
from transformer.objectives.objective import NextToken
from transformer.runs.config import Replica, RunConfig
from transformer.training import program
from transformer.training.optimizer import Numbers
from transformer.training.step import create_train_state, make_train_step, with_average

STEPS, SGD = 5, optax.sgd(0.5)


def bigram(params, tokens_BL, *, key):
    """The smallest language model: a table of logits."""
    return params["table"][tokens_BL]


def start(averaged):
    """A state before the first step, for plain gradient descent."""
    params = {"table": jnp.asarray(np.random.default_rng(1).normal(size=(4, 4)), jnp.float32)}
    return create_train_state(params, SGD, Numbers(*(jnp.float32(0),) * 3), jax.random.key(1), averaged=averaged)


@functools.cache
def trajectory(average_from, average_decay=None):
    """The state after each step."""
    state = start(average_from is not None)
    step = make_train_step(bigram, NextToken(auxiliary=0.0), SGD)
    step = jax.jit(step if average_from is None else with_average(step, average_from, average_decay))
    states = []
    for batch in np.random.default_rng(0).integers(0, 4, (STEPS, 4, 9)).astype(np.int32):
        state, _ = step(state, {"tokens": jnp.asarray(batch)})
        states.append(state)
    return states


@pytest.mark.parametrize("average_from", [0, 2, 4])
def test_the_average_is_the_mean_of_the_last_parameters(average_from):
    """By hand; the parameters themselves are as without, and before there is a mean they are it."""
    states, plain = trajectory(average_from), trajectory(None)
    chex.assert_trees_all_equal(states[-1].params, plain[-1].params)
    assert plain[-1].average is None
    for i, state in enumerate(states):
        taken = [s.params for s in states[average_from : i + 1]]
        expected = jax.tree.map(lambda *leaves: np.mean(leaves, 0), *(taken or [state.params]))
        chex.assert_trees_all_close(state.average, expected, rtol=1e-5, atol=1e-7)
    chex.assert_trees_all_equal(states[-1].evaluated, states[-1].average)
    chex.assert_trees_all_equal(plain[-1].evaluated, plain[-1].params)


def test_what_is_not_averaged_is_named():
    step = make_train_step(bigram, NextToken(auxiliary=0.0), SGD)
    batch = {"tokens": jnp.zeros((3, 5), jnp.int32)}
    with pytest.raises(ConfigError, match=r"^with_average: the state has no average; make it with averaged=True$"):
        with_average(step, 0)(start(averaged=False), batch)
    for decay in (0.0, 2.0):
        with pytest.raises(ConfigError, match=rf"^with_average: decay {decay} is not in \(0, 1\)$"):
            with_average(step, 0, decay)
    pieces = make_train_step(bigram, NextToken(auxiliary=0.0), SGD, accumulation=2)
    with pytest.raises(ConfigError, match=r"^accumulation: 3 rows of a batch are not a multiple of 2$"):
        pieces(start(averaged=False), batch)


def test_an_exponential_average():
    """By hand: it begins with the parameters of its first step, and each later step enters with 1 - decay."""
    states = trajectory(1, 0.75)
    expected = states[1].params
    for state in states[2:]:
        expected = jax.tree.map(lambda a, p: 0.75 * a + 0.25 * p, expected, state.params)
    chex.assert_trees_all_close(states[-1].evaluated, expected, rtol=1e-5, atol=1e-7)


def test_which_steps_are_averaged():
    """The last ones, all of them for an exponential average, or none; a share outside of (0, 1) is refused."""
    steps = [RunConfig(steps=10).replace(changes).average_from for changes in CHANGES]
    assert steps == [None, 7, 0, 7]
    with pytest.raises(ConfigError, match=r"average_decay: 1.0 is not in \(0, 1\)"):
        RunConfig(average_decay=1.0)
    with pytest.raises(ConfigError, match=r"average_decay: schedule_free is judged by a mean of its own"):
        RunConfig(average_decay=0.9).replace({"optimizer.rule": "schedule_free"})


CHANGES = ({}, {"average_last": 3}, {"average_decay": 0.9}, {"average_last": 3, "average_decay": 0.9})


def test_the_mean_of_one_is_the_parameters():
    """Bit for bit; the mean of two is not."""
    chex.assert_trees_all_equal(trajectory(STEPS - 1)[-1].evaluated, trajectory(None)[-1].params)
    two = trajectory(STEPS - 2)[-1]
    assert any(np.abs(a - b).max() > 0 for a, b in zip(*map(jax.tree.leaves, (two.average, two.params)), strict=True))


@pytest.mark.parametrize(("last", "average_from"), [(None, None), (1, 11), (3, 9), (12, 0), (99, 0)])
def test_so_many_last_steps(config, monkeypatch, last, average_from):
    """A run of twelve steps: the program takes the last ones, all where there are not so many."""
    given = []

    def averaging(step, first, decay):
        given.append(first)
        return with_average(step, first, decay)

    monkeypatch.setattr(program, "with_average", averaging)
    made = program.make_program(config.replace(average_last=last), [Replica()])
    assert given == ([] if average_from is None else [average_from])
    assert (made.abstract_state.average is None) == (last is None)


def test_a_frozen_run_keeps_a_finite_mean():
    """From the first loss that is not finite the parameters stay, and the mean is of what they were."""
    state = start(averaged=True)
    step = jax.jit(with_average(make_train_step(bigram, NextToken(auxiliary=0.0), SGD), 0))
    after, _ = step(state, {"tokens": jnp.zeros((4, 9), jnp.int32), "weights": jnp.full((4, 8), jnp.nan)})
    assert int(after.diverged_at) == 0
    chex.assert_trees_all_equal(after.average, state.params)
