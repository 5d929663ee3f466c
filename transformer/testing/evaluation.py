"""Evaluates a traced program with NumPy, operation by operation, at its own precision or with floats of 64 bits.

The programs of the tests are many and small and run a few times: to evaluate one takes a few hundredths of a second,
to compile it more than half a second. What XLA makes of a program can be compared with it, too.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Primitive

from transformer.analysis.programs import called, scan_sizes
from transformer.testing.operations import OPERATIONS


class Evaluated:
    """A function of arrays, traced once for each shape of its arguments and evaluated with NumPy."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self._traceable = jax.jit(function)

    def __call__(self, *args: Any) -> Any:
        """What the function returns, in arrays of NumPy."""
        return self._evaluate(args, wide=False)

    def in_float64(self, *args: Any) -> Any:
        """The same if every float in the program, also those it rounds to, had 64 bits.

        No code has to name its dtypes for that; the constants of the program are those of float32.
        """
        return self._evaluate(args, wide=True)

    def _evaluate(self, args: tuple, wide: bool) -> Any:
        traced = self._traceable.trace(*args)
        with jax.enable_x64(True) if wide else contextlib.nullcontext(), np.errstate(all="ignore"):
            outputs = _Evaluation(wide).closed(traced.jaxpr, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(traced.out_info), map(np.asarray, outputs))


class _Evaluation:
    """Values of the variables of a program; arrays of NumPy, but for random keys, which are JAX's."""

    def __init__(self, wide: bool):
        self.wide = wide

    def closed(self, program: ClosedJaxpr, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of a program that has its constants."""
        return self.open(program.jaxpr, [*program.consts, *inputs])

    def open(self, program: Jaxpr, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of a program whose constants are its first inputs."""
        values = dict(self._values([*program.constvars, *program.invars], inputs))

        def read(variable: Any) -> Any:
            return self._value(variable, variable.val) if isinstance(variable, Literal) else values[variable]

        for step in program.eqns:
            outputs = self._done(step, [read(variable) for variable in step.invars])
            values.update(self._values(step.outvars, outputs))
        return [read(variable) for variable in program.outvars]

    def dtype(self, dtype: Any) -> Any:
        """What takes the place of a dtype."""
        return np.dtype(np.float64) if self.wide and jnp.issubdtype(dtype, jnp.floating) else dtype

    def _values(self, variables: Sequence[Any], values: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        return ((variable, self._value(variable, value)) for variable, value in zip(variables, values, strict=True))

    def _value(self, variable: Any, value: Any) -> Any:
        """A value in the dtype of its variable."""
        dtype = self.dtype(variable.aval.dtype)
        if type(value) is np.ndarray and value.dtype == dtype:
            return value
        return value if jnp.issubdtype(dtype, jax.dtypes.extended) else np.asarray(value).astype(dtype)

    def _done(self, step: JaxprEqn, inputs: list[Any]) -> Sequence[Any]:
        """The outputs of one operation."""
        name = step.primitive.name
        if name in _SPECIAL:
            return _SPECIAL[name](self, step, inputs)
        if name in OPERATIONS and all(type(value) is np.ndarray for value in inputs):
            singles = [value.astype(np.float32) if value.dtype == _BFLOAT16 else value for value in inputs]
            outputs = OPERATIONS[name](*singles, **step.params)
        elif (inner := called(step)) is not None:
            return self.open(inner[0], [*inner[1], *inputs])
        else:
            params = {name: self.dtype(value) if _is_dtype(value) else value for name, value in step.params.items()}
            outputs = _in_jax(step.primitive, inputs, params)
        return outputs if step.primitive.multiple_results else [outputs]


_BFLOAT16 = np.dtype(jnp.bfloat16)
"""Its operations are those of float32, with the result rounded."""


def _is_dtype(value: Any) -> bool:
    return isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic))


def _in_jax(primitive: Primitive, inputs: Sequence[Any], params: dict[str, Any]) -> Any:
    """The outputs of an operation, compiled alone by JAX."""
    if not primitive.name.startswith("scatter"):
        return primitive.bind(*inputs, **params)
    # a scatter holds a program for two numbers of a fixed dtype, which its public function makes anew
    names = ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")
    return getattr(lax, primitive.name.replace("-", "_"))(*inputs, **{name: params[name] for name in names})


def _scan(run: _Evaluation, step: JaxprEqn, inputs: list[Any]) -> list[Any]:
    num_fixed, num_carried = scan_sizes(step)
    fixed, carry, stacks = _cut(inputs, num_fixed, num_fixed + num_carried)
    length, made = step.params["length"], []
    for i in reversed(range(length)) if step.params["reverse"] else range(length):
        outputs = run.closed(step.params["jaxpr"], [*fixed, *carry, *(stack[i] for stack in stacks)])
        carry = outputs[:num_carried]
        made.append(outputs[num_carried:])
    rows = made[::-1] if step.params["reverse"] else made
    avals: list[Any] = [variable.aval for variable in step.outvars[num_carried:]]
    empty = [np.zeros(aval.shape, run.dtype(aval.dtype)) for aval in avals]
    return [*carry, *(map(_stacked, zip(*rows, strict=True)) if rows else empty)]


def _stacked(rows: Sequence[Any]) -> Any:
    return jnp.stack(rows) if isinstance(rows[0], jax.Array) else np.stack(rows)


def _cut(inputs: list[Any], first: int, end: int) -> tuple[list[Any], ...]:
    return inputs[:first], inputs[first:end], inputs[end:]


def _while(run: _Evaluation, step: JaxprEqn, inputs: list[Any]) -> list[Any]:
    first = step.params["cond_nconsts"]
    asked, fixed, carry = _cut(inputs, first, first + step.params["body_nconsts"])
    while run.closed(step.params["cond_jaxpr"], [*asked, *carry])[0]:
        carry = run.closed(step.params["body_jaxpr"], [*fixed, *carry])
    return carry


def _cond(run: _Evaluation, step: JaxprEqn, inputs: list[Any]) -> list[Any]:
    branches = step.params["branches"]
    return run.closed(branches[min(max(int(inputs[0]), 0), len(branches) - 1)], inputs[1:])


def _random_bits(run: _Evaluation, step: JaxprEqn, inputs: list[Any]) -> list[Any]:
    """Drawn up to the next power of two, because JAX compiles a program for each number; the first bits are the same."""
    shape = step.params["shape"]
    size = math.prod(shape)
    bits = _in_jax(step.primitive, inputs, step.params | {"shape": (1 << (size - 1).bit_length(),)})
    return [np.asarray(bits)[..., :size].reshape(*inputs[0].shape, *shape)]


_SPECIAL = {"scan": _scan, "while": _while, "cond": _cond, "random_bits": _random_bits}
