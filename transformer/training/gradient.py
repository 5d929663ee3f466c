"""The gradient of a batch: of the whole of it, or of pieces in turn, summed over devices once."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Jaxpr, jaxprs_in_params
from jax.sharding import PartitionSpec, get_abstract_mesh

from transformer.core.arrays import DATA, axis_size
from transformer.core.errors import ConfigError
from transformer.core.modules import Apply, Params
from transformer.functional.segment_memory import SegmentMemory
from transformer.objectives.objective import Batch, Objective


class Total(NamedTuple):
    """Sums over a batch, or over a piece of it."""

    loss: jax.Array
    weight: jax.Array


Gradient = tuple[tuple[Total, Params], SegmentMemory | None]
"""((sums, gradient) of a batch, memory for the next one)."""


def make_gradient(
    apply: Apply, objective: Objective, accumulation: int, sum_once: bool = False
) -> Callable[..., Gradient]:
    """Maps `(params, batch, earlier, key)` to a float32 `Gradient`, over `accumulation` pieces of the batch in turn."""

    def whole(params: Params, batch: Batch, earlier: SegmentMemory | None, key: jax.Array) -> Gradient:
        def total(params):
            sums, after = objective.segment_sums(apply, params, batch, key, earlier)
            loss = sums.loss.sum()
            return loss, (Total(loss, sums.weight.sum()), after)

        grads, (sums, after) = jax.grad(total, has_aux=True)(params)
        return (sums, jax.tree.map(lambda g: g.astype(jnp.float32), grads)), after

    def in_pieces(params: Params, batch: Batch, earlier: SegmentMemory | None, key: jax.Array) -> Gradient:
        # A piece is every n-th sequence, so that each device that shares the batch has a part of every piece.
        rows = (batch, earlier)
        if uneven := [a.shape[0] for a in jax.tree.leaves(rows) if a.shape[0] % accumulation]:
            raise ConfigError(f"accumulation: {uneven[0]} rows of a batch are not a multiple of {accumulation}")
        pieces = jax.tree.map(lambda a: jnp.moveaxis(a.reshape(-1, accumulation, *a.shape[1:]), 1, 0), rows)
        keys = jax.random.split(key, accumulation)
        first = jax.tree.map(lambda a: a[0], pieces)
        traced, (shapes, _) = jax.make_jaxpr(whole, return_shape=True)(params, *first, key)

        def add(params, total, piece):
            (batch, earlier), key = piece
            more, after = whole(params, batch, earlier, key)
            return jax.tree.map(jnp.add, total, more), after

        def over_pieces(params, pieces, keys):
            zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
            return lax.scan(functools.partial(add, params), zeros, (pieces, keys))

        if sum_once and axis_size(DATA) > 1 and not draws(traced.jaxpr):
            over_pieces = _of_own_rows(over_pieces)
        total, after = over_pieces(params, pieces, keys)
        return total, jax.tree.map(lambda a: jnp.moveaxis(a, 0, 1).reshape(-1, *a.shape[2:]), after)

    return whole if accumulation == 1 else in_pieces


def _of_own_rows(over_pieces: Callable[..., Any]) -> Callable[..., Any]:
    """`over_pieces` on each device of `data` with its own rows of all pieces, and the totals added up at the end."""

    def of_device(params, pieces, keys):
        total, after = over_pieces(params, pieces, keys)
        return lax.psum(total, DATA), after

    rows, whole = PartitionSpec(None, DATA), PartitionSpec()
    return jax.shard_map(
        of_device,
        mesh=get_abstract_mesh(),
        axis_names={DATA},
        in_specs=(whole, rows, whole),
        out_specs=(whole, rows),
        check_vma=False,
    )


def draws(program: Jaxpr) -> bool:
    """Whether a traced program draws random numbers."""
    return any(
        step.primitive.name == "random_bits" or any(map(draws, jaxprs_in_params(step.params))) for step in program.eqns
    )
