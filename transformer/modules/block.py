"""A block: its sublayers, each in a residual connection."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from transformer.config.blocks import Sublayer
from transformer.config.model import ModelConfig
from transformer.config.residuals import Place, Residual, Stream
from transformer.functional.devices import constrain
from transformer.functional.dropout import drop_sequences, dropout
from transformer.functional.names import named, scope
from transformer.modules.attention import CrossAttention
from transformer.modules.context import Carried, Context, Kept
from transformer.modules.experts import make_feed_forward
from transformer.modules.fourier import FourierMixing
from transformer.modules.norm import NormLayer
from transformer.modules.parameter import Parameters, at, below
from transformer.modules.self_attention import Attention

SUBLAYERS: dict[str, Callable[..., Any]] = {
    "attention": Attention,
    "cross_attention": CrossAttention,
    "feed_forward": make_feed_forward,
    "fourier": FourierMixing,
}
_CROSS = (Sublayer("cross_attention", "cross_attention"),)


class ResidualConnection(nnx.Module):
    """A residual connection with the norms and parameters it asks for.

    Where several `sublayers` are named, each has a norm of the input by itself.
    """

    def __init__(
        self, residual: Residual, config: ModelConfig, name: str, sublayers: Sequence[str] = (), *, key: jax.Array
    ):
        self.residual, self.name, self.sublayers = residual, name, tuple(sublayers)
        names = [name for where in residual.norms for name in (self.sublayers if where == "input" else ()) or (where,)]
        norms = {name: NormLayer(config.norm, config.d_model, name, key=at(key, "norms")) for name in names}
        self.norms = nnx.Dict(norms)
        self.params = Parameters(residual.parameters(config.d_model), key=at(key, "params"))

    def __call__(
        self, stream: Stream, sublayer: Callable[[jax.Array], tuple[jax.Array, Any]], place: Place, valid_BL=None
    ) -> tuple[Stream, Any]:
        """The stream after the sublayer, and what else the sublayer returned.

        With norms for several sublayers it is called with their inputs, (sublayers, B, L, D).
        """
        rest: Any = None

        def f(x):
            nonlocal rest
            y, rest = sublayer(x)
            return y

        def normalizer(norm):
            def normalize(x):
                with scope(self.name):
                    return norm(x, valid_BL)

            return normalize

        norms = {where: normalizer(norm) for where, norm in dict(self.norms).items()}
        own = [norms.pop(name) for name in self.sublayers]
        if own:
            norms["input"] = lambda x: jnp.stack([norm(x) for norm in own])
        return self.residual(stream, f, norms, self.params(), place), rest


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

    def __call__(
        self, stream: Stream, *, context: Context, carried: Carried | None = None, earlier_BMD=None, layer, key
    ) -> tuple[Stream, Kept]:
        """The stream after the block, and what its sublayers hand back; a key turns dropout on."""
        kept = Kept(carried=Carried() if carried is None else carried, earlier_BMD=earlier_BMD)
        context = context._replace(carried=kept.carried, first=layer == 0, earlier_BMD=earlier_BMD)
        stream = _named(stream, "resid_pre")
        for number, connection in enumerate(self.connections):
            place = Place(layer, self.config.num_layers, number, len(self.connections))

            residual = getattr(self, f"{connection[0].name}_residual")

            def run(x, connection=connection, residual=residual):
                inputs = x if residual.sublayers else [x] * len(connection)
                outputs = [self._sublayer(s, x, context, layer, key) for s, x in zip(connection, inputs, strict=True)]
                return sum(y for y, _ in outputs), [k for _, k in outputs]

            stream, handed_back = residual(stream, run, place, context.tokens.valid)
            last = number == len(self.connections) - 1
            stream = _named(stream, "resid_post" if last else f"resid_{connection[0].name}")
            for one in handed_back:
                kept = Kept(
                    kept.past if one.past is None else one.past,
                    kept.carried if one.carried is None else one.carried,
                    kept.penalty + one.penalty,
                    kept.earlier_BMD if one.earlier_BMD is None else one.earlier_BMD,
                )
        return stream, kept

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
