"""From modules to pure functions: parameters as a nested dict of arrays, and `apply(params, …)`."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
from flax import nnx

from transformer.config.parameters import Parameter

Params = dict[str, Any]
"""A nested dict of arrays, keyed by the attribute names of the modules."""
Apply = Callable[..., jax.Array]


def split(model: nnx.Module) -> tuple[Params, Apply]:
    """The parameters of a module, and its call as a pure function of them.

    `apply(params, *args, **kwargs)` is `model(*args, **kwargs)`, to be called under `jax.jit`.
    """
    graphdef, state = nnx.split(model)
    return _to_dict(state), _apply(graphdef, state)


def abstract(build: Callable[[jax.Array], nnx.Module]) -> tuple[Params, Apply]:
    """`split` without computing anything: the parameters are `jax.ShapeDtypeStruct`s."""
    graphdef, state = nnx.split(nnx.eval_shape(lambda: build(jax.random.key(0))))
    return _to_dict(state), _apply(graphdef, state)


def initialize(build: Callable[[jax.Array], nnx.Module], key: jax.Array, initial_scale=1.0) -> Params:
    """The parameters of `build(key)`, random values times `initial_scale`; pure, so jit or map it."""
    state = nnx.split(build(key))[1]
    scaled = nnx.map_state(lambda _, v: v.replace(v[...] * initial_scale) if _spec(v).initializer.random else v, state)
    return _to_dict(scaled)


def specs(build: Callable[[jax.Array], nnx.Module]) -> Params:
    """The `Parameter` of every leaf, in the tree of the parameters."""
    state = nnx.split(nnx.eval_shape(lambda: build(jax.random.key(0))))[1]
    return _nest({path: _spec(variable) for path, variable in _variables(state)})


def _spec(variable: Any) -> Parameter:
    return variable.get_metadata("spec")


def _variables(state) -> Iterator[tuple[tuple[str, ...], Any]]:
    return ((tuple(map(str, path)), variable) for path, variable in nnx.to_flat_state(state))


def _to_dict(state) -> Params:
    return _nest({path: variable.get_value() for path, variable in _variables(state)})


def _nest(flat: dict[tuple[str, ...], Any]) -> Params:
    nested: Params = {}
    for path, value in flat.items():
        inner = nested
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = value
    return nested


def _apply(graphdef, state) -> Apply:
    paths = [path for path, _ in nnx.to_flat_state(state)]
    variables = dict(nnx.to_flat_state(state))

    def apply(params, *args, **kwargs):
        flat = {}
        for path in paths:
            value = params
            for name in path:
                value = value[str(name)]
            flat[path] = variables[path].replace(value)
        return nnx.merge(graphdef, nnx.from_flat_state(flat))(*args, **kwargs)

    return apply
