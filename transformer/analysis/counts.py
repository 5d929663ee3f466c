"""Parameters and floating-point operations of a model, without building it."""

import functools
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
from jax.extend import core

from transformer.core.arrays import compiled_for
from transformer.core.checks import check_kind, is_count
from transformer.core.errors import ConfigError
from transformer.data.dataset import Batch, Dataset
from transformer.models.build import pure_model
from transformer.models.config import ModelConfig
from transformer.objectives.objective import Objective
from transformer.runs.config import RunConfig


def parameter_count(config: ModelConfig) -> int:
    """Number of parameters; tied ones are counted once."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(pure_model(config)[0]))


@compiled_for("cpu")
def forward_flops(config: ModelConfig) -> float:
    """Operations of the matrix products of one forward pass of one sequence, or image, of full length.

    A multiplication and an addition count as two. The products are those of the traced program: exact
    attention computes every score, also those that the causal mask hides, so all of them count; among
    alternative branches the costliest counts; norms, activations and softmax are not counted. Whatever devices there
    are, it is the program for a CPU, in which no product is inside a kernel.
    """
    params, apply = pure_model(config)
    return product_flops(jax.make_jaxpr(apply)(params, *config.example_inputs()).jaxpr)


@compiled_for("cpu")
def train_flops(config: ModelConfig, batch_size: int = 1) -> float:
    """Operations of forward and backward pass of a batch: two backward products for each product forward.

    They are counted as those of `forward_flops`, with the predictions of further tokens and the memory of an earlier
    segment, which a model has in training alone. Products that do not depend on the batch, such as those of low-rank
    matrices, are made once.

    Raises:
      ConfigError: `batch_size` is not positive.
    """
    if not is_count(batch_size) or batch_size < 1:
        raise ConfigError(f"train_flops: batch_size {batch_size} is not a positive number")
    params, apply = pure_model(config)
    inputs: list[Any] = [
        jax.ShapeDtypeStruct((batch_size, *one.shape[1:]), one.dtype) for one in config.example_inputs()
    ]
    method = "predict_ahead" if config.predict_ahead else "__call__"
    if config.memory_length is not None:
        method = "read_segment"
        inputs.append(jax.eval_shape(lambda params: apply(params, batch_size, method="empty_memory"), params))
    forward = jax.make_jaxpr(functools.partial(apply, method=method))(params, *inputs)
    return 3 * product_flops(forward.jaxpr)


def step_flops(config: RunConfig, data: Dataset | None = None) -> float:
    """Operations of a training step, with two backward products for each product forward.

    Args:
      config: the run, complete where there are data.
      data: their batches, as the objective reads them, are what is counted, in the mean over the first steps where they
        differ in shape; None: sequences of full length, all of which the model reads.
    """
    check_kind(config, RunConfig, "step_flops")
    if data is None:
        return config.accumulation * train_flops(config.model, config.batch_size // config.accumulation)
    batches, steps = data.train_batches(config, 0), min(config.steps, STEPS)
    shapes = Counter(_shapes(batches[step], config.accumulation) for step in range(steps))
    return (
        config.accumulation
        * sum(count * _piece_flops(config.model, config.objective, shape) for shape, count in shapes.items())
        / steps
    )


STEPS = 64
"""Training steps whose batches are counted."""
Shapes = tuple[tuple[str, tuple[int, ...], Any], ...]
"""Names, shapes and dtypes of the arrays of a batch."""


def _shapes(batch: Batch, pieces: int) -> Shapes:
    return tuple((name, (len(array) // pieces, *array.shape[1:]), array.dtype) for name, array in batch.items())


@functools.lru_cache(maxsize=256)
@compiled_for("cpu")
def _piece_flops(model: ModelConfig, objective: Objective, shapes: Shapes) -> float:
    """Operations of the gradient of one piece of a batch."""
    params, apply = pure_model(model)
    batch = {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape, dtype in shapes}
    earlier, rows = None, shapes[0][1][0]
    if model.memory_length is not None:
        earlier = jax.eval_shape(lambda params: apply(params, rows, method="empty_memory"), params)
    key = jax.eval_shape(lambda: jax.random.key(0))
    forward = jax.make_jaxpr(functools.partial(objective.segment_sums, apply))(params, batch, key, earlier)
    return 3 * product_flops(forward.jaxpr)


def forward_flops_per_token(config: ModelConfig) -> float:
    """`forward_flops` of a language model per token, at max_length."""
    _check_reads_text(config, "forward_flops_per_token")
    return forward_flops(config) / config.max_length


def train_flops_per_token(config: ModelConfig) -> float:
    """`train_flops` of a language model per token, at max_length."""
    _check_reads_text(config, "train_flops_per_token")
    return train_flops(config) / config.max_length


def cache_bytes(config: ModelConfig, length: int | None = None) -> int:
    """Bytes of a decoder's cache for one sequence of `length` tokens (None: max_length), in the compute dtype; of one
    that attends to a source, with its keys and values of a source of full length.

    Raises:
      ConfigError: the model does not decode, or `length` is more than its positions allow.
    """
    check_kind(config, ModelConfig, "cache_bytes")
    if not config.causal or config.kind not in ("tokens", "pairs"):
        raise ConfigError(f"cache_bytes: a model that decodes is needed, and a {type(config).__name__} is given")
    length = config.max_length if length is None else length
    if not is_count(length) or length < 1:
        raise ConfigError(f"cache_bytes: length {length} is not a positive number")
    params, apply = pure_model(config)
    *source, _ = config.example_inputs()
    cache = jax.eval_shape(lambda params, *source: apply(params, 1, length, *source, method="start"), params, *source)
    kept = jax.tree.leaves((cache.layers, cache.source))
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in kept)


def _check_reads_text(config: ModelConfig, what: str) -> None:
    """Raise `ConfigError` where it is no model of one sequence of tokens."""
    check_kind(config, ModelConfig, what)
    if config.kind != "tokens":
        raise ConfigError(f"{what}: a language model is needed, and a {type(config).__name__} is given")


def product_flops(jaxpr: core.Jaxpr) -> float:
    """Operations of the matrix products in a traced program."""
    return float(sum(scoped_flops(jaxpr).values()))


def scoped_flops(jaxpr: core.Jaxpr) -> Counter[str]:
    """The same by scope (`jax.named_scope`), such as `blocks[0::1]/attention`."""
    total = Counter[str]()
    for eqn in jaxpr.eqns:
        scope, times = str(eqn.source_info.name_stack), 1
        inner = [scoped_flops(sub) for sub in _inner(eqn.params)]
        if eqn.primitive.name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            left, out = _shape(eqn.invars[0]), _shape(eqn.outvars[0])
            total[scope] += 2 * math.prod(out) * math.prod(left[i] for i in contracted)
        elif eqn.primitive.name == "ragged_dot_general":  # each row meets one matrix, or row, of those of its group
            numbers, (rows, others) = eqn.params["ragged_dot_dimension_numbers"], map(_shape, eqn.invars[:2])
            (_, contracted), (_, batch) = numbers.dot_dimension_numbers
            shared = {*contracted, *batch, *numbers.rhs_group_dimensions}
            total[scope] += 2 * math.prod(rows) * math.prod(n for i, n in enumerate(others) if i not in shared)
        elif eqn.primitive.name == "scan":
            times = eqn.params["length"]
        elif eqn.primitive.name == "cond":
            inner = [max(inner, key=lambda one: sum(one.values()))]
        for one in inner:
            for name, flops in one.items():
                total["/".join(part for part in (scope, name) if part)] += times * flops
    return total


def _shape(variable: Any) -> tuple[int, ...]:
    return variable.aval.shape


def _inner(params: dict[str, Any]) -> Iterator[core.Jaxpr]:
    """The programs inside an operation."""
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, core.ClosedJaxpr):
                yield item.jaxpr
            elif isinstance(item, core.Jaxpr):
                yield item
