"""A program in twice its precision, so that the difference shows the effect of rounding."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from transformer.analysis.programs import called, scan_sizes
from transformer.testing.subject import compiled


def in_float64(function: Any, *args: Any) -> Any:
    """The result of a function of `jax.jit` if every float in it, also those it rounds to, had 64 bits.

    The traced program is evaluated, so no code has to name its dtypes; its constants are those of float32.
    """
    traced = function.trace(*args)
    with jax.enable_x64(True):
        run = compiled(lambda inputs: _closed(traced.jaxpr, inputs))
        outputs = map(np.asarray, run([_widened(leaf) for leaf in jax.tree.leaves(args)]))
    return jax.tree.unflatten(jax.tree.structure(traced.out_info), outputs)


def _wide(dtype: Any) -> Any:
    return np.dtype(np.float64) if jnp.issubdtype(dtype, jnp.floating) else dtype


def _widened(value: Any, dtype: Any = None) -> jax.Array:
    dtype = jnp.result_type(value) if dtype is None else dtype
    return jnp.asarray(np.asarray(value).astype(_wide(dtype)))


def _closed(program: ClosedJaxpr, inputs: Sequence[jax.Array]) -> list[jax.Array]:
    return _open(program.jaxpr, [*map(_widened, program.consts), *inputs])


def _open(program: Jaxpr, inputs: Sequence[jax.Array]) -> list[jax.Array]:
    """The outputs of a program whose constants are its first inputs."""
    values: dict[Any, Any] = dict(zip([*program.constvars, *program.invars], inputs, strict=True))

    def read(variable) -> jax.Array:
        if isinstance(variable, Literal):
            return _widened(variable.val, variable.aval.dtype)  # pyright: ignore[reportAttributeAccessIssue]
        return values[variable]

    for step in program.eqns:
        outputs = _done(step, [read(variable) for variable in step.invars])
        values.update(zip(step.outvars, outputs, strict=True))
    return [read(variable) for variable in program.outvars]


def _done(step: JaxprEqn, inputs: list[jax.Array]) -> Sequence[jax.Array]:
    """The outputs of one operation."""
    if step.primitive.name in _CONTROL:
        return _CONTROL[step.primitive.name](step, inputs)
    if (inner := called(step)) is not None:
        program, consts = inner
        return _open(program, [*map(_widened, consts), *inputs])
    params = {name: _wide_parameter(value) for name, value in step.params.items()}
    outputs = step.primitive.bind(*inputs, **params)
    return outputs if step.primitive.multiple_results else [outputs]


def _wide_parameter(value: Any) -> Any:
    if isinstance(value, Jaxpr):  # the function with which a scatter combines two numbers
        avals: list[Any] = [variable.aval for variable in value.invars]
        shapes = [jax.ShapeDtypeStruct(aval.shape, _wide(aval.dtype)) for aval in avals]
        return jax.make_jaxpr(lambda *inputs: _open(value, inputs))(*shapes).jaxpr
    is_dtype = isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic))
    return _wide(value) if is_dtype else value


def _scan(step: JaxprEqn, inputs: list[jax.Array]) -> list[jax.Array]:
    body: ClosedJaxpr = step.params["jaxpr"]
    num_fixed, num_carried = scan_sizes(step)
    fixed, start, stacks = _cut(inputs, num_fixed, num_fixed + num_carried)

    def turn(carry, rows):
        outputs = _closed(body, [*fixed, *carry, *rows])
        return outputs[:num_carried], outputs[num_carried:]

    last, made = lax.scan(turn, start, stacks, step.params["length"], step.params["reverse"])
    return [*last, *made]


def _cut(inputs: list[jax.Array], first: int, end: int) -> tuple[list[jax.Array], ...]:
    return inputs[:first], inputs[first:end], inputs[end:]


def _while(step: JaxprEqn, inputs: list[jax.Array]) -> list[jax.Array]:
    goes_on, body = step.params["cond_jaxpr"], step.params["body_jaxpr"]
    first = step.params["cond_nconsts"]
    asked, fixed, start = _cut(inputs, first, first + step.params["body_nconsts"])
    return lax.while_loop(
        lambda carry: _closed(goes_on, [*asked, *carry])[0], lambda carry: _closed(body, [*fixed, *carry]), start
    )


def _cond(step: JaxprEqn, inputs: list[jax.Array]) -> list[jax.Array]:
    branches = [lambda inputs, branch=branch: _closed(branch, inputs) for branch in step.params["branches"]]
    return lax.switch(inputs[0], branches, inputs[1:])


_CONTROL = {"scan": _scan, "while": _while, "cond": _cond}
