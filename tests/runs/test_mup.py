"""µP: what a few steps do to the logits does not depend on the width."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core import modules as pure
from transformer.core.errors import ConfigError
from transformer.core.parameters import FanIn
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.base import Normalizer
from transformer.mixers.attention.normalizers import LinearNormalizer
from transformer.mixers.attention.projections import ConstantScale, InverseScale
from transformer.mixers.attention.sparsity import SlidingWindow
from transformer.models.blocks import SideBySide
from transformer.models.build import build
from transformer.models.classifier import ClassifierConfig
from transformer.models.config import ModelConfig
from transformer.models.images import AutoencoderConfig
from transformer.models.pattern import Alternate
from transformer.objectives.classes import Classification
from transformer.objectives.objective import NextToken
from transformer.objectives.pictures import Reconstruction
from transformer.objectives.tokens import MultiToken
from transformer.runs.config import Replica, RunConfig
from transformer.runs.mup import mup
from transformer.runs.optimizer import OptimizerConfig, ParameterGroup
from transformer.runs.rules import SGD, AdamW, Lion
from transformer.runs.schedules import ConstantRate
from transformer.training.optimizer import Numbers, groups_of, make_optimizer, stack_numbers
from transformer.training.step import create_train_state, make_train_step

TABLES = ("embedding*", "position*")
BASE, WIDTHS, STEPS = 32, (32, 256), 4
TOKENS = jnp.asarray(np.random.default_rng(0).integers(0, 4, (4, 9)), jnp.int32)


@pytest.fixture
def config() -> RunConfig:
    return RunConfig(
        model=ModelConfig(vocab_size=4, max_length=8, num_layers=2, d_model=16, mixer=Attention(num_heads=2)),
        optimizer=OptimizerConfig(learning_rate=1e-2, warmup_steps=2),
        steps=12,
        batch_size=4,
    )


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
    assert changes["model.head.scale"] == 1
    assert [(group.rate, group.decay) for group in changes["optimizer.groups"]] == [(1, 1)]


@pytest.mark.parametrize("width", [16, 128])
def test_what_weight_decay_takes_in_a_step_does_not_depend_on_the_width(config, width):
    """Rate times decay is the same: without gradients every matrix and table loses the same share, and nothing else."""
    more = {"learning_rate": 0.1, "weight_decay": 0.5, "warmup_steps": 0, "schedule": ConstantRate()}
    config = config.replace({"model.d_model": width} | {f"optimizer.{name}": value for name, value in more.items()})
    config = config.replace(mup(config, BASE))
    model = pure.abstract(lambda key: build(config.model, key=key))
    specs, params = pure.specs(model), jax.tree.map(lambda a: jnp.ones(a.shape), pure.split(model)[0])
    optimizer = make_optimizer(config.optimizer, config.steps, specs)

    @jax.jit
    def moved(params):
        zeros = jax.tree.map(jnp.zeros_like, params)
        return optimizer.update(zeros, optimizer.init(params), params, numbers=Numbers(0.1, 0.5, 0.0))[0]

    for spec, update in zip(jax.tree.leaves(specs), jax.tree.leaves(moved(params)), strict=True):
        np.testing.assert_allclose(update, -0.1 * 0.5 if spec.decayed else 0.0, rtol=1e-6)
    (group,) = config.optimizer.groups
    assert (group.rate, group.decay) == (BASE / width, width / BASE)


def test_a_group_of_matrices_of_the_layers_is_refused(config):
    """µP has them; a group of tables goes on beside it."""
    beside = config.replace({"optimizer.groups": (ParameterGroup("embedding*", rate=0.1),)})
    against = config.replace({"optimizer.groups": (ParameterGroup("*query.kernel", rate=0.1),)})
    specs = pure.specs(pure.abstract(lambda key: build(config.model, key=key)))
    for one in (config, beside):
        make_optimizer(one.replace(mup(one, BASE)).optimizer, config.steps, specs)
    some = config.replace({"optimizer.groups": (ParameterGroup("blocks*", rate=0.1),)})  # norms of the layers too
    for one, pattern in ((against, r"\*query\.kernel"), (some, r"blocks\*")):
        with pytest.raises(ConfigError, match=rf"^mup: optimizer\.groups: '{pattern}' has matrices of the layers"):
            mup(one, BASE)


def test_a_factor_on_the_logits_stays(config):
    scaled = config.replace({"model.head.scale": 0.25})
    assert mup(scaled, BASE)["model.head.scale"] == 0.25 * mup(config, BASE)["model.head.scale"]


def test_a_second_mixer_has_no_rule_and_a_bridge_has_one(config):
    beside = config.replace({"model.block": SideBySide()})
    with pytest.raises(ConfigError, match=r"^mup: there is no rule for block=side_by_side"):
        mup(beside, BASE)
    images = RunConfig(model=AutoencoderConfig(image_size=(8, 8, 1), d_model=2 * BASE), objective=Reconstruction())
    assert "bridge.kernel" in [group.pattern for group in mup(images, BASE)["optimizer.groups"]]


@pytest.mark.parametrize(
    ("changes", "width", "message"),
    [
        ({}, 0, "mup: base width 0 is not a positive number"),
        ({"optimizer.rule": SGD()}, BASE, "mup: the steps of sgd are not of Adam's size; use adamw"),
    ],
)
def test_what_is_no_width_and_no_step(config, changes, width, message):
    with pytest.raises(ConfigError, match=message):
        mup(config.replace(changes), width)


@pytest.mark.parametrize(
    ("changes", "choice", "wanted"),
    [
        ({"feed_forward": "top_k"}, "feed_forward=top_k", "feed_forward=dense"),
        ({"pattern": ["alternate('feed_forward', [dense, top_k])"]}, "feed_forward=top_k", "feed_forward=dense"),
        ({"position": "forgetting"}, "position=forgetting", "position=rope"),
        ({"position": "randomized(scheme=relative_keys)"}, "position=randomized", "position=rope"),
        ({"mixer.heads": "differential"}, "mixer.heads=differential", "mixer.heads=none"),
        ({"mixer.normalizer": "talking_heads"}, "mixer.normalizer=talking_heads", "mixer.normalizer=none"),
        ({"mixer.parts": ["short_convolution(3)"]}, "mixer.parts=[short_convolution", "mixer.parts=()"),
        ({"residual": "hyper"}, "residual=hyper", "residual=pre"),
        (
            {"residual": "hyper(dynamic=False)", "feed_forward.residual": "hyper"},
            "feed_forward.residual=hyper",
            "feed_forward.residual=none",
        ),
        ({"head.transform": "dense"}, "head.transform=dense", "head.transform=none"),
        ({"embedding.scaled": True}, "embedding.scaled=True", "embedding.scaled=False"),
        ({"embedding.unit_length": True}, "embedding.unit_length=True", "embedding.unit_length=False"),
    ],
    ids=lambda value: None if isinstance(value, str) else ", ".join(value),
)
def test_what_mup_has_no_rule_for(config, changes, choice, wanted):
    """What sums over the width, and is none of the layers' kernels."""
    changed = config.replace({f"model.{name}": value for name, value in changes.items()})
    with pytest.raises(ConfigError) as caught:
        mup(changed, BASE)
    assert str(caught.value).startswith(f"mup: there is no rule for {choice}")
    assert str(caught.value).endswith(f"; use {wanted}")


@pytest.mark.parametrize(("pooling", "fits"), [("mean", True), ("cls", True), ("attention", False), ("first", False)])
def test_pooling_under_mup(config, pooling, fits):
    """A trained token is a row of a table; what is multiplied with a state is not."""
    model = ClassifierConfig(d_model=16, mixer=Attention(num_heads=2), num_classes=3).replace(pooling=pooling)
    changed = dataclasses.replace(config, model=model, objective=Classification())
    if fits:
        assert mup(changed, BASE)["model.head.scale"] == 2
        return
    with pytest.raises(ConfigError, match=f"no rule for pooling={pooling}; use pooling=mean"):
        mup(changed, BASE)


@pytest.mark.parametrize(
    ("objective", "changes"),
    [
        (NextToken(), {}),
        (
            NextToken(),
            {
                "position": "t5_bias(shared=False)",
                "residual": "hyper(dynamic=False)",
                "mixer.parts": ("output_gate",),
            },
        ),
        (MultiToken(), {"predict_ahead": 2}),
    ],
    ids=["plain", "choices", "multi_token"],
)
def test_what_sums_over_the_width_has_the_rate(config, objective, changes):
    """Every matrix with more rows in a wider model, and nothing else."""
    config = dataclasses.replace(config, model=config.model.replace(changes), objective=objective)
    wide = config.replace({"model.d_model": 2 * config.model.d_model})
    specs, more = (pure.specs(pure.abstract(lambda key, one=one: build(one.model, key=key))) for one in (config, wide))
    groups = groups_of(wide.replace(mup(wide, config.model.d_model)).optimizer.groups, specs)
    grows = jax.tree.map(lambda a, b: len(a.single) > 1 and a.single[0] < b.single[0], specs, more)
    assert jax.tree.map(lambda own: own.groups[0].rate == 0.5, groups) == grows


def test_what_is_frozen_stays_so(config):
    frozen = config.replace({"optimizer.groups": (ParameterGroup("*query.kernel", rate=0.0, decay=0.0),)})
    ours = frozen.replace(mup(frozen, BASE))
    groups = groups_of(ours.optimizer.groups, pure.specs(pure.abstract(lambda key: build(config.model, key=key))))
    attention = groups["blocks"]["kinds"]["0"]["attention"]
    assert attention["query"]["kernel"].groups[0].rate == 0
    assert attention["key"]["kernel"].groups[0].rate == BASE / config.model.d_model


def test_at_the_base_width_scores_are_the_usual_ones(config):
    """So that the config tuned there, of matrices of variance 1/fan-in, is the very one that is scaled."""
    at_base = config.replace({"model.initializer": FanIn()})
    size = config.model.d_model // 2
    same = at_base.replace(mup(at_base, config.model.d_model, size))
    outputs = []
    for model in (at_base.model, same.model):
        params, apply = pure.split(build(model, key=jax.random.key(0)))
        outputs.append(apply(params, TOKENS[:, :-1]))
    np.testing.assert_allclose(*outputs, rtol=1e-6)
    twice = at_base.replace({"model.d_model": 2 * config.model.d_model})
    assert mup(twice, config.model.d_model, size)["model.mixer.scale"](2 * size, {}) == pytest.approx(size**-0.5 / 2)
    with pytest.raises(ConfigError, match=r"^inverse\.base: 0 is not a positive number$"):
        mup(config, 8, 0)


def test_the_factor_is_set_wherever_there_is_attention():
    mixers = (Attention(), None, Attention(sparsity=SlidingWindow(3)))
    model = ModelConfig(vocab_size=4, num_layers=3, pattern=(Alternate("mixer", mixers),))
    run = RunConfig(model=model)
    kinds = run.replace(mup(run, 64)).model.kinds
    assert [kind.mixer and kind.mixer.scale for kind in kinds] == [InverseScale(), None, InverseScale()]
    assert not any("mixer" in path for path in mup(RunConfig(model=ModelConfig(vocab_size=4, mixer=None)), 64))


@pytest.mark.parametrize("normalizer", ["linear", "performer"])
def test_no_factor_is_set_where_it_cancels(normalizer):
    linear = Attention(normalizer=Normalizer.parse(normalizer))
    run = RunConfig(model=ModelConfig(vocab_size=4, mixer=linear))
    assert run.replace(mup(run, 64)).model.mixer == linear
    turns = RunConfig(model=ModelConfig(vocab_size=4, pattern=(Alternate("mixer", (Attention(), linear)),)))
    kinds = turns.replace(mup(turns, 64)).model.kinds
    assert [kind.mixer.scale for kind in kinds] == [InverseScale(), None]


@pytest.mark.parametrize(
    ("path", "values"), [("mixer.scale", (None, ConstantScale(1.0))), ("mixer.normalizer", (None, LinearNormalizer()))]
)
def test_a_pattern_of_what_the_factor_depends_on_is_refused(path, values):
    run = RunConfig(model=ModelConfig(vocab_size=4, pattern=(Alternate(path, values),)))
    with pytest.raises(ConfigError, match=f"mup: there is no rule for model.pattern of {path}; alternate mixer"):
        mup(run, 64)


def test_the_factor_is_set_where_the_mixer_takes_turns_too():
    """The pattern has the model's own mixer, whose factor is then that of the pattern."""
    own, local = Attention(num_heads=2), Attention(num_heads=2, sparsity=SlidingWindow(3))
    run = RunConfig(
        model=ModelConfig(vocab_size=4, num_layers=2, mixer=own, pattern=(Alternate("mixer", (own, local)),))
    )
    model = run.replace(mup(run, 64)).model
    assert [kind.mixer.scale for kind in (model, *model.kinds)] == [InverseScale()] * 3
