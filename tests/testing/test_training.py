"""What trains a model is checked by `check_variant`, and a planted mistake is found by its property."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax
import pytest

from transformer.models.pooling import Pooling
from transformer.objectives.objective import NextToken, Objective
from transformer.runs.rules import UpdateRule
from transformer.runs.schedules import Schedule
from transformer.testing import check_variant
from transformer.testing.check import CHECKS

SHIPPED = [
    cls()
    for family in (Schedule, Objective, Pooling)
    for cls in family.variants().values()
    if cls.__module__.startswith("transformer.")
]


@pytest.mark.parametrize("value", SHIPPED, ids=str)
def test_every_shipped_one(value):
    """All that applies holds; rules, which take longer, are checked beside their formulas."""
    own = CHECKS[value.family()]
    assert {f"{own.context}, {check.__name__}" for check in own.wanted} >= set(check_variant(value).passed[:-1])


@dataclass(frozen=True)
class Planted(UpdateRule):
    """A rule with a mistake."""

    name = "planted_rule"
    mistake: str = ""

    def direction(self, specs):
        if self.mistake == "sign":
            return optax.scale(-1.0)
        if self.mistake == "whole stack":
            return optax.stateless(lambda g, p: jax.tree.map(lambda a: a / (jnp.linalg.norm(a.ravel()) + 1e-6), g))
        return optax.scale_by_adam()


@dataclass(frozen=True)
class PlantedSchedule(Schedule):
    mistake: str = ""

    def decay(self, step, warmup, total):
        return {"": jnp.ones_like(step), "negative": 1 - step + warmup, "half": jnp.full_like(step, 0.5)}[self.mistake]


@dataclass(frozen=True, kw_only=True)
class PlantedObjective(NextToken):
    mistake: str = ""

    def __call__(self, apply, params, batch, key):
        sums = super().__call__(apply, params, batch, None if self.mistake == "keyless" else key)
        if self.mistake == "mean":
            return sums._replace(loss=sums.loss / len(batch["tokens"]))
        if self.mistake == "weights":
            return super().__call__(apply, params, {"tokens": batch["tokens"]}, key)
        return sums if self.mistake != "more right" else sums._replace(correct=sums.weight.sum() + 1)


@dataclass(frozen=True)
class Last(Pooling):
    """The last vector, though it may be padding."""

    name = "planted_last"

    def __call__(self, x_BLD, valid_BL, params):
        return x_BLD[:, -1]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (Planted("sign"), r"rule, downhill: a bowl of height \d+ is still \S+ high after 200 steps"),
        (Planted("whole stack"), "rule, layer_by_layer: a layer is not updated by itself: "),
        (PlantedSchedule("negative"), "schedule, possible: the factor is -19 with warm-up 0"),
        (PlantedSchedule("half"), "schedule, warmed_up: no straight rise to 1 in 0 steps of warm-up"),
        (PlantedObjective(mistake="keyless"), "objective, dropped: two keys drop the same, or nothing"),
        (PlantedObjective(mistake="mean"), "objective, added: loss of a batch is not that of its pieces together"),
        (PlantedObjective(mistake="weights"), "objective, unweighted: loss depends on labels of weight 0"),
        (Last(), "pooling, blind_to_padding: logits depend on padding"),
        (PlantedObjective(mistake="more right"), "objective, counted: 33 of 32 labels are right"),
    ],
    ids=str,
)
def test_a_planted_mistake_is_found(value, found):
    with pytest.raises(AssertionError, match=found):
        check_variant(value)


@pytest.mark.parametrize("value", [Planted(), PlantedSchedule(), PlantedObjective()], ids=str)
def test_without_a_mistake_nothing_is_found(value):
    assert check_variant(value).failed == []
