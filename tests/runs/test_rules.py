"""Update rules and groups as values: what is refused, their text and JSON forms, and their formulas in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.parameters import Parameter
from transformer.core.values import ConfigError
from transformer.runs.config import RunConfig
from transformer.runs.optimizer import OptimizerConfig, ParameterGroup
from transformer.runs.rules import ADOPT, SGD, AdamW, AdEMAMix, Lion, Muon, ScheduleFree

GROUPS = (ParameterGroup("embedding*", rate=0.1, decay=0.0), ParameterGroup("*kernel"))


@pytest.mark.parametrize("rule", [AdamW(), SGD(nesterov=True), Muon(rest=AdamW(beta2=0.95)), ScheduleFree(beta=0.95)])
def test_a_run_with_a_rule_and_groups_has_a_json_form(rule):
    config = RunConfig(optimizer=OptimizerConfig(rule=rule, groups=GROUPS))
    assert RunConfig.from_json(config.to_json()) == config
    assert config.replace({"optimizer.rule": str(rule)}) == config


def test_a_group_reads_well():
    assert str(GROUPS[0]) == "group(pattern='embedding*', rate=0.1, decay=0.0)"
    assert ParameterGroup.parse("group('embedding*', rate=0.1, decay=0)") == GROUPS[0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AdamW(beta2=1.0), r"adamw.beta2: 1.0 is not in \[0, 1\)"),
        (lambda: AdEMAMix(beta3=1.0), r"ademamix.beta3: 1.0 is not in \[0, 1\)"),
        (lambda: Lion(beta1=-0.1), r"lion.beta1: -0.1 is not in \[0, 1\)"),
        (lambda: ParameterGroup("*", rate=-1.0), "group.rate: -1.0 is negative"),
        (lambda: ParameterGroup("*", decay=-1.0), "group.decay: -1.0 is negative"),
        (
            lambda: RunConfig(optimizer=OptimizerConfig(rule=ScheduleFree()), average_last=3),
            "average_last: schedule_free is judged by a mean of its own",
        ),
    ],
)
def test_what_cannot_be_is_one_line(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


SPECS = {"blocks": {"kernel": Parameter((4, 6)), "gate": Parameter(())}, "table": Parameter((5, 4))}
SHAPES = {"blocks": {"kernel": (3, 4, 6), "gate": (3,)}, "table": (5, 4)}


def arrays(seed):
    """Values of `SPECS`, of which those of blocks are stacked over three layers."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda shape: rng.normal(size=shape).astype(np.float32), SHAPES, is_leaf=lambda s: isinstance(s, tuple)
    )


GRADIENTS = [arrays(seed) for seed in range(1, 7)]


def directions(rule, gradients=GRADIENTS):
    """The rule's direction after each gradient, at parameters that do not move."""
    params = jax.tree.map(jnp.asarray, arrays(0))
    made, found = rule.direction(SPECS), []
    with jax.numpy_dtype_promotion("standard"):
        state = made.init(params)
        for gradient in gradients:
            direction, state = made.update(jax.tree.map(jnp.asarray, gradient), state, params)
            found.append(direction)
    return found


def entry(gradients=GRADIENTS):
    """The gradients of one layer's kernel, float64."""
    return [np.float64(gradient["blocks"]["kernel"][1]) for gradient in gradients]


def test_ademamix_adds_a_slow_mean_that_begins_at_zero():
    beta1, beta2, beta3, alpha, warmup = 0.8, 0.9, 0.99, 3.0, 4
    found = directions(AdEMAMix(beta1, beta2, beta3, alpha, warmup))
    m1 = m2 = v = np.zeros((4, 6))
    for t, (g, direction) in enumerate(zip(entry(), found, strict=True), 1):
        share = min(t / warmup, 1)
        kept = np.exp(np.log(beta1) * np.log(beta3) / ((1 - share) * np.log(beta3) + share * np.log(beta1)))
        m1, m2, v = beta1 * m1 + (1 - beta1) * g, kept * m2 + (1 - kept) * g, beta2 * v + (1 - beta2) * g**2
        expected = (m1 / (1 - beta1**t) + share * alpha * m2) / np.sqrt(v / (1 - beta2**t))
        np.testing.assert_allclose(direction["blocks"]["kernel"][1], expected, rtol=1e-4, atol=1e-5)


def test_adopt_divides_by_earlier_gradients():
    """Where eps and the clipping matter too."""
    beta1, beta2, eps = 0.8, 0.5, 0.6
    found = directions(ADOPT(beta1, beta2, eps))
    first, *rest = entry()
    assert not np.any(found[0]["blocks"]["kernel"])
    m, v = np.zeros((4, 6)), first**2
    for t, (g, direction) in enumerate(zip(rest, found[1:], strict=True), 1):
        m = beta1 * m + (1 - beta1) * np.clip(g / np.maximum(np.sqrt(v), eps), -(t**0.25), t**0.25)
        v = beta2 * v + (1 - beta2) * g**2
        np.testing.assert_allclose(direction["blocks"]["kernel"][1], m, rtol=1e-4, atol=1e-5)
