"""One update."""

import dataclasses
import re
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from transformer.core import modules as pure
from transformer.core.errors import ConfigError
from transformer.core.parameters import Parameter
from transformer.feed_forwards.experts import TopKExperts
from transformer.models.language_model import LanguageModel
from transformer.objectives.objective import NextToken
from transformer.runs.config import Replica
from transformer.runs.muon import Muon
from transformer.runs.optimizer import OptimizerConfig, ParameterGroup
from transformer.runs.rules import Adafactor, UpdateRule
from transformer.training.gradient import make_gradient
from transformer.training.optimizer import Numbers, make_optimizer, stack_numbers, trained_part
from transformer.training.step import create_train_state, make_train_step, with_average


def build(config):
    return lambda key: LanguageModel(config.model, key=key)


def start(config, optimizer):
    params, apply = pure.split(build(config)(jax.random.key(0)))
    numbers = jax.tree.map(lambda a: jnp.asarray(a[0]), stack_numbers(config.optimizer, [Replica()]))
    return apply, create_train_state(params, optimizer, numbers, jax.random.key(1))


def test_what_is_given_in_place_of_something_else(config):
    optimizer = optax.sgd(1.0)
    _, apply = pure.split(build(config)(jax.random.key(0)))
    wrong: list[tuple[tuple[Any, ...], str]] = [
        (
            (apply, NextToken, optimizer),
            "Objective is needed, and the class NextToken is given; NextToken() is",
        ),
        ((apply, NextToken(), optax.sgd), "GradientTransformation is needed, and function is given"),
        ((apply, NextToken(), config.optimizer), "GradientTransformation is needed, and OptimizerConfig is given"),
        ((build(config)(jax.random.key(0)), NextToken(), optimizer), "apply is a LanguageModel; pure_model(config)[1]"),
    ]
    for arguments, said in wrong:
        with pytest.raises(ConfigError, match=f"^make_train_step: {re.escape(said)}"):
            make_train_step(*arguments)
    for pieces in (0, -1, 2.0):
        with pytest.raises(ConfigError, match=rf"^make_train_step: accumulation {pieces} is not a positive whole"):
            make_train_step(apply, NextToken(), optimizer, accumulation=pieces)
    for name, wrong in (("skip_limit", -3), ("skip_limit", None), ("skip_above", -1.0), ("skip_above", np.nan)):
        with pytest.raises(ConfigError, match=f"^make_train_step: {name} {wrong} is not "):
            make_train_step(apply, NextToken(), optimizer, **{name: wrong})
    with pytest.raises(ConfigError, match=r"^with_average: first -5 is not a whole number from 0 on$"):
        with_average(make_train_step(apply, NextToken(), optimizer), -5)
    none: Any = None
    with pytest.raises(ConfigError, match=r"^create_train_state: GradientTransformation is needed, and NoneType"):
        create_train_state({}, none, Numbers(0.1, 0.0, 0), jax.random.key(0))
    three: Any = (0.1, 0.0, 0)
    with pytest.raises(ConfigError, match=r"^create_train_state: numbers: Numbers is needed, and tuple is given"):
        create_train_state({}, optimizer, three, jax.random.key(0))
    with pytest.raises(ConfigError, match=r"^create_train_state: key: 0 is no random key"):
        create_train_state({}, optimizer, Numbers(*three), 0)  # pyright: ignore[reportArgumentType] wrong on purpose
    with pytest.raises(ConfigError, match=r"^make_train_step: trained is a dict; trained_part"):
        make_train_step(apply, NextToken(), optimizer, trained={})  # pyright: ignore[reportArgumentType] wrong


@pytest.mark.parametrize(
    "rule", [optax.contrib.prodigy(), optax.contrib.momo(0.1), optax.polyak_sgd()], ids=["0", "1", "2"]
)
def test_rules_of_optax_that_hold_parameters_or_ask_for_the_loss(config, corpus, rule):
    """A state is donated, so that no array may be there twice."""
    apply, state = start(config, rule)
    step = jax.jit(make_train_step(apply, NextToken(), rule), donate_argnums=0)
    batches, losses = corpus.train_batches(config, 0), []
    with jax.numpy_dtype_promotion("standard"):  # which optax's own rules need
        for i in range(3):
            state, metrics = step(state, batches[i])
            losses.append(float(metrics["loss"]))
    assert np.isfinite(losses).all()
    assert int(state.diverged_at) == -1


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    weights = np.ones((4, 8), np.float32)
    weights[0, 3:] = 0
    weights[3, 1:] = 0
    return {"tokens": jnp.asarray(rng.integers(0, 4, (4, 9)), jnp.int32), "weights": jnp.asarray(weights)}


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_accumulation_does_not_change_the_gradient(config, batch, smoothing):
    """Also where pieces hold different numbers of real tokens, and under label smoothing."""
    results = []
    for pieces in (1, 2, 4):
        optimizer = optax.sgd(1.0)
        apply, state = start(config, optimizer)
        objective = NextToken(label_smoothing=smoothing, z_loss=1e-3)
        step = jax.jit(make_train_step(apply, objective, optimizer, accumulation=pieces))
        state, metrics = step(state, batch)
        results.append((state.params, metrics))
    chex.assert_trees_all_close(results[0], results[1], rtol=1e-5, atol=1e-6)
    chex.assert_trees_all_close(results[0], results[2], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pieces", [1, 2])
def test_rounded_kernels_have_a_rounded_gradient_and_stay_what_they_are(config, batch, pieces):
    """The model rounds them all the same: the loss is that of every bit. The router of experts is not rounded."""
    config = config.replace({"model.dtype": "bfloat16", "model.feed_forward": TopKExperts()})
    optimizer, found = optax.sgd(1.0), []
    for dtype in (None, "bfloat16"):
        apply, state = start(config, optimizer)
        step = make_train_step(apply, NextToken(), optimizer, accumulation=pieces, rounded_to=dtype)
        after, metrics = jax.jit(step)(state, batch)
        found.append((metrics["loss"], jax.tree.map(jnp.subtract, after.params, state.params)))
    (loss, exact), (of_rounded, rounded) = found
    assert loss == of_rounded
    chex.assert_trees_all_equal_dtypes(exact, rounded)
    block, own = (each["blocks"]["kinds"]["0"] for each in (exact, rounded))
    chex.assert_trees_all_equal(block["feed_forward"]["router"], own["feed_forward"]["router"])
    kernel, of_copy = (each["attention"]["query"]["kernel"] for each in (block, own))
    assert 0 < jnp.abs(kernel - of_copy).max() < 2**-7 * jnp.abs(kernel).max()


def test_a_state_of_ones_own_is_donated_and_compiled_for_once(config, batch):
    """As docs/index.md begins: plain numbers, and no array in the state twice."""
    params, apply = pure.split(build(config)(jax.random.key(0)))
    optimizer = make_optimizer(config.optimizer, config.steps, pure.specs(build(config)(jax.random.key(0))))
    state = create_train_state(params, optimizer, Numbers(3e-4, 0.1, 100.0), jax.random.key(1))
    step = jax.jit(make_train_step(apply, NextToken(), optimizer), donate_argnums=0)
    for _ in range(2):
        state, _ = step(state, batch)
    assert int(state.step) == 2
    assert step._cache_size() == 1


def test_the_norm_of_the_gradient_is_of_what_is_trained(config, batch):
    """A step that freezes all blocks has the norm of the gradient of all else."""
    specs = pure.specs(build(config)(jax.random.key(0)))
    choices = dataclasses.replace(config.optimizer, groups=(ParameterGroup("blocks.*", rate=0.0),))
    optimizer = make_optimizer(choices, config.steps, specs)
    apply, state = start(config, optimizer)
    of_all, of_trained = (
        jax.jit(make_train_step(apply, NextToken(), optimizer, trained=trained))(state, batch)[1]["grad_norm"]
        for trained in (None, trained_part(choices, specs))
    )
    (_, gradient), _ = make_gradient(apply, NextToken(), 1)(state.params, batch, None, jax.random.key(0))
    own = {name: part for name, part in gradient.items() if name != "blocks"}
    np.testing.assert_allclose(of_trained / of_all, optax.tree.norm(own) / optax.tree.norm(gradient), rtol=1e-5)
    assert of_trained < 0.99 * of_all


def test_padding_does_not_change_the_gradient(config, batch):
    optimizer = optax.sgd(1.0)
    apply, state = start(config, optimizer)
    step = jax.jit(make_train_step(apply, NextToken(), optimizer))
    unpadded = jax.tree.map(lambda a: a[1:3], batch)
    padded = {**batch, "weights": batch["weights"].at[jnp.array([0, 3])].set(0)}
    chex.assert_trees_all_close(step(state, unpadded)[0].params, step(state, padded)[0].params, rtol=1e-5, atol=1e-6)


def test_labels_may_count_little(config, batch):
    """The loss is a mean, whatever the sum of the weights."""
    optimizer = optax.sgd(1.0)
    apply, state = start(config, optimizer)
    step = jax.jit(make_train_step(apply, NextToken(), optimizer))
    (once, loss), (again, little) = step(state, batch), step(state, {**batch, "weights": batch["weights"] * 1e-3})
    assert float(batch["weights"].sum()) < 1e3
    np.testing.assert_allclose(little["loss"], loss["loss"], rtol=1e-5)
    chex.assert_trees_all_close(again.params, once.params, rtol=1e-5, atol=1e-6)


def test_a_run_that_stops_being_finite_is_frozen_and_remembered(config, batch):
    optimizer = optax.sgd(0.1)
    apply, state = start(config, optimizer)
    step = jax.jit(make_train_step(apply, NextToken(), optimizer))
    state, _ = step(state, batch)
    bad = {**batch, "weights": batch["weights"] * jnp.nan}
    frozen, metrics = step(state, bad)
    assert not np.isfinite(metrics["loss"])
    for next_one in (None, batch, bad):
        frozen = frozen if next_one is None else step(frozen, next_one)[0]
        assert int(frozen.diverged_at) == 1
        chex.assert_trees_all_equal(frozen.params, state.params)


def test_updates_that_are_not_finite_are_left_out_until_there_are_too_many_in_a_row(config, batch):
    """A good one between them counts anew; the state is that of the good ones alone."""
    optimizer = optax.sgd(0.1, momentum=0.9)
    apply, state = start(config, optimizer)
    step = jax.jit(make_train_step(apply, NextToken(), optimizer, skip_limit=2))
    bad = {**batch, "weights": batch["weights"] * jnp.nan}
    good, _ = step(step(state, batch)[0], batch)
    for poisoned in (False, True, True, False, True, True):
        state, metrics = step(state, bad if poisoned else batch)
        assert int(metrics["skipped"]) == poisoned
        assert int(state.diverged_at) == -1
    chex.assert_trees_all_equal((state.params, state.opt_state), (good.params, good.opt_state))
    state, _ = step(state, bad)
    assert int(state.diverged_at) == 6
    state, metrics = step(state, batch)
    assert int(metrics["skipped"]) == 1
    chex.assert_trees_all_equal(state.params, good.params)


RULES = [rule() for rule in UpdateRule.variants().values() if rule.__module__.startswith("transformer.")]


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_skipped_update_changes_nothing_but_the_counters(rule, wrong):
    """Whatever the rule remembers, bit for bit; the next update is what it would have been."""
    specs, params = {"table": Parameter((4, 4))}, {"table": jnp.asarray(np.eye(4), jnp.float32)}
    optimizer = make_optimizer(OptimizerConfig(rule=rule, warmup_steps=1), 9, specs)
    step = jax.jit(make_train_step(bigram, NextToken(auxiliary=0.0), optimizer, skip_limit=1))
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 4, (2, 4, 9)), jnp.int32)
    good = {"tokens": tokens[1], "weights": jnp.ones((4, 8))}
    bad = good | {"weights": good["weights"].at[1, 2].set(wrong)}
    state = create_train_state(params, optimizer, Numbers(0.1, 0.1, 1.0), jax.random.key(1))
    before, _ = step(state, {"tokens": tokens[0], "weights": jnp.ones((4, 8))})
    after, metrics = step(before, bad)
    assert int(metrics["skipped"]) == 1
    chex.assert_trees_all_equal(*map(plain, (after, before._replace(step=jnp.int32(2), skipped=jnp.int32(1)))))
    expected = step(before, good)[0]._replace(step=jnp.int32(3))
    chex.assert_trees_all_equal(*map(plain, (step(after, good)[0], expected)))


def bigram(params, tokens_BL, *, key):
    """The smallest language model: a table of logits."""
    return params["table"][tokens_BL]


def plain(state):
    """The state with numbers in place of its key."""
    return state._replace(key=jax.random.key_data(state.key))


def test_updates_with_a_large_gradient_are_left_out(config, batch):
    """Nor do they enter the momentum."""
    optimizer = optax.sgd(1.0, momentum=0.9)
    apply, state = start(config, optimizer)
    norm = float(jax.jit(make_train_step(apply, NextToken(), optimizer))(state, batch)[1]["grad_norm"])
    for factor, moved in ((1.01, True), (0.99, False)):
        step = jax.jit(make_train_step(apply, NextToken(), optimizer, skip_limit=1, skip_above=factor * norm))
        new, metrics = step(state, batch)
        assert int(metrics["skipped"]) == (not moved)
        for before, after in ((state.params, new.params), (state.opt_state, new.opt_state)):
            pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
            assert any(bool((a != b).any()) for a, b in pairs) == moved


def test_an_empty_batch_changes_nothing_and_is_finite(config, batch):
    optimizer = optax.sgd(1.0)
    apply, state = start(config, optimizer)
    step = jax.jit(make_train_step(apply, NextToken(), optimizer))
    after, metrics = step(state, {**batch, "weights": batch["weights"] * 0})
    assert float(metrics["loss"]) == 0
    chex.assert_trees_all_equal(after.params, state.params)


def test_a_batch_without_labels_is_left_out(config, batch):
    """Momentum and decay move parameters without a gradient; it is no sign of divergence."""
    optimizer = optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.1, momentum=0.9))
    apply, state = start(config, optimizer)
    step = jax.jit(make_train_step(apply, NextToken(), optimizer, skip_limit=0))
    before, _ = step(state, batch)
    after, metrics = step(before, {**batch, "weights": batch["weights"] * 0})
    chex.assert_trees_all_equal((after.params, after.opt_state), (before.params, before.opt_state))
    assert (int(metrics["skipped"]), int(after.step), int(after.diverged_at)) == (0, 2, -1)


def test_a_batch_without_labels_ends_no_row_of_bad_ones(config, batch):
    optimizer = optax.sgd(0.1)
    apply, state = start(config, optimizer)
    step = jax.jit(make_train_step(apply, NextToken(), optimizer, skip_limit=1, skip_above=1e-9))
    empty = {**batch, "weights": batch["weights"] * 0}
    state, told = step(step(step(state, batch)[0], empty)[0], batch)
    assert (int(told["skipped"]), int(state.skipped), int(state.diverged_at)) == (1, 2, 2)


def test_adamw_is_adamw_of_optax_on_matrices_and_does_not_decay_the_rest(config, batch):
    specs = pure.specs(pure.abstract(build(config)))
    decayed = jax.tree.map(lambda spec: spec.decayed, specs)
    block = decayed["blocks"]["kinds"]["0"]
    assert block["attention"]["query"]["kernel"]
    assert decayed["embedding"]["table"]
    # (N, D) once stacked, and still a vector to weight decay.
    assert not block["attention_residual"]["norms"]["input"]["params"]["scale"]
    ours = make_optimizer(config.optimizer, config.steps, specs)
    apply, state = start(config, ours)
    o, rule = config.optimizer, config.optimizer.rule
    schedule = lambda step: o.learning_rate * o.schedule(step, jnp.float32(o.warmup_steps), config.steps)  # noqa: E731
    theirs = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(schedule, rule.beta1, rule.beta2, rule.eps, weight_decay=o.weight_decay, mask=decayed),
    )
    expected = create_train_state(state.params, theirs, state.numbers, state.key)
    step, other = (jax.jit(make_train_step(apply, NextToken(), x)) for x in (ours, theirs))
    with jax.numpy_dtype_promotion("standard"):
        for _ in range(3):
            state, expected = step(state, batch)[0], other(expected, batch)[0]
    chex.assert_trees_all_close(state.params, expected.params, rtol=1e-6)


@pytest.mark.parametrize(("rule", "rate"), [(Adafactor(), 0.1), (Muon(), 0.01)], ids=["adafactor", "muon"])
def test_a_model_learns_by_a_rule_of_matrices(config, batch, rule, rate):
    """Vectors, tables, layers and experts together; steps of Adafactor are relative to parameters of size 0.02."""
    config = config.replace({"optimizer.rule": rule, "optimizer.learning_rate": rate})
    config = config.replace({"model.feed_forward": TopKExperts(num_experts=2, top=1)})
    specs = pure.specs(pure.abstract(build(config)))
    optimizer = make_optimizer(config.optimizer, config.steps, specs)
    apply, state = start(config, optimizer)
    step, losses = jax.jit(make_train_step(apply, NextToken(), optimizer)), []
    for _ in range(config.steps):
        state, metrics = step(state, batch)
        losses.append(float(metrics["loss"]))
    assert losses[-1] < losses[0] - 0.1


def test_dropout_follows_the_key_of_the_run_and_the_step(config, batch):
    config = config.replace({"model.dropout": 0.5})
    optimizer = optax.sgd(0.0)
    apply, state = start(config, optimizer)
    step = jax.jit(make_train_step(apply, NextToken(), optimizer))
    later, other = state._replace(step=jnp.int32(1)), state._replace(key=jax.random.key(2))
    losses = [float(step(s, batch)[1]["loss"]) for s in (state, state, later, other)]
    assert losses[0] == losses[1]
    assert len(set(losses)) == 3


def test_pieces_of_a_batch_have_dropout_of_their_own():
    """Two pieces of one row, each with or without its logits: the sums of one and of the other are met too."""

    def apply(params, tokens_BL, *, key):
        return params["table"][tokens_BL] * jax.random.bernoulli(key).astype(jnp.float32)

    params = {"table": jnp.asarray(np.random.default_rng(0).normal(size=(4, 4)), jnp.float32)}
    batch = {"tokens": jnp.tile(jnp.arange(9) % 4, (2, 1))}
    gradient = make_gradient(apply, NextToken(auxiliary=0.0), 2)
    keys = jax.random.split(jax.random.key(0), 32)
    losses = jax.jit(jax.vmap(lambda key: gradient(params, batch, None, key)[0][0].loss))(keys)
    assert len(set(np.round(losses, 3).tolist())) == 3


def test_a_rule_that_asks_for_the_loss_gets_that_of_a_label():
    """The mean, which is that of the metrics, and not the sum over a batch."""
    rule = optax.GradientTransformationExtraArgs(
        lambda _: jnp.float32(0), lambda updates, state, params=None, *, value, **_: (updates, value)
    )
    step = jax.jit(make_train_step(bigram, NextToken(auxiliary=0.0), rule))
    state = create_train_state({"table": jnp.eye(4)}, rule, Numbers(0.1, 0.1, 1.0), jax.random.key(1))
    after, metrics = step(state, {"tokens": jnp.arange(18).reshape(2, 9) % 4})
    assert after.opt_state == metrics["loss"] > 0
