"""The stack: layers whose parameters carry a leading layer axis N, and how they are run."""

import abc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from transformer.core.values import Variant
from transformer.functional.attention import OF_KERNEL
from transformer.mixers.mixer import Context, Shared

Remat = Literal["none", "dots", "full"]
"""What the backward pass computes again: nothing, all but the products with parameters (scores, which grow with the
square of the length, are not kept), or everything."""


def _of_cudnn(primitive, *_, **__) -> bool:
    """Whether it is cuDNN's attention, whose outputs have no name."""
    return primitive.name.startswith("dot_product_attention_fwd")


_either = jax.checkpoint_policies.save_from_both_policies
_PRODUCTS = _either(
    jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    _either(jax.checkpoint_policies.save_only_these_names(OF_KERNEL), _of_cudnn),
)
_POLICIES = {"dots": _PRODUCTS, "full": None}


def _rematerialize(body, remat: Remat, **kwargs):
    return body if remat == "none" else jax.checkpoint(body, policy=_POLICIES[remat], **kwargs)


Body = Callable[[Any, Any], tuple[Any, Any]]


@dataclass(frozen=True)
class Layers(Variant):
    """How a stack of equal layers is run."""

    remat: Remat = "none"
    """What the backward pass computes again."""

    @abc.abstractmethod
    def __call__(self, body: Body, x: Any, stacked: Any, num_layers: int) -> tuple[Any, Any]:
        """x, kept = body(x, layer) for each slice `layer` of the leading axis of the arrays in `stacked`.

        The last x, and what was kept of all layers, stacked.
        """


@dataclass(frozen=True)
class Unrolled(Layers):
    """A Python loop: the fastest, as what is kept of a layer is not copied; compile time grows with depth."""

    def __call__(self, body, x, stacked, num_layers):
        body = _rematerialize(body, self.remat)
        # lax.split transposes to one concatenation; indexing would pad every layer's gradient.
        leaves, treedef = jax.tree.flatten(stacked)
        columns = [[lax.squeeze(s, (0,)) for s in lax.split(leaf, (1,) * num_layers)] for leaf in leaves]
        kept = []
        for layer in zip(*columns, strict=True):
            x, own = body(x, jax.tree.unflatten(treedef, layer))
            kept.append(own)
        return x, jax.tree.map(lambda *layers: jnp.stack(layers), *kept)


@dataclass(frozen=True)
class Scanned(Layers):
    """`lax.scan`: compile time does not depend on depth."""

    def __call__(self, body, x, stacked, num_layers):
        body = _rematerialize(body, self.remat, prevent_cse=False)
        return lax.scan(body, x, stacked, length=num_layers)


class _State(NamedTuple):
    """What goes from layer to layer."""

    x: Any
    penalty: jax.Array
    shared: Shared


class _Turn(NamedTuple):
    """One layer of each kind; stacked, all that are run."""

    number: jax.Array
    """From 0, counted from the first turn that is run."""
    values: Any
    """The arrays of each kind."""
    earlier: jax.Array | None
    """(kinds, B, M, D) segment memory."""


def _shallower(values: nnx.State, layer: jax.Array) -> nnx.State:
    """The parameters of a layer, from 0, with random matrices divided by √(layer + 1)."""

    def scaled(param: nnx.Param) -> nnx.Variable:
        spec = param.get_metadata("spec")
        if not (spec.initializer.random and spec.decayed):
            return param
        return param.replace(param[...] * jax.lax.rsqrt(layer.astype(jnp.float32) + 1))

    return jax.tree.map(scaled, values, is_leaf=lambda node: isinstance(node, nnx.Param))


class Stack(nnx.Module):
    """Layers whose parameters are stacked, run as `layers` says; `stack[i]` is one of them.

    Layers of several kinds take turns, and the parameters of each kind are a stack of their own. Where fewer
    layers than `num_layers` are distinct, they are run again in the same order. `shares` names the fields of
    `Shared` that a layer hands on to the next; `by_depth` divides random matrices of layer l, from 1, by √l.
    """

    def __init__(
        self,
        builds: Sequence[Callable[[jax.Array], nnx.Module]],
        num_layers: int,
        layers: Layers,
        *,
        distinct: int | None = None,
        shares: Sequence[str] = (),
        by_depth: bool = False,
        key: jax.Array,
    ):
        self.num_layers, self.layers, self.shares, self.by_depth = num_layers, layers, tuple(shares), by_depth
        self.distinct = num_layers if distinct is None else distinct
        self.kinds = nnx.List(self._stacked(build, kind, len(builds), key) for kind, build in enumerate(builds))

    def _stacked(self, build, kind: int, period: int, key: jax.Array) -> nnx.Module:
        graphdefs = []  # vmap returns arrays alone: the structure, which is built once, is kept from the trace

        def values(i):
            graphdef, values = nnx.split(build(jax.random.fold_in(key, i)))
            graphdefs.append(graphdef)
            return _shallower(values, i) if self.by_depth else values

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
        context: Context,
        key: jax.Array | None,
        layers: range | None = None,
        earlier_NBMD: jax.Array | None = None,
    ) -> tuple[Any, jax.Array, jax.Array | None]:
        """(output of the last layer, sum of all penalties, segment memory for the next segment).

        Each layer is called with its number, its own key below `key`, and the context with what the layers before it
        hand on and its part of the segment memory `earlier_NBMD`. `layers` are those that are run, whole turns of
        all kinds; None: all.
        """
        layers = range(self.num_layers) if layers is None else layers
        first, period = layers.start, len(self.kinds)
        num_turns = len(layers) // period
        if not num_turns:
            return x, jnp.float32(0), earlier_NBMD
        graphdefs, values = self._split(first // period, num_turns)
        earlier = None if earlier_NBMD is None else earlier_NBMD.reshape(num_turns, period, *earlier_NBMD.shape[1:])

        def body(state: _State, turn: _Turn) -> tuple[_State, jax.Array | None]:
            after = []
            for kind, graphdef in enumerate(graphdefs):
                layer = first + turn.number * period + kind
                layer_key = None if key is None else jax.random.fold_in(key, layer)
                earlier_BMD = None if turn.earlier is None else turn.earlier[kind]
                own = context._replace(shared=state.shared, first=layer == 0, earlier_BMD=earlier_BMD)
                # `analysis.activations` and `analysis.breakdown` read the layers' numbers off this name.
                with jax.named_scope(f"blocks[{first + kind}::{period}]"):
                    block = nnx.merge(graphdef, turn.values[kind])
                    x, aux = block(state.x, context=own, layer=layer, key=layer_key)
                penalty = state.penalty + jnp.asarray(aux.penalty, jnp.float32)
                state = _State(x, penalty, self.handed_on(aux.shared))
                after.append(aux.earlier_BMD)
            return state, None if turn.earlier is None else jnp.stack(after)

        turns = _Turn(jnp.arange(num_turns), values, earlier)
        start = self._with_empty_shared(_State(x, jnp.float32(0), self.handed_on(context.shared)), body, turns)
        state, after = self.layers(body, start, turns, num_turns)
        return state.x, state.penalty, None if after is None else after.reshape(-1, *after.shape[2:])

    def _split(self, first_turn: int, num_turns: int) -> tuple[Sequence[nnx.GraphDef], Any]:
        """The structure of each kind, and the arrays of each with a leading axis of the turns that are run."""
        graphdefs, values = zip(*(nnx.split(kind) for kind in self.kinds), strict=True)
        all_turns, distinct = (n // len(self.kinds) for n in (self.num_layers, self.distinct))
        if distinct < all_turns:
            values = jax.tree.map(lambda a: a[jnp.arange(all_turns) % distinct], values)
        if num_turns < all_turns:
            values = jax.tree.map(lambda a: a[first_turn:][:num_turns], values)
        return graphdefs, values

    def _with_empty_shared(self, start: _State, body: Body, turns: _Turn) -> _State:
        """With zeros where layers hand arrays on: a loop needs the same shapes from its start."""
        if not self.shares:
            return start
        after, _ = jax.eval_shape(lambda turn: body(start, turn), jax.tree.map(lambda a: a[0], turns))
        empty = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), after.shared)
        given = {name: value for name, value in start.shared._asdict().items() if value is not None}
        return start._replace(shared=empty._replace(**given))

    def handed_on(self, shared: Shared) -> Shared:
        """What of it the next layer sees."""
        return Shared(**{name: getattr(shared, name) for name in self.shares})
