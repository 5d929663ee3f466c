"""µP: what a few steps do to the logits does not depend on the width."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.config.feed_forwards import DenseFeedForward, TopKExperts
from transformer.config.groups import ParameterGroup
from transformer.config.mup import mup
from transformer.config.objectives import NextToken
from transformer.config.parameters import FanIn
from transformer.config.patterns import Pattern
from transformer.config.rules import SGD, AdamW, Lion
from transformer.config.run import Replica
from transformer.config.variant import ConfigError
from transformer.models import pure
from transformer.models.build import build
from transformer.training.optimizer import make_optimizer, stack_numbers
from transformer.training.step import create_train_state, make_train_step

TABLES = ("embedding*", "position*")
BASE, WIDTHS, STEPS = 32, (32, 256), 4
TOKENS = jnp.asarray(np.random.default_rng(0).integers(0, 4, (4, 9)), jnp.int32)


def change_of_logits(config):
    """The root mean square of what some steps change."""
    model = build(config.model, key=jax.random.key(0))
    params, apply = pure.split(model)
    optimizer = make_optimizer(config.optimizer, config.steps, pure.specs(model))
    numbers = jax.tree.map(lambda a: jnp.asarray(a[0]), stack_numbers(config.optimizer, [Replica()]))
    state = create_train_state(params, optimizer, numbers, jax.random.key(1))
    step = jax.jit(make_train_step(apply, NextToken(), optimizer))
    logits = jax.jit(apply)
    before = logits(state.params, TOKENS[:, :-1])
    for _ in range(STEPS):
        state, _ = step(state, {"tokens": TOKENS})
    return float(jnp.sqrt(jnp.mean((logits(state.params, TOKENS[:, :-1]) - before) ** 2)))


@pytest.mark.parametrize(
    ("rule", "learning_rate", "held"),
    [(AdamW(), 2e-3, ()), (Lion(), 2e-3, ()), (AdamW(), 1e-4, tuple(ParameterGroup(p, rate=0.0) for p in TABLES))],
    ids=["adamw", "lion", "layers alone"],
)
def test_the_change_of_logits_does_not_grow_with_the_width(config, rule, learning_rate, held):
    """Under µP; under the standard parametrization it does. Also where the matrices of the layers alone learn."""
    more = {"rule": rule, "groups": held, "learning_rate": learning_rate, "warmup_steps": 0}
    config = config.replace({f"optimizer.{name}": value for name, value in more.items()})
    wide = [config.replace({"model.d_model": width, "model.initializer": FanIn()}) for width in WIDTHS]
    standard = [change_of_logits(one) for one in wide]
    ours = [change_of_logits(one.replace(mup(one, BASE))) for one in wide]
    assert standard[-1] > 3 * standard[0]
    assert 0.5 < ours[-1] / ours[0] < 2


def test_at_the_base_width_nothing_has_another_rate(config):
    changes = mup(config, config.model.d_model)
    assert changes["model.logit_scale"] == 1
    assert [(group.rate, group.decay) for group in changes["optimizer.groups"]] == [(1, 1)]


def test_a_group_that_would_take_all_matrices_is_refused(config):
    """µP has them; a group of tables goes on beside it."""
    beside = config.replace({"optimizer.groups": (ParameterGroup("embedding*", rate=0.1),)})
    against = config.replace({"optimizer.groups": (ParameterGroup("*query.kernel", rate=0.1),)})
    specs = pure.specs(pure.abstract(lambda key: build(config.model, key=key)))
    for one in (config, beside):
        make_optimizer(one.replace(mup(one, BASE)).optimizer, config.steps, specs)
    with pytest.raises(ConfigError, match=r"no parameter is left for '\*query.kernel'"):
        make_optimizer(against.replace(mup(against, BASE)).optimizer, config.steps, specs)


@pytest.mark.parametrize(
    ("changes", "width", "message"),
    [
        ({}, 0, "mup: base width 0 is not a positive number"),
        ({"optimizer.rule": SGD()}, BASE, "mup: the steps of sgd are not of Adam's size; use adamw"),
        ({"model.feed_forward": TopKExperts()}, BASE, "mup: matrices of experts have no learning rate"),
        ({"model.pattern": Pattern(feed_forward=(DenseFeedForward(), TopKExperts()))}, BASE, "mup: matrices of exp"),
    ],
)
def test_what_mup_does_not_cover(config, changes, width, message):
    with pytest.raises(ConfigError, match=message):
        mup(config.replace(changes), width)
