"""The operations of traced programs, in NumPy: those that the models of the tests have most."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy import special


def _divide(left, right):
    """Quotients of integers are rounded towards zero."""
    return left / right if left.dtype.kind == "f" else (left - np.fmod(left, right)) // right


def _shift_right(x, bits):
    """Zeros come in on the left, whatever the sign."""
    unsigned = f"uint{8 * x.itemsize}"
    return (x.view(unsigned) >> bits.view(unsigned)).view(x.dtype)


def _select(which, *cases):
    return np.where(which, *cases[::-1]) if which.dtype == bool else np.choose(which, cases)


def _convert(x, *, new_dtype, **_):
    """Floats beyond the range of an integer become the nearest one, and NaN 0."""
    if x.dtype.kind != "f" or not jnp.issubdtype(new_dtype, jnp.integer):
        return x
    limits = jnp.iinfo(new_dtype)
    return np.clip(np.nan_to_num(x.astype(np.float64)), limits.min, limits.max)


def _round(x, *, rounding_method):
    return np.rint(x) if rounding_method is lax.RoundingMethod.TO_NEAREST_EVEN else lax.round(x, rounding_method)


def _broadcast(x, *, shape, broadcast_dimensions, **_):
    own = dict(zip(broadcast_dimensions, x.shape, strict=True))
    spread = np.empty(shape, x.dtype)
    spread[...] = x.reshape([own.get(axis, 1) for axis in range(len(shape))])
    return spread


def _reshape(x, *, new_sizes, dimensions, **_):
    return (x if dimensions is None else x.transpose(dimensions)).reshape(new_sizes)


def _iota(*, dtype, shape, dimension, **_):
    return np.indices(shape, dtype, sparse=True)[dimension] + np.zeros(shape, dtype)


def _slice(x, *, start_indices, limit_indices, strides):
    return x[tuple(map(slice, start_indices, limit_indices, strides or [1] * x.ndim))]


def _split(x, *, sizes, axis):
    before = (slice(None),) * axis
    return [x[*before, end - size : end] for size, end in zip(sizes, itertools.accumulate(sizes), strict=True)]


def _window(x: np.ndarray, starts: Sequence[Any], sizes: Sequence[int]) -> tuple[slice, ...]:
    """The part of these sizes that begins at `starts`, moved inside where it goes over an end."""
    firsts = [min(max(int(start), 0), all - own) for start, all, own in zip(starts, x.shape, sizes, strict=True)]
    return tuple(slice(first, first + own) for first, own in zip(firsts, sizes, strict=True))


def _dynamic_slice(x, *starts, slice_sizes):
    return x[_window(x, starts, slice_sizes)]


def _dynamic_update_slice(x, update, *starts):
    changed = x.copy()
    changed[_window(x, starts, update.shape)] = update
    return changed


def _pad(x, value, *, padding_config):
    """With padding between elements too, and with a part cut off where padding is negative."""
    for axis, (low, high, inner) in enumerate(padding_config):
        if not (low or high or inner):
            continue
        size = x.shape[axis]
        shape = [*x.shape[:axis], max(low, 0) + max(size + (size - 1) * inner, 0) + max(high, 0), *x.shape[axis + 1 :]]
        padded = np.full(shape, value, x.dtype)
        padded.swapaxes(0, axis)[max(low, 0) :: inner + 1][:size] = x.swapaxes(0, axis)
        x = padded.swapaxes(0, axis)[max(-low, 0) : shape[axis] - max(-high, 0)].swapaxes(0, axis)
    return x


def _dot_general(left, right, *, dimension_numbers, **_):
    """Batches, then rows and columns: a product of matrices."""
    (left_summed, right_summed), (left_batch, right_batch) = dimension_numbers
    rows = [axis for axis in range(left.ndim) if axis not in (*left_summed, *left_batch)]
    columns = [axis for axis in range(right.ndim) if axis not in (*right_summed, *right_batch)]
    batch, rows_shape, columns_shape, summed = (
        [x.shape[axis] for axis in axes]
        for x, axes in ((left, left_batch), (left, rows), (right, columns), (left, left_summed))
    )
    inner = math.prod(summed)
    left = left.transpose(*left_batch, *rows, *left_summed).reshape(*batch, math.prod(rows_shape), inner)
    right = right.transpose(*right_batch, *right_summed, *columns).reshape(*batch, inner, math.prod(columns_shape))
    return (left @ right).reshape((*batch, *rows_shape, *columns_shape))


def _windows(shape: Sequence[int], sizes: Sequence[int], indices: np.ndarray, axes: Mapping[int, int], batch: Any):
    """(indices of the windows of these sizes, for every axis, which of the windows lie inside of the array).

    `axes` are the axes of the array that numbers of an index vector stand for, `batch` those of the array and of
    `indices` that go together. Windows over an end are moved inside.
    """
    rows, rank = indices.shape[:-1], len(shape)
    firsts = {axis: indices[..., place].astype(np.int64) for place, axis in axes.items()}
    firsts |= {axis: np.indices(rows, np.int64)[own] for axis, own in batch}
    inside, places = np.ones((*rows, *(1,) * rank), bool), []
    for axis, (all, own) in enumerate(zip(shape, sizes, strict=True)):
        place = np.arange(own).reshape([-1 if i == axis else 1 for i in range(rank)])
        if axis in firsts:
            first, last = firsts[axis].reshape(inside.shape), all - own
            inside = inside & (first >= 0) & (first <= last)
            place = place + np.minimum(np.maximum(first, 0), last)
        places.append(place)
    return tuple(places), inside


def _gather(x, indices, *, dimension_numbers, slice_sizes, mode, fill_value, **_):
    numbers, rows = dimension_numbers, indices.ndim - 1
    batch = list(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    places, inside = _windows(x.shape, slice_sizes, indices, dict(enumerate(numbers.start_index_map)), batch)
    found = x[places]
    if mode == lax.GatherScatterMode.FILL_OR_DROP:
        missing = np.nan if x.dtype.kind == "f" else x.dtype == bool or jnp.iinfo(x.dtype).min
        found = np.where(inside, found, np.asarray(missing if fill_value is None else fill_value, x.dtype))
    gone = sorted((*numbers.collapsed_slice_dims, *numbers.operand_batching_dims))
    found = found.squeeze(tuple(rows + axis for axis in gone))
    return np.moveaxis(found, range(rows, found.ndim), numbers.offset_dims)


def _scatter(write: Callable[..., None]) -> Callable[..., Any]:
    def run(x, indices, updates, *, dimension_numbers, mode, **_):
        numbers, rows = dimension_numbers, indices.ndim - 1
        batch = list(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True))
        updates = np.moveaxis(updates, numbers.update_window_dims, range(rows, updates.ndim))
        gone = sorted((*numbers.inserted_window_dims, *numbers.operand_batching_dims))
        updates = np.expand_dims(updates, tuple(rows + axis for axis in gone))
        axes = dict(enumerate(numbers.scatter_dims_to_operand_dims))
        places, inside = _windows(x.shape, updates.shape[rows:], indices, axes, batch)
        changed = x.copy()
        if mode != lax.GatherScatterMode.CLIP and not inside.all():
            *places, inside = (np.broadcast_to(place, updates.shape) for place in (*places, inside))
            places, updates = [place[inside] for place in places], updates[inside]
        write(changed, tuple(places), updates)
        return changed

    return run


def _elementwise(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *inputs, **_: function(*inputs)


def _reduction(function: np.ufunc) -> Callable[..., Any]:
    return lambda x, *, axes, **_: function.reduce(x, axes)


def _cumulative(function: np.ufunc) -> Callable[..., Any]:
    def run(x, *, axis, reverse):
        return np.flip(function.accumulate(np.flip(x, axis), axis), axis) if reverse else function.accumulate(x, axis)

    return run


_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "tanh": np.tanh,
    "sqrt": np.sqrt,
    "cbrt": np.cbrt,
    "square": np.square,
    "floor": np.floor,
    "ceil": np.ceil,
    "sign": np.sign,
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _divide,
    "rem": np.fmod,
    "neg": np.negative,
    "abs": np.abs,
    "max": np.maximum,
    "min": np.minimum,
    "pow": np.power,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "is_finite": np.isfinite,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shift_right_logical": _shift_right,
    "logistic": special.expit,
    "erf": special.erf,
    "erf_inv": special.erfinv,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "select_n": _select,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "copy": np.asarray,
    "name": np.asarray,
}
_REDUCTIONS = {
    "reduce_sum": np.add,
    "reduce_prod": np.multiply,
    "reduce_max": np.maximum,
    "reduce_min": np.minimum,
    "reduce_and": np.logical_and,
    "reduce_or": np.logical_or,
}
_CUMULATIVE = {
    "cumsum": np.add,
    "cumprod": np.multiply,
    "cummax": np.maximum,
    "cummin": np.minimum,
    "cumlogsumexp": np.logaddexp,
}
OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: _elementwise(function) for name, function in _ELEMENTWISE.items()},
    **{name: _reduction(function) for name, function in _REDUCTIONS.items()},
    **{name: _cumulative(function) for name, function in _CUMULATIVE.items()},
    "integer_pow": lambda x, *, y: np.power(x, y) if y >= 0 else 1 / np.power(x, -y),
    "round": _round,
    "convert_element_type": _convert,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "squeeze": lambda x, *, dimensions: x.squeeze(dimensions),
    "transpose": lambda x, *, permutation: x.transpose(permutation),
    "rev": lambda x, *, dimensions: np.flip(x, dimensions),
    "concatenate": lambda *parts, dimension: np.concatenate(parts, dimension),
    "split": _split,
    "stack": lambda *parts, axis: np.stack(parts, axis),
    "unstack": lambda x, *, axis, **_: list(np.moveaxis(x, axis, 0)),
    "tile": lambda x, *, reps: np.tile(x, reps),
    "optimization_barrier": lambda *inputs: inputs,
    "iota": _iota,
    "slice": _slice,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "pad": _pad,
    "dot_general": _dot_general,
    "gather": _gather,
    "scatter": _scatter(np.ndarray.__setitem__),
    "scatter-add": _scatter(np.add.at),
}
"""Functions of the inputs and the parameters that an operation of this name has in JAX."""
