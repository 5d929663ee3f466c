"""Update rules and groups as values: what is refused, their text and JSON forms, and their formulas in NumPy."""

import numpy as np
import optax
import pytest

from transformer.core.errors import ConfigError
from transformer.runs.config import RunConfig
from transformer.runs.muon import Muon
from transformer.runs.optimizer import OptimizerConfig, ParameterGroup
from transformer.runs.rules import ADOPT, SGD, Adafactor, AdamW, AdEMAMix, Lion, ScheduleFree

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
            lambda: OptimizerConfig(rule=optax.sgd(0.1)),  # pyright: ignore[reportArgumentType] wrong on purpose
            "rule: a GradientTransformation.* is not UpdateRule; one of optax is what the `direction` of a rule",
        ),
        (
            lambda: RunConfig(optimizer=OptimizerConfig(rule=ScheduleFree()), average_last=3),
            "average_last: schedule_free is judged by a mean of its own",
        ),
    ],
)
def test_what_cannot_be_is_one_line(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def kernels(trees):
    """The kernel of one of the layers, float64."""
    return [np.asarray(tree["blocks"]["kernel"][1], np.float64) for tree in trees]


def test_ademamix_adds_a_slow_mean_that_begins_at_zero(directions, gradients):
    beta1, beta2, beta3, alpha, warmup = 0.8, 0.9, 0.99, 3.0, 4
    found = directions(AdEMAMix(beta1, beta2, beta3, alpha, warmup), gradients)
    m1 = m2 = v = np.zeros((4, 6))
    for t, (g, direction) in enumerate(zip(kernels(gradients), kernels(found), strict=True), 1):
        share = min(t / warmup, 1)
        kept = np.exp(np.log(beta1) * np.log(beta3) / ((1 - share) * np.log(beta3) + share * np.log(beta1)))
        m1, m2, v = beta1 * m1 + (1 - beta1) * g, kept * m2 + (1 - kept) * g, beta2 * v + (1 - beta2) * g**2
        expected = (m1 / (1 - beta1**t) + share * alpha * m2) / np.sqrt(v / (1 - beta2**t))
        np.testing.assert_allclose(direction, expected, rtol=1e-4, atol=1e-5)


def test_adopt_divides_by_earlier_gradients(directions, gradients):
    """Where eps and the clipping matter too."""
    beta1, beta2, eps = 0.8, 0.5, 0.6
    found = directions(ADOPT(beta1, beta2, eps), gradients)
    first, *rest = kernels(gradients)
    still, *found = kernels(found)
    assert not np.any(still)
    m, v = np.zeros((4, 6)), first**2
    for t, (g, direction) in enumerate(zip(rest, found, strict=True), 1):
        m = beta1 * m + (1 - beta1) * np.clip(g / np.maximum(np.sqrt(v), eps), -(t**0.25), t**0.25)
        v = beta2 * v + (1 - beta2) * g**2
        np.testing.assert_allclose(direction, m, rtol=1e-4, atol=1e-5)


def test_adafactor_keeps_a_share_that_grows_and_clips_by_root_mean_squares(directions, gradients):
    """Step t keeps 1 - t^-decay; parameters smaller than eps move as if they had that size."""
    decay, clip, eps = 0.7, 0.7, 2.0
    rows, columns = np.zeros(4), np.zeros(6)
    gradients = gradients[:3]
    found = directions(Adafactor(decay, clip, eps), gradients)
    for t, (g, direction) in enumerate(zip(kernels(gradients), kernels(found), strict=True), 1):
        kept = 1 - t**-decay
        rows, columns = kept * rows + (1 - kept) * (g**2).mean(1), kept * columns + (1 - kept) * (g**2).mean(0)
        u = g / np.sqrt(np.outer(rows, columns) / rows.mean())
        u /= max(1, np.sqrt((u**2).mean()) / clip)
        np.testing.assert_allclose(direction, eps * u, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rule", [AdamW(eps=0.5), AdEMAMix(alpha=0.0, eps=0.5), ScheduleFree(eps=0.5)], ids=str)
def test_eps_is_added_to_the_root(rule, directions, gradients):
    """Not to its square, and not another number: the unbiased means after one step are the gradient and its square."""
    (g,), (direction,) = (kernels(trees) for trees in (gradients[:1], directions(rule, gradients[:1])))
    np.testing.assert_allclose(direction, g / (np.abs(g) + 0.5), rtol=1e-5)
