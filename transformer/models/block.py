"""A block: its sublayers, each in a residual connection."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from transformer.core.devices import constrain
from transformer.core.dropout import drop_sequences, dropout
from transformer.core.modules import Parameters, at, below
from transformer.core.names import named, scope
from transformer.models.attention import CrossAttention
from transformer.models.blocks import Sublayer
from transformer.models.config import ModelConfig
from transformer.models.context import Context, Kept
from transformer.models.experts import make_feed_forward
from transformer.models.fourier import FourierMixing
from transformer.models.self_attention import Attention
from transformer.norms.norm import NormLayer
from transformer.residuals.residual import Function, Norms, Place, Residual, Stream

SUBLAYERS: dict[str, Callable[..., Any]] = {
    "attention": Attention,
    "cross_attention": CrossAttention,
    "feed_forward": make_feed_forward,
    "fourier": FourierMixing,
}


_CROSS = (Sublayer("cross_attention", "cross_attention"),)


class ResidualConnection(nnx.Module):
    """A residual connection with its norms and parameters.

    Where several `sublayers` are named, each has its own norm of the input.
    """

    def __init__(
        self, residual: Residual, config: ModelConfig, name: str, sublayers: Sequence[str] = (), *, key: jax.Array
    ):
        self.residual, self.name, self.sublayers = residual, name, tuple(sublayers)
        names = [name for where in residual.norms for name in (self.sublayers if where == "input" else ()) or (where,)]
        norms = {name: NormLayer(config.norm, config.d_model, name, key=at(key, "norms")) for name in names}
        self.norms = nnx.Dict(norms)
        self.params = Parameters(residual.parameters(config.d_model), key=at(key, "params"))

    def __call__(self, stream: Stream, branch: Function, place: Place, valid_BL: jax.Array | None = None) -> Stream:
        """The stream after the branch, a function of (B, L, D) or, where sublayers are named, of all their inputs."""
        norms: Norms = {
            name: functools.partial(self._normalized, norm, valid_BL) for name, norm in dict(self.norms).items()
        }
        own = [norms.pop(name) for name in self.sublayers]
        if own:  # one array (sublayers, B, L, D), for a residual may multiply what the norm returns (`scaled_pre`)
            norms["input"] = lambda x: jnp.stack([norm(x) for norm in own])
        return self.residual(stream, branch, norms, self.params(), place)

    def _normalized(self, norm: NormLayer, valid_BL: jax.Array | None, x_BLD: jax.Array) -> jax.Array:
        with scope(self.name):
            return norm(x_BLD, valid_BL)


class Block(nnx.Module):
    """One layer of the stack."""

    def __init__(self, config: ModelConfig, *, cross: bool = False, key: jax.Array):
        self.config = config
        connections = config.block.connections
        if cross:
            after = 1 + next(i for i, c in enumerate(connections) if any(s.kind == "attention" for s in c))
            connections = (*connections[:after], _CROSS, *connections[after:])
        self.connections = connections
        for connection in connections:
            for sublayer in connection:
                module = SUBLAYERS[sublayer.kind](config, key=at(key, sublayer.name))
                setattr(self, sublayer.name, module)
            name = f"{connection[0].name}_residual"
            residual = config.residual_of(connection[0].kind)
            own = [s.name for s in connection] if config.block.own_norms and len(connection) > 1 else []
            setattr(self, name, ResidualConnection(residual, config, name, own, key=at(key, name)))

    def __call__(self, stream: Stream, *, context: Context, layer, key) -> tuple[Stream, Kept]:
        """The stream after the block, and what its sublayers hand back; a key turns dropout on."""
        kept = Kept(carried=context.carried, earlier_BMD=context.earlier_BMD)
        if self.config.position.enters_blocks:
            stream = self._with_position(stream, context, layer)
        stream = _named(stream, "resid_pre")
        for number, sublayers in enumerate(self.connections):
            place = Place(layer, self.config.num_layers, number, len(self.connections))
            stream, handed_back = self._connected(stream, sublayers, place, context, key)
            last = number == len(self.connections) - 1
            stream = _named(stream, "resid_post" if last else f"resid_{sublayers[0].name}")
            kept = functools.reduce(Kept.then, handed_back, kept)
        return stream, kept

    def _with_position(self, x_BLD: jax.Array, context: Context, layer) -> jax.Array:
        """The stream with what the position adds to it before this block."""
        positions, places = context.tokens.positions, context.places
        places_BL = positions if places is None else places[positions]
        addition = self.config.position.to_block(places_BL, layer, self.config.d_model, context.position_params)
        return x_BLD + addition.astype(x_BLD.dtype)

    def _connected(
        self, stream: Stream, sublayers: Sequence[Sublayer], place: Place, context: Context, key
    ) -> tuple[Stream, list[Kept]]:
        """The stream after one connection, and what each of its sublayers hands back."""
        connection = getattr(self, f"{sublayers[0].name}_residual")
        handed_back = []

        def branch(x):
            inputs = x if connection.sublayers else [x] * len(sublayers)
            answers = [self._sublayer(s, x, context, place.layer, key) for s, x in zip(sublayers, inputs, strict=True)]
            handed_back.extend(kept for _, kept in answers)
            return sum(y_BLD for y_BLD, _ in answers)

        return connection(stream, branch, place, context.tokens.valid), handed_back

    def _sublayer(self, sublayer: Sublayer, x_BLD: jax.Array, context: Context, layer, key) -> tuple[jax.Array, Kept]:
        config, name = self.config, sublayer.name
        with scope(name):
            y, kept = getattr(self, name)(named(x_BLD, "in"), context=context, key=below(key, name, "inside"))
        y = y if sublayer.factor == 1 else y * jnp.asarray(sublayer.factor, y.dtype)
        y = dropout(y, config.dropout, below(key, name))
        if config.stochastic_depth:
            rate = config.stochastic_depth / config.num_layers * jnp.asarray(layer + 1, jnp.float32)
            y = drop_sequences(y, rate, below(key, name, "depth"))
        return named(constrain(y), f"{name}.out"), kept


def _named(stream: Stream, name: str) -> Stream:
    """The stream, or each of its parts, marked."""
    leaves, treedef = jax.tree.flatten(stream)
    marked = [named(leaf, f"{name}.{part}" if part else name) for part, leaf in enumerate(leaves)]
    return jax.tree.unflatten(treedef, marked)
