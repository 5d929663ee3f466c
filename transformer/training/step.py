"""One update of the parameters, a pure function of state and batch."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike

from transformer.core.arrays import towards
from transformer.core.checks import check_kind, is_count
from transformer.core.errors import ConfigError
from transformer.core.modules import Apply, Params, check_apply, no_key
from transformer.functional.segment_memory import SegmentMemory
from transformer.objectives.objective import Batch, Objective
from transformer.training.gradient import make_gradient
from transformer.training.optimizer import Numbers


class TrainState(NamedTuple):
    """The complete state of a run between two steps."""

    step: jax.Array
    """Updates done, int32."""
    params: Params
    opt_state: optax.OptState
    key: jax.Array
    """Typed key; the randomness of a step comes from `fold_in(key, step)`."""
    numbers: Numbers
    """The replica's own hyperparameters; optimizers get them as an extra argument."""
    diverged_at: jax.Array
    """The step at which the run diverged (`skip_limit`), int32; -1 while healthy."""
    skipped: jax.Array
    """Number of consecutive skipped updates, int32."""
    average: Params | None = None
    """Mean of the parameters after the last steps, if requested; until averaging starts, the parameters."""
    earlier: SegmentMemory | None = None
    """Transformer-XL memory carried from the last batch whose update was taken; None for other models."""

    @property
    def evaluated(self) -> Params:
        """The parameters a run is evaluated with: a mean, of the last steps or of the update rule, or the latest."""
        own = optax.tree.get(self.opt_state, "average", self.params, filtering=_is_field)
        return own if self.average is None else self.average


def _is_field(path: jax.tree_util.KeyPath, _: Any) -> bool:
    """Whether a value is a field of an update rule's state, and not a parameter of that name."""
    return isinstance(path[-1], optax.tree_utils.NamedTupleKey)


Metrics = dict[str, jax.Array]
Step = Callable[[TrainState, Batch], tuple[TrainState, Metrics]]


def create_train_state(
    params: Params,
    optimizer: optax.GradientTransformation,
    numbers: Numbers,
    key: jax.Array,
    *,
    averaged: bool = False,
    earlier: SegmentMemory | None = None,
) -> TrainState:
    """The state before the first step.

    Args:
      params: the initial parameters.
      optimizer: an optax transformation, such as that of `make_optimizer`.
      numbers: the replica's own, `Numbers(learning_rate, weight_decay, warmup_steps)`.
      key: typed key from which the randomness of each step is folded.
      averaged: whether to keep a mean of the parameters (`with_average`).
      earlier: for a model with a `memory_length`, whose batches each continue, row by row, the previous one:
        `apply(params, batch_size, method="empty_memory")`.

    Raises:
      ConfigError: something else is given in place of one of these.
    """
    check_kind(optimizer, optax.GradientTransformation, "create_train_state")
    check_kind(numbers, Numbers, "create_train_state: numbers")
    if not isinstance(key, jax.Array):
        raise no_key(key, "create_train_state: key")
    average = jax.tree.map(jnp.copy, params) if averaged else None
    # Each leaf has an array of its own: one that is there twice cannot be donated.
    step, diverged_at, skipped = jnp.int32(0), jnp.int32(-1), jnp.int32(0)
    numbers = jax.tree.map(lambda number: jnp.asarray(number, jnp.float32), numbers)
    opt_state = jax.tree.map(jnp.copy, optimizer.init(params))  # which may hold the parameters themselves
    return TrainState(step, params, opt_state, key, numbers, diverged_at, skipped, average, earlier)


def make_train_step(
    apply: Apply,
    objective: Objective,
    optimizer: optax.GradientTransformation,
    *,
    accumulation: int = 1,
    skip_limit: int = 0,
    skip_above: float | None = None,
    sum_once: bool = False,
    rounded_to: DTypeLike | None = None,
    trained: Callable[[Params], Params] | None = None,
) -> Step:
    """`(state, batch) -> (state, metrics)` with metrics `loss` (nats per token), `grad_norm` and `skipped` (0 or 1).

    `grad_norm` is over the gradients of all parameters, or of those that are `trained`.

    The gradient is that of the sum over the whole batch divided by the number of real tokens of
    the whole batch, however many pieces `accumulation` cuts it into. An update whose loss or gradient
    is not finite is skipped; after more than `skip_limit` consecutive ones the state does not change
    any more. A batch without labels changes nothing, and does not count.

    Args:
      apply: the pure model.
      objective: the sums over a batch that are minimized.
      optimizer: an optax transformation. Where its `update` takes keywords, they are `numbers` and `value`, the loss,
        so that one of them alone is followed by `**others`. Rules that evaluate the loss themselves, such as
        `optax.lbfgs`, need a step of their own.
      accumulation: number of pieces in which a batch is computed, one after another.
      skip_limit: number of consecutive updates that may be skipped.
      skip_above: norm of the gradient above which an update is skipped too; None: any finite one is applied.
      sum_once: whether gradients are summed over the pieces on each device of `data` first, and over devices once, at
        the end. Every device needs all parameters, and rows must not see each other. A gradient that draws random
        numbers is summed over devices for every piece all the same, so that it draws those of one device.
      rounded_to: dtype of a copy of the kernels of which the gradient is taken, so that devices that hold parts of
        them gather and sum in it; None: the parameters themselves. They, and the sum over pieces, stay in float32.
      trained: maps gradients to those of what is trained, such as `trained_part(…)`; None: all of it is.

    Raises:
      ConfigError: something else is given in place of one of these, or a number is out of its range.
    """
    check_apply(apply, "make_train_step")
    check_kind(objective, Objective, "make_train_step")
    check_kind(optimizer, optax.GradientTransformation, "make_train_step")
    if trained is not None and not callable(trained):
        raise ConfigError(f"make_train_step: trained is a {type(trained).__name__}; trained_part(…) is one")
    if not is_count(accumulation) or accumulation < 1:
        raise ConfigError(f"make_train_step: accumulation {accumulation} is not a positive whole number")
    if not is_count(skip_limit) or skip_limit < 0:
        raise ConfigError(f"make_train_step: skip_limit {skip_limit} is not a whole number from 0 on")
    if skip_above is not None and not skip_above > 0:
        raise ConfigError(f"make_train_step: skip_above {skip_above} is not positive; None applies any finite update")
    optimizer = optax.with_extra_args_support(optimizer)
    gradient = make_gradient(apply, objective, accumulation, sum_once)

    def step(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        key = jax.random.fold_in(state.key, state.step)
        params = state.params if rounded_to is None else _with_rounded_kernels(state.params, rounded_to)
        (sums, grads), earlier = gradient(params, batch, state.earlier, key)
        weight = jnp.where(sums.weight > 0, sums.weight, 1.0)
        loss, grads = sums.loss / weight, jax.tree.map(lambda g: g / weight, grads)
        grads = grads if trained is None else trained(grads)
        grad_norm = optax.tree.norm(grads)
        own = {"numbers": state.numbers, "value": loss}
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params, **own)
        good = jnp.isfinite(loss) & jnp.isfinite(grad_norm)
        good = good if skip_above is None else good & (grad_norm <= skip_above)
        update = optax.apply_updates(state.params, updates), opt_state, earlier
        labelled = sums.weight != 0
        new, taken = _taken(state, update, good, labelled, skip_limit)
        loss = jnp.where(new.diverged_at >= 0, jnp.nan, loss)  # that of parameters that do not move any more is none
        skipped = (labelled & ~taken).astype(jnp.int32)
        return new, {"loss": loss, "grad_norm": grad_norm, "skipped": skipped}

    return step


def _taken(
    state: TrainState,
    update: tuple[optax.Params, optax.OptState, SegmentMemory | None],
    good: jax.Array,
    labelled: jax.Array,
    skip_limit: int,
) -> tuple[TrainState, jax.Array]:
    """The next state, and whether it has the update: if that is good, a label counts, and the run has not diverged."""
    skipped = jnp.where(good, jnp.where(labelled, 0, state.skipped), state.skipped + 1)
    diverges = (skipped > skip_limit) & (state.diverged_at < 0)
    diverged_at = jnp.where(diverges, state.step, state.diverged_at)
    taken = good & labelled & (diverged_at < 0)
    params, opt_state, earlier = jax.tree.map(
        lambda new, old: jnp.where(taken, new, old), update, (state.params, state.opt_state, state.earlier)
    )
    new = state._replace(
        step=state.step + 1,
        params=params,
        opt_state=opt_state,
        diverged_at=diverged_at,
        skipped=skipped,
        earlier=earlier,
    )
    return new, taken


def with_average(step: Step, first: int, decay: float | None = None) -> Step:
    """The step with a mean of the parameters in `TrainState.average`.

    Args:
      step: of `make_train_step`; its state is one with `averaged=True`.
      first: the first step whose resulting parameters enter the mean.
      decay: share that the mean keeps at every later step; None: all parameters count alike.

    Raises:
      ConfigError: `first` is no step, the decay is no share, or the state has no mean.
    """
    if not is_count(first) or first < 0:
        raise ConfigError(f"with_average: first {first} is not a whole number from 0 on")
    if decay is not None and not 0 < decay < 1:
        raise ConfigError(f"with_average: decay {decay} is not in (0, 1)")

    def averaged(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        if state.average is None:
            raise ConfigError("with_average: the state has no average; make it with averaged=True")
        new, metrics = step(state, batch)
        count = jnp.maximum(state.step - first, 0).astype(jnp.float32)  # of parameters in the mean so far
        weight = 1 / (count + 1) if decay is None else jnp.where(count == 0, 1.0, 1 - decay)
        mean = jax.tree.map(lambda a, p: towards(a, p, weight), state.average, new.params)
        return new._replace(average=mean), metrics

    return averaged


def _with_rounded_kernels(params: Params, dtype: DTypeLike) -> Params:
    """Parameters with kernels in another dtype, except those of routers, whose choices depend on small differences."""

    def of(path: jax.tree_util.KeyPath, leaf: jax.Array) -> jax.Array:
        *above, name = [entry.key for entry in path]  # pyright: ignore[reportAttributeAccessIssue]
        return leaf.astype(dtype) if name == "kernel" and "router" not in above else leaf

    return jax.tree.map_with_path(of, params)
