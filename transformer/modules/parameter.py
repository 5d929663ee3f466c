"""Parameters of modules: NNX variables that remember their `Parameter`, with random keys folded from their paths."""

import zlib
from collections.abc import Mapping

import jax
from flax import nnx

from transformer.config.parameters import Parameter


def at(key: jax.Array, *names: str | int) -> jax.Array:
    """The key of a path below `key`: folded from names, never from the order of calls.

    Two models under one seed share the initial value of every parameter that has the same path and shape.
    """
    for name in names:
        key = jax.random.fold_in(key, zlib.crc32(str(name).encode()))
    return key


def below(key: jax.Array | None, *names: str | int) -> jax.Array | None:
    """`at` for a key that may be absent: no key means no dropout."""
    return None if key is None else at(key, *names)


def make_parameter(spec: Parameter, key: jax.Array) -> nnx.Param:
    """The variable of one parameter; `spec` travels with it as metadata."""
    return nnx.Param(spec.initial_value(key), spec=spec)


class Parameters(nnx.Module):
    """The parameters of a variant, by name: the argument `params` of the variant's functions."""

    def __init__(self, specs: Mapping[str, Parameter], *, key: jax.Array):
        self.names = tuple(specs)
        for name, spec in specs.items():
            setattr(self, name, make_parameter(spec, at(key, name)))

    def __call__(self) -> dict[str, jax.Array]:
        return {name: getattr(self, name)[...] for name in self.names}
