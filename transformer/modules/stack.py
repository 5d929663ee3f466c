"""A stack of layers whose parameters carry a leading layer axis N."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from transformer.config.implementations import Layers
from transformer.functional.names import scope
from transformer.modules.context import Carried

ALL = slice(None)


class Stack(nnx.Module):
    """Layers stored stacked, run as `layers` says; `stack[i]` is one of them.

    Layers of several kinds take turns, and each kind is a stack of its own. Where fewer layers than
    `num_layers` are distinct, they are gone through again. `carries` names what a layer leaves to
    those after it, fields of `Carried`.
    """

    def __init__(
        self,
        builds: Sequence[Callable[[jax.Array], nnx.Module]],
        num_layers: int,
        layers: Layers,
        *,
        distinct: int | None = None,
        carries: Sequence[str] = (),
        key: jax.Array,
    ):
        self.num_layers, self.layers, self.carries = num_layers, layers, tuple(carries)
        self.distinct = num_layers if distinct is None else distinct
        self.kinds = nnx.List(self._stacked(build, kind, len(builds), key) for kind, build in enumerate(builds))

    def _stacked(self, build, kind: int, period: int, key: jax.Array) -> nnx.Module:
        graphdefs = []  # left by the trace, which gives back arrays alone: the layer is built once

        def values(i):
            graphdef, values = nnx.split(build(jax.random.fold_in(key, i)))
            graphdefs.append(graphdef)
            return values

        stacked = jax.vmap(values)(jnp.arange(kind, self.distinct, period))
        return nnx.merge(graphdefs[0], stacked)

    def __len__(self) -> int:
        return self.num_layers

    def __getitem__(self, i: int) -> nnx.Module:
        if not -self.num_layers <= i < self.num_layers:
            raise IndexError(f"layer {i} of {self.num_layers}")
        row, kind = divmod(i % self.num_layers % self.distinct, len(self.kinds))
        graphdef, values = nnx.split(self.kinds[kind])
        return nnx.merge(graphdef, jax.tree.map(lambda a: a[row], values))

    def __iter__(self) -> Iterator[nnx.Module]:
        return (self[i] for i in range(self.num_layers))

    def __call__(
        self,
        x: Any,
        *,
        key: jax.Array | None,
        layers: slice = ALL,
        earlier_NBMD: jax.Array | None = None,
        **kwargs,
    ) -> tuple[Any, jax.Array, jax.Array | None]:
        """The last layer's output, the sum of the penalties of all, and what is earlier for the next segment.

        Each layer is called with `kwargs`, its number, its own key below `key` and its part of what is earlier.
        `layers` are those that are run, whole turns of all kinds.
        """
        period = len(self.kinds)
        first, behind, _ = layers.indices(self.num_layers)
        turns = (behind - first) // period
        if not turns:
            return x, jnp.float32(0), earlier_NBMD
        graphdefs, values = zip(*(nnx.split(kind) for kind in self.kinds), strict=True)
        if self.distinct < self.num_layers:
            values = jax.tree.map(lambda a: a[jnp.arange(len(self) // period) % (self.distinct // period)], values)
        if turns < len(self) // period:
            values = jax.tree.map(lambda a: a[first // period :][:turns], values)

        def body(carry, turn):
            number, of_kinds, before = turn
            after = []
            for kind, (graphdef, own) in enumerate(zip(graphdefs, of_kinds, strict=True)):
                x, penalty, carried = carry
                index = first + number * period + kind
                layer_key = None if key is None else jax.random.fold_in(key, index)
                more = kwargs if before is None else kwargs | {"earlier_BMD": before[kind]}
                with scope(f"blocks[{first + kind}::{period}]"):
                    x, kept = nnx.merge(graphdef, own)(x, carried=carried, layer=index, key=layer_key, **more)
                carry = x, penalty + jnp.asarray(kept.penalty, jnp.float32), self._kept(kept.carried)
                after.append(kept.earlier_BMD)
            return carry, None if before is None else jnp.stack(after)

        start = (x, jnp.float32(0), Carried())
        before = None if earlier_NBMD is None else earlier_NBMD.reshape(turns, period, *earlier_NBMD.shape[1:])
        turns_of = (jnp.arange(turns), values, before)
        if self.carries:  # a loop carries arrays of the same shapes from its beginning
            shapes, _ = jax.eval_shape(lambda turn: body(start, turn), jax.tree.map(lambda a: a[0], turns_of))
            start = (*start[:2], jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes[2]))
        (x, penalty, _), after = self.layers(body, start, turns_of, turns)
        return x, penalty, None if after is None else after.reshape(-1, *after.shape[2:])

    def _kept(self, carried: Carried) -> Carried:
        return Carried(**{name: getattr(carried, name) for name in self.carries})
