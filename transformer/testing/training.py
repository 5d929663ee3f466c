"""Properties of what trains a model, update rules, schedules and objectives, and of a classifier's pooling.

Each raises AssertionError with one line where it does not hold.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from transformer.core.errors import ConfigError
from transformer.core.modules import Params
from transformer.core.parameters import Parameter
from transformer.core.values import Variant
from transformer.models.build import pure_model
from transformer.models.classifier import ClassifierConfig
from transformer.models.config import ModelConfig
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.models.images import PatchConfig, VisionConfig
from transformer.models.pooling import PerToken, Pooling
from transformer.models.vectors import VectorConfig
from transformer.objectives.classes import Classification, TokenClassification
from transformer.objectives.objective import Batch, Objective, Sums
from transformer.runs.config import Replica
from transformer.runs.optimizer import OptimizerConfig
from transformer.runs.rules import UpdateRule
from transformer.runs.schedules import Schedule
from transformer.testing.evaluation import Evaluated
from transformer.testing.properties import applies, close, differ
from transformer.testing.subject import LENGTH, SMALL, VOCAB, initial_values, shaken, tokens_of
from transformer.training.optimizer import Numbers, make_optimizer, stack_numbers
from transformer.training.step import TrainState, create_train_state, draws

# Update rules.

STEPS, LAYERS = 6, 3
SPECS = {
    "blocks": {
        "kernel": Parameter((4, 6)),
        "experts": Parameter((2, 9, 2), stacked=True),
        "scale": Parameter((4,)),
        "gate": Parameter(()),
    },
    "embedding": {"table": Parameter((5, 4))},
}


def values_of(seed: int, specs: Params = SPECS) -> Params:
    """Values of all parameters; those of blocks have a leading axis of layers."""
    rng = np.random.default_rng(seed)

    def value(path, spec):
        shape = (LAYERS, *spec.shape) if path[0].key == "blocks" else spec.shape
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    return jax.tree.map_with_path(value, specs)


def config_of(rule: UpdateRule, **more: Any) -> OptimizerConfig:
    """An optimizer with this rule."""
    return OptimizerConfig(**{"rule": rule, "warmup_steps": 2, "learning_rate": 0.03, "clip_norm": None} | more)


def numbers_of(config: OptimizerConfig, *replicas: Replica) -> Numbers:
    """The numbers of some replicas, or those of the config alone."""
    stacked = stack_numbers(config, replicas or [Replica()])
    return jax.tree.map(jnp.asarray, stacked if replicas else jax.tree.map(lambda a: a[0], stacked))


def descend(
    optimizer: optax.GradientTransformationExtraArgs,
    params: Params,
    numbers: Numbers,
    gradients: Sequence[Params] | None = None,
) -> list[TrainState]:
    """The states after each of some steps with given gradients, or with `STEPS` random ones."""
    state, states = create_train_state(params, optimizer, numbers, jax.random.key(0)), []
    for gradient in map(values_of, range(1, STEPS + 1)) if gradients is None else gradients:
        updates, opt_state = optimizer.update(gradient, state.opt_state, state.params, numbers=numbers)
        state = state._replace(params=optax.apply_updates(state.params, updates), opt_state=opt_state)
        states.append(state)
    return states


def trained(config: OptimizerConfig, numbers: Numbers | None = None) -> tuple[Params, Params]:
    """Parameters and what is evaluated after all steps."""
    numbers = numbers_of(config) if numbers is None else numbers
    last = descend(make_optimizer(config, STEPS, SPECS), values_of(0), numbers)[-1]
    return last.params, last.evaluated


def _same(left: Params, right: Params, what: str, tolerance: float = 1e-4) -> None:
    for (path, a), b in zip(jax.tree.leaves_with_path(left), jax.tree.leaves(right), strict=True):
        close(a, b, f"{what}: {jax.tree_util.keystr(path, simple=True, separator='.')}", tolerance)


def layer_by_layer(rule: UpdateRule) -> None:
    """A stack of layers moves as its layers do, each in a model of one layer."""
    config = config_of(rule)
    made, numbers, params = make_optimizer(config, STEPS, SPECS), numbers_of(config), values_of(0)
    together = descend(made, params, numbers)[-1].params

    def only(i, params):
        return params | {"blocks": jax.tree.map(lambda a: a[i : i + 1], params["blocks"])}

    for i in range(LAYERS):
        gradients = [only(i, values_of(seed)) for seed in range(1, STEPS + 1)]
        alone = descend(made, only(i, params), numbers, gradients)[-1].params
        _same(alone["blocks"], only(i, together)["blocks"], "a layer is not updated by itself", 1e-5)


def replica_by_replica(rule: UpdateRule) -> None:
    """Mapped over numbers, in a batch or in a loop, the rule gives what it gives for each of them."""
    config, replicas = config_of(rule), (Replica(), Replica(learning_rate=0.01), Replica(weight_decay=3.0))
    run = functools.partial(trained, config)
    numbers = numbers_of(config, *replicas)
    for how, together in {
        "vmap": jax.jit(jax.vmap(run))(numbers),
        "map": jax.jit(functools.partial(lax.map, run))(numbers),
    }.items():
        for i in range(len(replicas)):
            single = jax.jit(run)(jax.tree.map(lambda a, i=i: a[i], numbers))
            _same(jax.tree.map(lambda a, i=i: a[i], together), single, f"a replica of {how} is no single run")


def moved_by_numbers(rule: UpdateRule) -> None:
    """The learning rate, the weight decay and the warm-up of a replica matter."""
    config = config_of(rule)
    run = jax.jit(functools.partial(trained, config))
    first = run(numbers_of(config))[0]["blocks"]["kernel"]
    for other in (Replica(learning_rate=0.01), Replica(weight_decay=3.0), Replica(warmup_steps=0)):
        params, _ = run(jax.tree.map(lambda a: a[0], numbers_of(config, other)))
        differ(params["blocks"]["kernel"], first, f"{other} changes nothing")


def downhill(rule: UpdateRule) -> None:
    """To the bottom of a bowl: after 200 steps the mean square is less than a tenth."""
    config = config_of(rule, learning_rate=0.1, weight_decay=0.0, clip_norm=1.0)
    made, bottom = make_optimizer(config, 200, SPECS), values_of(7)

    def step(state, _):
        gradient = jax.tree.map(jnp.subtract, state.params, bottom)
        updates, opt_state = made.update(gradient, state.opt_state, state.params, numbers=state.numbers)
        return state._replace(params=optax.apply_updates(state.params, updates), opt_state=opt_state), None

    def height(params):
        return float(optax.tree.norm(jax.tree.map(jnp.subtract, params, bottom), squared=True))

    start = create_train_state(values_of(0), made, numbers_of(config), jax.random.key(0))
    end = jax.jit(lambda state: lax.scan(step, state, None, 200)[0])(start)
    before, after = height(start.evaluated), height(end.evaluated)
    assert after < 0.1 * before, f"a bowl of height {before:.3g} is still {after:.3g} high after 200 steps"


# Schedules.

TOTAL = 20


def factors(schedule: Schedule, warmup: int, total: int = TOTAL) -> np.ndarray:
    """The factor at steps 0 … total, the number of warm-up steps traced."""
    run = jax.jit(jax.vmap(lambda step, warmup: schedule(step, warmup, total), in_axes=(0, None)))
    return np.asarray(run(jnp.arange(total + 1), jnp.int32(warmup)))


def warmed_up(schedule: Schedule) -> None:
    """A straight rise to 1 at the end of warm-up, which may be traced, none, or longer than the run."""
    for warmup in (0, 4, TOTAL + 10):
        rise = np.arange(1, min(warmup, TOTAL) + 2) / (warmup + 1)
        close(factors(schedule, warmup)[: len(rise)], rise, f"no straight rise to 1 in {warmup} steps of warm-up", 1e-6)


def possible(schedule: Schedule) -> None:
    """Finite factors, float32, of which none is negative."""
    for warmup in (0, 4, TOTAL - 1, TOTAL, TOTAL + 10):
        found = factors(schedule, warmup)
        assert found.dtype == np.float32, f"the factor is {found.dtype}, not float32"
        assert found.shape == (TOTAL + 1,), f"the factor of a step has the shape {found.shape[1:]}, not ()"
        assert np.isfinite(found).all(), f"the factor is {found[~np.isfinite(found)][0]} with warm-up {warmup}"
        assert (found >= 0).all(), f"the factor is {found.min():.3g} with warm-up {warmup}"


# Objectives.

BATCH = 4
TOKENS = tokens_of(BATCH, LENGTH + 1)
IMAGES = np.random.default_rng(0).normal(size=(BATCH, 4, 4, 1)).astype(np.float32)
LABELS = np.arange(BATCH, dtype=np.int32) % 3
PATCHES = {"image_size": (4, 4, 1), "patch_size": 2}
FEATURES = {"features": 3, "outputs": 2}
VECTORS = {
    "inputs": np.random.default_rng(1).normal(size=(BATCH, LENGTH, 3)).astype(np.float32),
    "labels": np.random.default_rng(2).normal(size=(BATCH, LENGTH, 2)).astype(np.float32),
}
PAIRS = {"source": TOKENS[:, :5], "source_valid": np.ones((BATCH, 5), bool), "target": TOKENS[::-1].copy()}
CASES: Sequence[tuple[type[ModelConfig], Mapping[str, Any], Batch]] = (
    (VisionConfig, {"num_classes": 3, **PATCHES}, {"inputs": IMAGES, "labels": LABELS}),
    (PatchConfig, PATCHES, {"inputs": IMAGES}),
    (VectorConfig, FEATURES, VECTORS),
    (VectorConfig, {**FEATURES, "causal": False}, VECTORS),
    (EncoderDecoderConfig, {"source_vocab_size": VOCAB, "max_source_length": LENGTH}, PAIRS),
    (ClassifierConfig, {"num_classes": 3}, {"inputs": TOKENS, "labels": LABELS}),
    (ClassifierConfig, {"num_classes": 3, "pooling": PerToken()}, {"inputs": TOKENS, "labels": TOKENS % 3}),
    (ModelConfig, {}, {"tokens": TOKENS}),
    (ModelConfig, {"causal": False}, {"tokens": TOKENS}),
    (ModelConfig, {"predict_ahead": 2}, {"tokens": TOKENS}),
)
"""Kinds of model, the most special first, with a batch of each."""


class Task(NamedTuple):
    """An objective with a model that fits it, and a batch."""

    objective: Objective
    config: ModelConfig
    params: Params
    batch: Batch

    def sums(self, batch: Batch | None = None, key: jax.Array | None = None, **choices: Any) -> Sums:
        """The sums of a batch, of the model with some choices changed."""
        run = _sums(self.objective, self.config.replace(choices))
        return run(self.params, self.batch if batch is None else batch, key)


@functools.cache
def _sums(objective: Objective, config: ModelConfig) -> Evaluated:
    return Evaluated(functools.partial(objective, pure_model(config)[1]))


def task_of(objective: Objective, choices: Mapping[str, Any]) -> Task:
    """The objective with the first model that it takes.

    Raises:
      ConfigError: it takes none of them.
    """
    reason = ConfigError(f"{objective}: no batch is known for the model of a {objective.needs.__name__}")
    for kind, fields, batch in CASES:
        if not issubclass(objective.needs, kind):
            continue
        try:
            config = objective.needs(**{**SMALL, **fields})
            objective.check(config)  # before choices, which may make another case of it
            config = config.replace(dict(choices))
            objective.check(config)
        except ConfigError as error:
            reason = error
            continue
        return Task(objective, config, shaken(initial_values(config)), batch)
    raise reason


def counted(task: Task) -> None:
    """A loss and a weight at each position, finite, with no more labels than there are."""
    sums, labels = task.sums(), np.asarray(task.objective.labels(task.batch))
    assert isinstance(sums, Sums), f"it returns {type(sums).__name__}, and Sums is needed"
    shapes = [np.shape(each) for each in (sums.loss, sums.weight)]
    assert shapes[0] == shapes[1], f"losses have the shape {shapes[0]}, weights {shapes[1]}"
    assert all(np.isfinite(each).all() for each in sums), "sums are not finite"
    weight = float(np.sum(sums.weight))
    assert 0 < weight <= labels.size, f"{weight:g} of {labels.size} labels are counted"
    assert 0 <= sums.correct <= weight, f"{sums.correct:g} of {weight:g} labels are right"
    assert 0 <= sums.exact <= sums.sequences, f"{sums.exact:g} of {sums.sequences:g} sequences are right"


def added(task: Task) -> None:
    """The sums of a batch are those of its pieces together, however it is cut."""
    run = functools.partial(task.objective, pure_model(task.config)[1])
    applies(not draws(jax.make_jaxpr(run)(task.params, task.batch, None).jaxpr))  # of labels, chosen by their place
    pieces = [{name: a[rows] for name, a in task.batch.items()} for rows in (slice(0, 2), slice(2, BATCH))]
    whole, parts = task.sums(), [task.sums(piece) for piece in pieces]
    for name, found, *own in zip(Sums._fields, whole, *parts, strict=True):
        close(sum(own), found, f"{name} of a batch is not that of its pieces together", 1e-5)


def unweighted(task: Task) -> None:
    """What has no weight counts for nothing, whatever it is."""
    applies("tokens" in task.batch)
    tokens, weights = task.batch["tokens"], np.ones((BATCH, LENGTH), np.float32)
    weights[1:3] = 0
    others = tokens.copy()
    others[1:3] = (tokens[1:3] + 1) % VOCAB
    first, second = (task.sums({"tokens": each, "weights": weights}) for each in (tokens, others))
    for name, one, other in zip(Sums._fields, first, second, strict=True):
        close(one, other, f"{name} depends on labels of weight 0", 1e-5)
    assert first.sequences <= BATCH - 2, f"{first.sequences:g} sequences are counted, and {BATCH - 2} have a label"


def evaluated(task: Task) -> None:
    """Without a key nothing is dropped: the sums are those of the model without dropout, each time."""
    expected = task.sums(dropout=0.0)
    for _ in range(2):
        for name, found, wanted in zip(Sums._fields, task.sums(dropout=0.5), expected, strict=True):
            close(found, wanted, f"{name} without a key is not that of the model without dropout", 1e-5)


def dropped(task: Task) -> None:
    """A key turns dropout on, and decides what is dropped."""
    losses = [float(task.sums(key=jax.random.key(seed), dropout=0.5).loss.sum()) for seed in (0, 1, 0)]
    assert losses[0] == losses[2], "two losses under one key are not the same"
    assert losses[0] != losses[1], "two keys drop the same, or nothing: is the key given to the model?"


def trains(task: Task) -> None:
    """The gradient is finite, and not zero everywhere."""
    apply = pure_model(task.config)[1]
    run = Evaluated(jax.grad(lambda params: task.objective(apply, params, task.batch, None).loss.sum()))
    leaves = jax.tree.leaves(run(task.params))
    assert all(np.isfinite(leaf).all() for leaf in leaves), "the gradient is not finite"
    assert any(leaf.any() for leaf in leaves), "the gradient is zero"


def blind_to_padding(task: Task) -> None:
    """What a classifier says does not depend on padding."""
    apply = pure_model(task.config)[1]
    run = Evaluated(lambda tokens_BL, valid_BL: apply(task.params, tokens_BL, valid_BL=valid_BL))
    tokens, valid = task.batch["inputs"], np.arange(LENGTH + 1)[None] < np.array([[LENGTH + 1], [5], [3], [1]])
    others = np.where(valid, tokens, (tokens + 1) % VOCAB)
    first, second = run(tokens, valid), run(others, valid)
    where = valid if first.ndim == 3 else np.s_[:]
    close(first[where], second[where], "logits depend on padding", 1e-5)


def task_with(pooling: Pooling, choices: Mapping[str, Any]) -> Task:
    """Classification by a model with this pooling, of each token where it reads each."""
    objective = TokenClassification() if pooling.per_token else Classification()
    return task_of(objective, {"pooling": pooling, **choices})


RULE = (layer_by_layer, replica_by_replica, moved_by_numbers, downhill)
SCHEDULE = (warmed_up, possible)
OBJECTIVE = (counted, added, unweighted, evaluated, dropped, trains)
POOLING = (counted, blind_to_padding, trains)


class Checks(NamedTuple):
    """How the values of a family are checked."""

    context: str
    wanted: Sequence[Callable[[Any], None]]
    subject: Callable[[Any, Mapping[str, Any]], Any] = lambda value, choices: value
    """What the properties are those of: the value with further choices."""


FAMILIES: Mapping[type[Variant], Checks] = {
    UpdateRule: Checks("rule", RULE),
    Schedule: Checks("schedule", SCHEDULE),
    Objective: Checks("objective", OBJECTIVE, task_of),
    Pooling: Checks("pooling", POOLING, task_with),
}
"""Those that are no choice of a language model."""
