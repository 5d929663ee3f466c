"""Update rules: their formulas, layer by layer, replica by replica, and groups of parameters."""

import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from transformer.core.errors import ConfigError
from transformer.core.parameters import Parameter
from transformer.data.pictures import ImageConfig
from transformer.inference.beam import Beam
from transformer.inference.processors import RepetitionPenalty
from transformer.objectives.tokens import MaskedToken
from transformer.runs.muon import Muon
from transformer.runs.optimizer import OptimizerConfig, ParameterGroup
from transformer.runs.rules import SGD, Adafactor, AdamW, AdEMAMix, Lion, ScheduleFree, UpdateRule
from transformer.runs.schedules import ConstantRate, Cosine
from transformer.runs.wrapped_rules import Cautious
from transformer.testing.optimization import (
    LAYERS,
    RULE,
    SPECS,
    STEPS,
    config_of,
    descend,
    numbers_of,
    trained,
    values_of,
)
from transformer.training.optimizer import make_optimizer
from transformer.training.step import create_train_state

RULES = [rule() for rule in UpdateRule.variants().values() if rule.__module__.startswith("transformer.")]
PLAIN = {"warmup_steps": 0, "schedule": ConstantRate(), "weight_decay": 0.0}


@pytest.mark.parametrize("holds", RULE, ids=lambda check: check.__name__)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_what_holds_for_every_rule(rule, holds):
    """A layer, and a replica, is updated by itself, by its own numbers; and a rule goes down hill."""
    holds(rule)


ALIKE = {
    SGD(): optax.sgd(0.03, 0.9),
    SGD(nesterov=True): optax.sgd(0.03, 0.9, nesterov=True),
    Lion(): optax.lion(0.03, 0.9, 0.99, weight_decay=0.0),
}


@pytest.mark.parametrize("rule", ALIKE, ids=str)
def test_a_rule_is_that_of_optax(rule):
    config = config_of(rule, **PLAIN)
    expected = descend(optax.with_extra_args_support(ALIKE[rule]), values_of(0), numbers_of(config))
    chex.assert_trees_all_close(trained(config)[0], expected[-1].params, rtol=1e-5, atol=1e-6)


def test_muon_is_orthogonal_in_the_layers_and_adamw_elsewhere():
    """Steps of matrices, expert by expert too, have singular values near rms · √(larger side)."""
    config = config_of(Muon(), **PLAIN)
    params, adamw = trained(config)[0], trained(config_of(AdamW(), **PLAIN))[0]
    for name in ("scale", "gate"):
        chex.assert_trees_all_close(params["blocks"][name], adamw["blocks"][name], rtol=1e-6)
    chex.assert_trees_all_close(params["embedding"], adamw["embedding"], rtol=1e-6)
    states = descend(make_optimizer(config, STEPS, SPECS), values_of(0), numbers_of(config))
    for name in ("kernel", "experts"):
        step = (states[-2].params["blocks"][name] - states[-1].params["blocks"][name]) / 0.03
        singular = np.linalg.svd(np.asarray(step), compute_uv=False) / (0.2 * max(step.shape[-2:]) ** 0.5)
        assert singular.min() > 0.5
        assert singular.max() < 1.5


def test_adafactor_remembers_rows_and_columns():
    """The first step by the paper's formulas, and as many numbers as rows and columns."""
    config = config_of(Adafactor(), **PLAIN)
    made = make_optimizer(config, STEPS, SPECS)
    params, gradient = values_of(0), values_of(1)
    p, g = (np.asarray(tree["blocks"]["kernel"][1], np.float64) for tree in (params, gradient))
    v = np.outer((g**2).mean(1), (g**2).mean(0)) / (g**2).mean()
    u = g / np.sqrt(v)
    u /= max(1, np.sqrt((u**2).mean()))
    expected = p - 0.03 * np.sqrt((p**2).mean()) * u
    moved = descend(made, params, numbers_of(config), [gradient])[0]
    np.testing.assert_allclose(moved.params["blocks"]["kernel"][1], expected, rtol=1e-5)
    small = {"blocks": {"kernel": Parameter((40, 60))}}
    state = make_optimizer(config, STEPS, small).init(values_of(0, small))
    assert sum(a.size for a in jax.tree.leaves(state)) < LAYERS * 120


def test_schedule_free_is_judged_by_the_mean_of_where_its_steps_go():
    """Weighted by squared learning rates; gradients are taken between the mean and the last step."""
    config = config_of(ScheduleFree(beta=0.8), schedule=ConstantRate(), warmup_steps=3)
    states = descend(make_optimizer(config, STEPS, SPECS), values_of(0), numbers_of(config))
    bases = [optax.tree.get(state.opt_state, "base")["embedding"]["table"] for state in states]
    for count, state in enumerate(states, 1):
        weights = np.minimum(np.arange(1, count + 1) / 4, 1) ** 2
        mean = np.average(bases[:count], axis=0, weights=weights)
        np.testing.assert_allclose(state.evaluated["embedding"]["table"], mean, rtol=1e-4, atol=1e-5)
        between = 0.2 * bases[count - 1] + 0.8 * mean
        np.testing.assert_allclose(state.params["embedding"]["table"], between, rtol=1e-4, atol=1e-5)


def test_schedule_free_is_that_of_optax():
    config = config_of(ScheduleFree(), **PLAIN)
    theirs = optax.contrib.schedule_free_adamw(0.03, b1=0.9, b2=0.99)
    with jax.numpy_dtype_promotion("standard"):
        last = descend(theirs, values_of(0), numbers_of(config))[-1]
        evaluated = optax.contrib.schedule_free_eval_params(last.opt_state, last.params)
    chex.assert_trees_all_close(trained(config), (last.params, evaluated), rtol=1e-4, atol=1e-5)


def test_a_parameter_named_average_is_no_average():
    specs = {"average": Parameter((2, 3))}
    made = make_optimizer(config_of(AdamW()), STEPS, specs)
    state = create_train_state(values_of(0, specs), made, numbers_of(config_of(AdamW())), jax.random.key(0))
    chex.assert_trees_all_equal(state.evaluated, state.params)


def with_groups(*groups, **more):
    return trained(config_of(AdamW(), **{"weight_decay": 0.5} | more, groups=groups))[0]


def test_the_first_group_that_fits_has_a_parameter():
    """Rates are factors on the learning rate; the rest is as without groups."""
    plain = with_groups()
    grouped = with_groups(ParameterGroup("*.kernel", rate=0.0), ParameterGroup("blocks.*", rate=0.5))
    chex.assert_trees_all_equal(grouped["embedding"], plain["embedding"])
    chex.assert_trees_all_equal(grouped["blocks"]["kernel"], values_of(0)["blocks"]["kernel"])
    half = with_groups(learning_rate=0.015)
    chex.assert_trees_all_close(grouped["blocks"]["experts"], half["blocks"]["experts"], rtol=1e-6)


def test_what_is_frozen_has_no_part_in_the_norm_of_clipping():
    """A large gradient of frozen parameters does not make the steps of the others smaller."""
    frozen = {"groups": (ParameterGroup("embedding.*", rate=0.0),)}
    gradient = jax.tree.map(lambda a: 1e-3 * a, values_of(1))
    gradient |= {"embedding": jax.tree.map(lambda a: 1e6 * a, gradient["embedding"])}
    steps = []
    for clip_norm in (1.0, None):
        config = config_of(SGD(), **PLAIN, **frozen, clip_norm=clip_norm)
        made = make_optimizer(config, STEPS, SPECS)
        steps.append(made.update(gradient, made.init(values_of(0)), values_of(0), numbers=numbers_of(config))[0])
    chex.assert_trees_all_equal(*steps)
    assert not np.any(steps[0]["embedding"]["table"])


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_what_is_frozen_does_not_move_by_rounding(rule):
    """Some rules correct every update by the parameters, which rounds."""
    for frozen, other in (("blocks", "embedding"), ("embedding", "blocks")):
        params, evaluated = trained(config_of(rule, groups=(ParameterGroup(f"{frozen}.*", rate=0.0),)))
        chex.assert_trees_all_equal(params[frozen], values_of(0)[frozen])
        chex.assert_trees_all_equal(evaluated[frozen], values_of(0)[frozen])
        moved = jax.tree.map(lambda a, b: bool((a != b).any()), params[other], values_of(0)[other])
        assert all(jax.tree.leaves(moved))


def test_a_group_has_its_own_decay():
    """A factor on the weight decay, also of what is not decayed otherwise; none leaves it."""
    grouped = with_groups(ParameterGroup("*.table", decay=0.5), ParameterGroup("*.scale", decay=1), ParameterGroup("*"))
    plain, quarter, none = with_groups(), with_groups(weight_decay=0.25), with_groups(weight_decay=0.0)
    chex.assert_trees_all_close(grouped["embedding"], quarter["embedding"], rtol=1e-6)
    chex.assert_trees_all_equal(grouped["blocks"]["kernel"], plain["blocks"]["kernel"])
    chex.assert_trees_all_equal(grouped["blocks"]["gate"], none["blocks"]["gate"])
    assert np.abs(grouped["blocks"]["scale"] - none["blocks"]["scale"]).max() > 1e-3


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (("embeding.table",), "no parameter fits 'embeding.table'; did you mean 'embedding.table'"),
        (
            ("embedding.*", "embedding.table"),
            "group(pattern='embedding.*') matches all that group(pattern='embedding.table')",
        ),
    ],
)
def test_a_group_without_a_parameter_is_refused(groups, message):
    """Whether nothing fits or all that fits is another's."""
    config = config_of(AdamW(), groups=tuple(map(ParameterGroup, groups)))
    with pytest.raises(ConfigError, match=re.escape(f"optimizer.groups: {message}")):
        make_optimizer(config, STEPS, SPECS)


def test_a_group_may_be_of_some_layers():
    """Each layer moves as in a model in which all do what it does; frozen ones have no part in clipping."""
    some = [
        ParameterGroup("blocks.*", rate=0.0, layers=(0,)),
        ParameterGroup("blocks.*", rate=0.5, decay=0.0, layers=(2,)),
        ParameterGroup("blocks.experts", rate=0.25),
    ]
    found = with_groups(*some)
    plain, rest = with_groups(), with_groups(some[2])
    half = with_groups(ParameterGroup("blocks.*", rate=0.5, decay=0.0))
    chex.assert_trees_all_equal(found["embedding"], plain["embedding"])
    for name, own in found["blocks"].items():
        chex.assert_trees_all_equal(own[0], values_of(0)["blocks"][name][0])
        chex.assert_trees_all_close(own[1], rest["blocks"][name][1], rtol=1e-6)
        chex.assert_trees_all_close(own[2], half["blocks"][name][2], rtol=1e-6)
    gradient = jax.tree.map(lambda a: a.at[0].multiply(1e6), values_of(1)["blocks"]) | {}
    gradient = {"blocks": gradient, "embedding": values_of(1)["embedding"]}
    config = config_of(SGD(momentum=0.0), **PLAIN, groups=tuple(some[:1]), clip_norm=1.0)
    made = make_optimizer(config, STEPS, SPECS)
    step = made.update(gradient, made.init(values_of(0)), values_of(0), numbers=numbers_of(config))[0]
    np.testing.assert_allclose(optax.tree.norm(step), 0.03, rtol=1e-5)


def test_a_model_of_which_nothing_is_trained_is_refused():
    for groups in ([ParameterGroup("*", rate=0.0)], [ParameterGroup("b*", rate=0.0), ParameterGroup("e*", rate=0.0)]):
        with pytest.raises(ConfigError, match=r"^optimizer\.groups: all parameters have rate 0, so none is trained$"):
            make_optimizer(config_of(AdamW(), groups=tuple(groups)), STEPS, SPECS)


def test_layers_that_another_group_has_are_refused():
    first = ParameterGroup("blocks.*", rate=0.0, layers=(0, 1))
    for later in (ParameterGroup("blocks.kernel", rate=9.0, layers=(1,)), ParameterGroup("blocks.*", layers=(0,))):
        with pytest.raises(ConfigError, match=r"^optimizer\.groups: group\(.* matches all that .*; put it after$"):
            make_optimizer(config_of(AdamW(), groups=(first, later)), STEPS, SPECS)
    with pytest.raises(ConfigError, match=r"^optimizer\.groups: group\(.* is there twice$"):
        make_optimizer(config_of(AdamW(), groups=(first, first)), STEPS, SPECS)


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (ParameterGroup("blocks.kernel", layers=(3,)), "layer 3 of blocks.kernel, which is of 3 layers"),
        (ParameterGroup("embedding.*", layers=(0,)), "layer 0 of embedding.table, which is of no layer"),
    ],
)
def test_layers_that_there_are_not(group, message):
    with pytest.raises(ConfigError, match=f"^optimizer.groups: {message}$"):
        with_groups(group)


@pytest.mark.parametrize("share", [0.1, 2.0])
def test_the_gradient_is_clipped_as_a_whole(share):
    """Its parts keep their proportions; one shorter than the limit stays as it is."""
    gradient = values_of(1)
    config = config_of(SGD(momentum=0.0), **PLAIN, clip_norm=share * float(optax.tree.norm(gradient)))
    moved = descend(make_optimizer(config, STEPS, SPECS), values_of(0), numbers_of(config), [gradient])[0].params
    expected = jax.tree.map(lambda p, g: p - 0.03 * min(share, 1.0) * g, values_of(0), gradient)
    chex.assert_trees_all_close(moved, expected, rtol=1e-5, atol=1e-6)


def test_without_a_gradient_only_matrices_shrink():
    """By the learning rate times the decay; vectors and numbers stay as they are."""
    config = config_of(AdamW(), warmup_steps=0, schedule=ConstantRate(), weight_decay=0.5)
    zeros = jax.tree.map(jnp.zeros_like, values_of(0))
    after = descend(make_optimizer(config, STEPS, SPECS), values_of(0), numbers_of(config), [zeros])[0].params
    shrunk = jax.tree.map(lambda p: (1 - 0.03 * 0.5) * p, values_of(0))
    chex.assert_trees_all_close(after["embedding"], shrunk["embedding"], rtol=1e-6)
    for name in SPECS["blocks"]:
        kept = values_of(0) if name in ("scale", "gate") else shrunk
        chex.assert_trees_all_close(after["blocks"][name], kept["blocks"][name], rtol=1e-6)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"config": AdamW()}, "make_optimizer: OptimizerConfig is needed, and AdamW is given"),
        ({"total_steps": 0}, "make_optimizer: total_steps 0 is not a positive whole number"),
        ({"total_steps": SPECS, "specs": STEPS}, "make_optimizer: specs: Mapping is needed, and int is given"),
    ],
    ids=["config", "steps", "turned round"],
)
def test_what_an_optimizer_is_made_of(wrong, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        make_optimizer(**{"config": config_of(AdamW()), "total_steps": STEPS, "specs": SPECS, **wrong})


def test_an_update_needs_the_parameters():
    made = make_optimizer(config_of(AdamW()), STEPS, SPECS)
    with pytest.raises(ConfigError, match=r"^make_optimizer: its update needs the parameters"):
        made.update(values_of(1), made.init(values_of(0)), numbers=numbers_of(config_of(AdamW())))


@pytest.mark.parametrize("norm", [0.0, -1.0, np.inf])
def test_clipping_leaves_something(norm):
    with pytest.raises(
        ConfigError, match=rf"optimizer\.clip_norm: {norm} is not a positive number; None clips nothing"
    ):
        OptimizerConfig(clip_norm=norm)


@pytest.mark.parametrize(
    "make",
    [
        lambda number: OptimizerConfig(clip_norm=number),
        lambda number: OptimizerConfig(skip_limit=1, skip_above=number),
        lambda number: ParameterGroup("*", rate=number),
        lambda number: Cosine(final=number),
        lambda number: MaskedToken(random=number),
        lambda number: Beam(alpha=number),
        lambda number: RepetitionPenalty(number),
        lambda number: ImageConfig(rotation=number),
    ],
)
def test_what_is_not_a_number_is_refused_where_values_are_made(make):
    make(0.1)
    with pytest.raises(ConfigError, match="nan"):
        make(float("nan"))


@pytest.mark.parametrize("rule", [AdamW, AdEMAMix, ScheduleFree])
def test_nothing_divided_by_nothing_is_refused(rule):
    """What had no gradient yet would be 0 / 0."""
    with pytest.raises(ConfigError, match=rf"^{rule.__name__.lower()}|schedule_free\.eps: 0 is not a positive number$"):
        rule(eps=0)


def test_a_rule_within_a_rule_is_one():
    with pytest.raises(ConfigError, match=r"^cautious\.rule: UpdateRule is needed, and 'adamw' is given"):
        Cautious(rule="adamw")
