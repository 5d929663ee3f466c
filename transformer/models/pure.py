"""From modules to pure functions: parameters as a nested dict of arrays, and `apply(params, …)`."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import ArrayLike

from transformer.config.parameters import Parameter
from transformer.config.variant import ConfigError, nearest

Params = dict[str, Any]
"""A nested dict of arrays, keyed by the attribute names of the modules."""
Apply = Callable[..., Any]


def abstract(build: Callable[[jax.Array], nnx.Module]) -> nnx.Module:
    """The module `build(key)` with shapes in place of arrays; nothing is computed."""
    return nnx.eval_shape(lambda: build(jax.random.key(0)))


def split(model: nnx.Module) -> tuple[Params, Apply]:
    """The parameters of a module, abstract or not, and its call as a pure function of them.

    `apply(params, *args, **kwargs)` is `model(*args, **kwargs)`, to be called under `jax.jit`; with
    `method="name"` it is `model.name(*args, **kwargs)`.

    Raises:
      ConfigError: by `apply`, where the tree or a shape is not that of the model's parameters.
    """
    graphdef, state = nnx.split(model)
    return nest({path: variable.get_value() for path, variable in _variables(state)}), _apply(graphdef, state)


def specs(model: nnx.Module) -> Params:
    """The `Parameter` of every leaf of a module, abstract or not, in the tree of the parameters."""
    return nest({path: _spec(variable) for path, variable in _variables(nnx.split(model)[1])})


def initialize(build: Callable[[jax.Array], nnx.Module], key: jax.Array, initial_scale: ArrayLike = 1.0) -> Params:
    """The parameters of `build(key)`, random values times `initial_scale`; pure, so jit or map it."""
    model = build(key)
    return jax.tree.map(
        lambda value, spec: value * initial_scale if spec.initializer.random else value, split(model)[0], specs(model)
    )


def overlay(params: Params, given: Params, path: str = "") -> Params:
    """`params` with the leaves that `given` has in their places.

    Raises:
      ConfigError: `given` has a leaf where there is none, or one of another shape or dtype.
    """
    if unknown := sorted(given.keys() - params.keys()):
        raise ConfigError(f"no parameter {path}{unknown[0]}{nearest(unknown[0], params)}")
    return params | {name: _over(params[name], value, f"{path}{name}") for name, value in given.items()}


def _over(own: Any, given: Any, path: str) -> Any:
    if isinstance(own, dict) and isinstance(given, dict):
        return overlay(own, given, f"{path}/")
    kinds = ["a tree" if isinstance(a, dict) else f"{a.dtype}{list(a.shape)}" for a in (own, given)]
    if kinds[0] != kinds[1]:
        raise ConfigError(f"parameter {path} is {kinds[0]}, and {kinds[1]} is given")
    return given


def _spec(variable: Any) -> Parameter:
    return variable.get_metadata("spec")


def _variables(state) -> Iterator[tuple[tuple[str, ...], Any]]:
    return ((tuple(map(str, path)), variable) for path, variable in nnx.to_flat_state(state))


def nest(flat: Mapping[tuple[str, ...], Any]) -> Params:
    """A nested dict of leaves by path."""
    nested: Params = {}
    for path, value in flat.items():
        inner = nested
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = value
    return nested


def _apply(graphdef, state) -> Apply:
    variables = dict(nnx.to_flat_state(state))
    shapes = nest({tuple(map(str, path)): variable.get_value() for path, variable in variables.items()})

    def apply(params, *args, method="__call__", **kwargs):
        _check_tree(params, shapes)
        flat = {path: variable.replace(_leaf(params, path)) for path, variable in variables.items()}
        return getattr(nnx.merge(graphdef, nnx.from_flat_state(flat)), method)(*args, **kwargs)

    return apply


def _leaf(params: Params, path: tuple) -> Any:
    value: Any = params
    for name in path:
        value = value[str(name)]
    return jnp.asarray(value) if isinstance(value, np.ndarray) else value


def _check_tree(params: Any, shapes: Any, path: str = "") -> None:
    """Raise `ConfigError` where parameters are not those of the model."""
    found, wanted = ("a tree" if isinstance(a, dict) else list(jnp.shape(a)) for a in (params, shapes))
    if found != wanted:
        raise ConfigError(f"parameter {path[:-1]} is {found}, not {wanted}")
    if wanted != "a tree":
        return
    if missing := sorted(shapes.keys() - params.keys()):
        raise ConfigError(f"parameter {path}{missing[0]} is missing{nearest(missing[0], params)}")
    if unknown := sorted(params.keys() - shapes.keys()):
        raise ConfigError(f"no parameter {path}{unknown[0]}{nearest(unknown[0], shapes)}")
    for name, below in shapes.items():
        _check_tree(params[name], below, f"{path}{name}/")
