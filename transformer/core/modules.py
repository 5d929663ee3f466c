"""Modules: NNX as initializer and namespace, random keys folded from paths, linear layers, and the pure form."""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import ArrayLike, DTypeLike

from transformer.core.arrays import MODEL, axis_size, dense, platform, plus
from transformer.core.errors import ConfigError, nearest
from transformer.core.int8 import Int8
from transformer.core.parameters import ZEROS, Initializer, Parameter
from transformer.core.weights import Weights


def at(key: jax.Array, *names: str | int) -> jax.Array:
    """The key of a path below `key`: folded from names, never from the order of calls.

    Two models under one seed share the initial value of every parameter that has the same path and shape, up to a
    factor where their initializers or numbers of branches differ.

    Raises:
      ConfigError: it is no key.
    """
    if not isinstance(key, jax.Array):
        raise no_key(key, "key")
    for name in names:
        key = jax.random.fold_in(key, zlib.crc32(str(name).encode()))
    return key


def no_key(given: Any, where: str) -> ConfigError:
    """The error of something that is no random key, such as a seed."""
    return ConfigError(f"{where}: {given!r} is no random key; jax.random.key(0) is one")


def dotted(path: Sequence[Any]) -> str:
    """The name of a parameter from its path in a tree, such as `blocks.0.attention.query.kernel`."""
    return ".".join(entry.key for entry in path)


def below(key: jax.Array | None, *names: str | int) -> jax.Array | None:
    """`at` for a key that may be absent: no key means no dropout."""
    return None if key is None else at(key, *names)


def make_parameter(spec: Parameter, key: jax.Array) -> nnx.Param:
    """The variable of one parameter; `spec` travels with it as metadata."""
    return nnx.Param(spec.initial_value(key), spec=spec)


class Parameters(nnx.Module):
    """The parameters of a variant, by name: the argument `params` of the variant's functions."""

    def __init__(self, specs: Mapping[str, Parameter], *, key: jax.Array):
        self._names = tuple(specs)
        for name, spec in specs.items():
            if not isinstance(spec, Parameter):
                raise ConfigError(f"parameters: {name!r} is a {type(spec).__name__}, not Parameter(shape, initializer)")
            setattr(self, name, make_parameter(spec, at(key, name)))

    def __call__(self) -> dict[str, jax.Array]:
        return {name: getattr(self, name)[...] for name in self._names}


class Dense(nnx.Module):
    """x · matrix + bias, where the matrix (D, F) is the kernel, or what `form` makes of it."""

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        initializer: Initializer,
        bias: bool,
        key: jax.Array,
        gain: float = 1.0,
        form: Weights | None = None,
    ):
        self.kernel = make_parameter(Parameter((d_in, d_out), initializer, gain=gain), at(key, "kernel"))
        self.bias = make_parameter(Parameter((d_out,), ZEROS), at(key, "bias")) if bias else None
        self.form = form
        own = form.parameters(d_in, d_out) if form else {}
        self.weights = Parameters(own, key=at(key, "weights")) if own else None

    def matrix(self) -> Any:
        """What the input is multiplied by, (D, F)."""
        kernel_DF = self.kernel[...]
        if self.form is None:
            return kernel_DF
        if isinstance(kernel_DF, Int8):
            raise ConfigError(f"weights={self.form}: a kernel in 8 bits has no other form; call merged before quantize")
        return self.form(kernel_DF, {} if self.weights is None else self.weights())

    def __call__(self, x: jax.Array, dtype: DTypeLike | None = None) -> jax.Array:
        return fused(x, [self], dtype)[0]


def fused(x: jax.Array, layers: Sequence[Dense], dtype: DTypeLike | None = None) -> list[jax.Array]:
    """The outputs of several layers with the same input, where it is faster from one product.

    That is with their concatenated kernels. Kernels cut into columns over several devices are not concatenated: no
    device has adjacent columns of all. For a TPU none are: it would copy the outputs out of the product, and their
    gradients together.

    Args:
      x: (..., D).
      layers: those layers.
      dtype: of the outputs; None: that of `x`.
    """
    kernels = [layer.matrix() for layer in layers]
    if len(kernels) == 1 or axis_size(MODEL) > 1 or platform() == "tpu":
        parts = [dense(x, kernel, dtype) for kernel in kernels]
    else:
        ends = np.cumsum([kernel.shape[1] for kernel in kernels])[:-1]
        together = kernels[0].beside(*kernels[1:]) if isinstance(kernels[0], Int8) else jnp.concatenate(kernels, 1)
        parts = jnp.split(dense(x, together, dtype), ends, axis=-1)
    return [
        part if layer.bias is None else plus(part, layer.bias[...]) for part, layer in zip(parts, layers, strict=True)
    ]


Params = dict[str, Any]
"""A nested dict of arrays, keyed by the attribute names of the modules."""


Apply = Callable[..., Any]


def abstract(build: Callable[[jax.Array], nnx.Module]) -> nnx.Module:
    """The module `build(key)` with shapes in place of arrays; nothing is computed. Raises what `build` raises."""
    return nnx.eval_shape(lambda: build(jax.random.key(0)))


def split(model: nnx.Module) -> tuple[Params, Apply]:
    """The parameters of a module, abstract or not, and its call as a pure function of them.

    `apply(params, *args, **kwargs)` is `model(*args, **kwargs)`, to be called under `jax.jit`; with
    `method="name"` it is `model.name(*args, **kwargs)`.

    Raises:
      ConfigError: raised by `apply` where the tree or a shape differs from the model's parameters.
    """
    _check_module(model, "split")
    graphdef, state = nnx.split(model)
    return nest({path: variable.get_value() for path, variable in _variables(state)}), _apply(graphdef, state)


def _check_module(model: Any, where: str) -> None:
    if not isinstance(model, nnx.Module):
        given = type(model).__name__
        raise ConfigError(f"{where}: a module is needed, and {given} is given; build(config, key=…) is one")


def specs(model: nnx.Module) -> Params:
    """The `Parameter` of every leaf of a module, abstract or not, in the tree of the parameters.

    Raises:
      ConfigError: something else is given, such as a config.
    """
    _check_module(model, "specs")
    return nest({path: _spec(variable) for path, variable in _variables(nnx.split(model)[1])})


def initialize(build: Callable[[jax.Array], nnx.Module], key: jax.Array, initial_scale: ArrayLike = 1.0) -> Params:
    """The parameters of `build(key)`, random values times `initial_scale`; a pure function for `jit` and `vmap`."""
    model = build(key)
    return jax.tree.map(
        lambda value, spec: value * initial_scale if spec.initializer.random else value, split(model)[0], specs(model)
    )


def overlay(params: Params, given: Params, path: str = "") -> Params:
    """`params` with the leaves of `given` in place of its own.

    Raises:
      ConfigError: `given` has a leaf where `params` has none, or one of another shape or dtype.
    """
    if unknown := sorted(given.keys() - params.keys()):
        raise ConfigError(f"no parameter {path}{unknown[0]}{nearest(unknown[0], params)}")
    return params | {name: _over(params[name], value, f"{path}{name}") for name, value in given.items()}


def _over(own: Any, given: Any, path: str) -> Any:
    if isinstance(own, dict) and isinstance(given, dict):
        return overlay(own, given, f"{path}/")
    kinds = [_kind(a) for a in (own, given)]
    if kinds[0] != kinds[1]:
        hint = "; of several replicas, `run.params(0)` are those of one" if _of_several(own, given) else ""
        raise ConfigError(f"parameter {path} is {kinds[0]}, and {kinds[1]} is given{hint}")
    return given


def _of_several(own: Any, given: Any) -> bool:
    """Whether what is given has one more axis in front."""
    return np.shape(given)[1:] == np.shape(own) != np.shape(given)


def _kind(leaf: Any) -> str:
    """What a leaf of parameters is, for errors."""
    if isinstance(leaf, dict):
        return "a tree"
    known = hasattr(leaf, "dtype") and hasattr(leaf, "shape")
    return f"{leaf.dtype}{list(leaf.shape)}" if known else f"a {type(leaf).__name__}"


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


def check_apply(apply: Any, where: str) -> None:
    """Raise `ConfigError` where something else stands for a pure model: a module, a run, or its parameters."""
    if callable(apply) and not isinstance(apply, nnx.Module):
        return
    hint = "pure_model(config)[1] is one, and parameters come after it"
    if isinstance(apply, nnx.Module):
        hint = "pure_model(config)[1] is its function"
    elif hasattr(apply, "apply"):
        hint = "its `apply` is one"
    raise ConfigError(f"{where}: apply is a {type(apply).__name__}; {hint}")


def _leaf(params: Params, path: tuple) -> Any:
    value: Any = params
    for name in path:
        value = value[str(name)]
    return jnp.asarray(value) if isinstance(value, np.ndarray) else value


def _check_tree(params: Any, shapes: Any, path: str = "") -> None:
    """Raise `ConfigError` where parameters are not those of the model."""
    found, wanted = ("a tree" if isinstance(a, dict) else list(getattr(a, "shape", ())) for a in (params, shapes))
    if found != wanted:
        name = f"parameter {path[:-1]} is" if path else "the parameters, which apply takes first, are"
        several = "; of several replicas, `run.params(0)` are those of one" if found[1:] == wanted else ""
        raise ConfigError(f"{name} {found}, not {wanted}{several}")
    if wanted != "a tree":
        dtype = getattr(params, "dtype", jnp.float32)  # an `Int8` has none
        if jnp.issubdtype(dtype, jnp.complexfloating):
            raise ConfigError(f"parameter {path[:-1]} is {dtype}, and a model computes with real numbers")
        return
    if missing := sorted(shapes.keys() - params.keys()):
        raise ConfigError(f"parameter {path}{missing[0]} is missing{nearest(missing[0], params)}")
    if unknown := sorted(params.keys() - shapes.keys()):
        raise ConfigError(f"no parameter {path}{unknown[0]}{nearest(unknown[0], shapes)}")
    for name, below in shapes.items():
        _check_tree(params[name], below, f"{path}{name}/")
