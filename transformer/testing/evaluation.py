"""Evaluates a traced program with NumPy, operation by operation, at its own precision or with floats of 64 bits.

The programs of the tests are many and small and run a few times: to evaluate one takes a few hundredths of a second,
to compile it more than half a second. What XLA makes of a program can be compared with it, too.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from transformer.analysis.programs import called, scan_sizes
from transformer.testing.numpy_operations import OPERATIONS

Step = Callable[..., Sequence[Any]]
"""One operation: maps its inputs to its outputs, arrays of NumPy but for random keys, which are JAX's."""


class Evaluated:
    """A function of arrays, traced once for each shape of its arguments and evaluated with NumPy."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self._traceable = jax.jit(function)
        self._programs: dict[tuple[ClosedJaxpr, bool], _Program] = {}

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
            if (traced.jaxpr, wide) not in self._programs:
                self._programs[traced.jaxpr, wide] = _Program(traced.jaxpr, wide)
            outputs = self._programs[traced.jaxpr, wide](jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(traced.out_info), map(np.asarray, outputs))


class _Program:
    """The steps of a program, those of the programs that it calls among them, and places for all values."""

    def __init__(self, program: ClosedJaxpr, wide: bool):
        self.wide = wide
        self.steps: list[tuple[Step, list[int], list[int]]] = []
        self.values: list[Any] = []
        """Constants at their places, None where a run puts its values."""
        self.inputs = [self._place() for _ in program.jaxpr.invars]
        self.dtypes = [self.dtype(variable) for variable in program.jaxpr.invars]
        self.outputs = self._write(program.jaxpr, [*map(self._place, program.consts), *self.inputs])

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs."""
        values = self.values.copy()
        for place, value, dtype in zip(self.inputs, inputs, self.dtypes, strict=True):
            values[place] = _fitted(value, dtype)
        for step, sources, targets in self.steps:
            outputs = step(*[values[place] for place in sources])
            for place, value in zip(targets, outputs, strict=True):
                values[place] = value
        return [values[place] for place in self.outputs]

    def dtype(self, variable: Any) -> Any:
        """The dtype of the values of a variable."""
        return self.wider(variable.aval.dtype)

    def wider(self, dtype: Any) -> Any:
        """What takes the place of a dtype."""
        return np.dtype(np.float64) if self.wide and jnp.issubdtype(dtype, jnp.floating) else dtype

    def _place(self, value: Any = None) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def _write(self, program: Jaxpr, inputs: Sequence[int]) -> list[int]:
        """Append the steps of a program whose constants are its first inputs; the places of its outputs."""
        variables = [*program.constvars, *program.invars]
        for variable, place in zip(variables, inputs, strict=True):
            if self.values[place] is not None:
                self.values[place] = _fitted(self.values[place], self.dtype(variable))
        places = dict(zip(variables, inputs, strict=True))

        def read(variable: Any) -> int:
            if isinstance(variable, Literal):
                return self._place(_fitted(variable.val, self.dtype(variable)))
            return places[variable]

        for step in program.eqns:
            sources = [read(variable) for variable in step.invars]
            known = step.primitive.name in OPERATIONS or step.primitive.name in _SPECIAL
            inner = None if known else called(step)
            if inner is not None:
                targets = self._write(inner[0], [*map(self._place, inner[1]), *sources])
            else:
                targets = [self._place() for _ in step.outvars]
                self.steps.append((_step(step, self), sources, targets))
            places.update(zip(step.outvars, targets, strict=True))
        return [read(variable) for variable in program.outvars]


def _fitted(value: Any, dtype: Any) -> Any:
    """A value as an array of this dtype."""
    if type(value) is np.ndarray and value.dtype == dtype:
        return value
    return value if jnp.issubdtype(dtype, jax.dtypes.extended) else np.asarray(value).astype(dtype)


def _step(step: JaxprEqn, program: _Program) -> Step:
    """One operation as a function: of `_SPECIAL`, of `OPERATIONS`, or compiled alone by JAX."""
    name, dtypes = step.primitive.name, [program.dtype(variable) for variable in step.outvars]
    if name in _SPECIAL:
        return _SPECIAL[name](step, program)
    inputs = [program.dtype(variable) for variable in step.invars]
    if name in OPERATIONS and not any(jnp.issubdtype(dtype, jax.dtypes.extended) for dtype in inputs):
        operation = functools.partial(OPERATIONS[name], **step.params)
        if jnp.bfloat16 in inputs:
            operation = _in_float32(operation)
    else:
        operation = _in_jax(step, program)
    if step.primitive.multiple_results:
        return lambda *inputs: [_fitted(*pair) for pair in zip(operation(*inputs), dtypes, strict=True)]
    return lambda *inputs: (_fitted(operation(*inputs), dtypes[0]),)


def _in_float32(operation: Callable[..., Any]) -> Callable[..., Any]:
    """An operation on bfloat16 is that on float32, with the result rounded."""
    return lambda *inputs: operation(*(x.astype(np.float32) if x.dtype == jnp.bfloat16 else x for x in inputs))


def _in_jax(step: JaxprEqn, program: _Program) -> Callable[..., Any]:
    """An operation compiled alone by JAX."""
    name, params = step.primitive.name, step.params
    if name.startswith("scatter"):
        # a scatter holds a program for two numbers of a fixed dtype, which its public function makes anew
        names = ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")
        return functools.partial(getattr(lax, name.replace("-", "_")), **{name: params[name] for name in names})
    wider = {name: program.wider(value) if _is_dtype(value) else value for name, value in params.items()}
    return functools.partial(step.primitive.bind, **wider)


def _is_dtype(value: Any) -> bool:
    return isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic))


def _scan(step: JaxprEqn, program: _Program) -> Step:
    num_fixed, num_carried = scan_sizes(step)
    body, backwards = _Program(step.params["jaxpr"], program.wide), step.params["reverse"]
    order = range(step.params["length"])[:: -1 if backwards else 1]
    stacked: list[Any] = step.outvars[num_carried:]
    empty = [np.zeros(variable.aval.shape, program.dtype(variable)) for variable in stacked]

    def run(*inputs: Any) -> list[Any]:
        fixed, carry, stacks = _cut(inputs, num_fixed, num_fixed + num_carried)
        made = []
        for i in order:
            outputs = body([*fixed, *carry, *(stack[i] for stack in stacks)])
            carry = outputs[:num_carried]
            made.append(outputs[num_carried:])
        rows = made[::-1] if backwards else made
        return [*carry, *(map(_stacked, zip(*rows, strict=True)) if rows else empty)]

    return run


def _stacked(rows: Sequence[Any]) -> Any:
    return jnp.stack(rows) if isinstance(rows[0], jax.Array) else np.stack(rows)


def _cut(inputs: Sequence[Any], first: int, end: int) -> tuple[Sequence[Any], ...]:
    return inputs[:first], inputs[first:end], inputs[end:]


def _while(step: JaxprEqn, program: _Program) -> Step:
    first = step.params["cond_nconsts"]
    goes_on, body = (_Program(step.params[name], program.wide) for name in ("cond_jaxpr", "body_jaxpr"))

    def run(*inputs: Any) -> Sequence[Any]:
        asked, fixed, carry = _cut(inputs, first, first + step.params["body_nconsts"])
        while goes_on([*asked, *carry])[0]:
            carry = body([*fixed, *carry])
        return carry

    return run


def _cond(step: JaxprEqn, program: _Program) -> Step:
    branches = [_Program(branch, program.wide) for branch in step.params["branches"]]
    return lambda which, *inputs: branches[min(max(int(which), 0), len(branches) - 1)](inputs)


def _random_bits(step: JaxprEqn, program: _Program) -> Step:
    """Drawn up to the next power of two: JAX compiles a program for each number, and the first bits are the same."""
    shape = step.params["shape"]
    size = math.prod(shape)
    draw = functools.partial(step.primitive.bind, **step.params | {"shape": (1 << (size - 1).bit_length(),)})
    return lambda keys: [np.asarray(draw(keys))[..., :size].reshape((*keys.shape, *shape))]


def _bitcast(step: JaxprEqn, program: _Program) -> Step:
    """The same bits as other numbers; JAX takes numbers apart, such as floats that were made wider."""
    (source,), (target,) = ([program.dtype(v) for v in variables] for variables in (step.invars, step.outvars))
    if source.itemsize == target.itemsize:
        return lambda x: (x.view(target),)
    apart = _in_jax(step, program)
    return lambda x: (np.asarray(apart(x)),)


_SPECIAL: dict[str, Callable[[JaxprEqn, _Program], Step]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "random_bits": _random_bits,
    "bitcast_convert_type": _bitcast,
}
