"""A stack of equal layers whose parameters carry a leading layer axis N."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from transformer.config.implementations import Layers


class Stack(nnx.Module):
    """`num_layers` copies of one module, stored stacked, run as `layers` says; `stack[i]` is one of them."""

    def __init__(self, build: Callable[[jax.Array], nnx.Module], num_layers: int, layers: Layers, *, key: jax.Array):
        def values(i):
            return nnx.split(build(jax.random.fold_in(key, i)))[1]

        self.num_layers, self.layers = num_layers, layers
        graphdef, _ = nnx.split(nnx.eval_shape(lambda: build(key)))
        self.layer = nnx.merge(graphdef, jax.vmap(values)(jnp.arange(num_layers)))

    def __len__(self) -> int:
        return self.num_layers

    def __getitem__(self, i: int) -> nnx.Module:
        if not -self.num_layers <= i < self.num_layers:
            raise IndexError(f"layer {i} of {self.num_layers}")
        graphdef, values = nnx.split(self.layer)
        return nnx.merge(graphdef, jax.tree.map(lambda a: a[i], values))

    def __iter__(self) -> Iterator[nnx.Module]:
        return (self[i] for i in range(self.num_layers))

    def __call__(self, x: Any, *, key: jax.Array | None, **kwargs) -> tuple[Any, jax.Array]:
        """The last layer's output and the sum of the penalties of all.

        Each layer is called with `kwargs`, its number and its own key below `key`.
        """
        graphdef, values = nnx.split(self.layer)

        def body(carry, layer):
            x, penalty = carry
            index, values = layer
            layer_key = None if key is None else jax.random.fold_in(key, index)
            x, kept = nnx.merge(graphdef, values)(x, layer=index, key=layer_key, **kwargs)
            return x, penalty + jnp.asarray(kept.penalty, jnp.float32)

        carry = (x, jnp.float32(0))
        return self.layers(body, carry, (jnp.arange(self.num_layers), values), self.num_layers)
