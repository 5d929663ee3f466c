"""How a sublayer is connected to the residual stream: one algebra.

    y = norm_out(a · x + b ⊙ norm_branch(f(norm_in(x))))

Every placement defines which of the three norms exist and what a and b are. A connection may also keep
several streams; then `start` makes them from the embedded tokens and `end` makes one vector from them.
"""

import abc
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from transformer.core.arrays import times
from transformer.core.errors import ConfigError
from transformer.core.modules import Parameters, at
from transformer.core.parameters import OwnParams, Parameter, Xavier
from transformer.core.values import Variant
from transformer.norms.norm import Norm, NormLayer

Function = Callable[[jax.Array], jax.Array]


Norms = dict[str, Function]


Stream = Any
"""The residual stream: (B, L, D), or what `start` makes from it."""


class Depth(NamedTuple):
    """Where a connection is in the stack."""

    layer: int | jax.Array
    """Number of the block from 0; an array where the blocks are scanned."""
    num_layers: int
    """Number of blocks in the stack."""
    connection: int
    """Number of the connection in its block from 0."""
    connections: int
    """Connections in a block."""
    branches: int
    """Residual branches of the stack, whose blocks may have different numbers of them."""


PLACES = ("input", "branch", "output")
"""Where a norm of a residual connection may sit."""


class Residual(Variant):
    """A residual connection around a sublayer f."""

    norms: ClassVar[tuple[str, ...]] = ()
    """Which of "input", "branch" and "output" it normalizes."""
    final_norm: ClassVar[bool] = False
    """Whether the stream is normalized once more after the last layer."""
    embedding_norm: ClassVar[bool] = False
    """Whether the stream is normalized before the first layer."""
    inner_norms: ClassVar[bool] = False
    """Whether each sublayer normalizes what its output projection reads."""
    streams: ClassVar[int] = 1
    """Number of vectors per token in the stream."""
    begins_silent: ClassVar[bool] = False
    """Whether the initial factor on every branch is 0."""
    counts_layers: ClassVar[bool] = False
    """Whether what a block does depends on how many there are, so that the first ones alone are another model."""

    def __init_subclass__(cls, **more: Any):
        super().__init_subclass__(**more)
        norms = vars(cls).get("norms", ())
        if isinstance(norms, str | list | set) or (isinstance(norms, tuple) and not set(norms) <= set(PLACES)):
            raise ConfigError(f"{cls.__name__}.norms: {norms!r} is not a tuple of some of {', '.join(PLACES)}")

    @property
    def plain(self) -> bool:
        """Whether the stream is a single (B, L, D) array, as the embedded tokens are, from start to end."""
        return type(self).start is Residual.start and type(self).end is Residual.end

    def shares_stream(self, other: "Residual") -> bool:
        """Whether layers of both kinds fit in one stack: the same `start` and the same number of streams.

        Equal numbers alone do not mean that the vectors have the same meaning.
        """
        return type(self).start is type(other).start and self.streams == other.streams

    def of_encoder(self, encoder_layers: int, decoder_layers: int) -> "Residual":
        """What takes its place in the encoder of an encoder-decoder."""
        return self

    def parameters(self, d_model: int) -> dict[str, Parameter]:
        """The parameters it owns besides those of its norms, by name."""
        return {}

    def inner_gain(self, branches: int) -> float:
        """The factor on initial values of the value projection and of the feed-forward sublayer's input projection.

        `branches` is the number of residual branches in the stack.
        """
        return 1.0

    def output_gain(self, branches: int) -> float | None:
        """The factor on initial values of the output projections; None: as `scale_residual_init` says."""
        return None

    def embedding_gain(self, branches: int) -> float:
        """The factor on initial values of token embeddings."""
        return 1.0

    def shared_parameters(self) -> dict[str, Parameter]:
        """The parameters it owns once, for the end of the stack, by name."""
        return {}

    def start(self, x_BLD: jax.Array, num_layers: int) -> Stream:
        """The stream before the first layer, from the embedded tokens."""
        return x_BLD

    def end(self, stream: Stream, final_norm: Function, params: OwnParams) -> jax.Array:
        """The states (B, L, D) after the last layer, from the stream and the `shared_parameters`."""
        return final_norm(stream)

    @abc.abstractmethod
    def __call__(self, stream: Stream, f: Function, norms: Norms, params: OwnParams, depth: Depth) -> Stream:
        """The stream after the sublayer."""


class ResidualLayer(nnx.Module):
    """A residual connection with its norms and parameters.

    Where several `sublayers` are named, each has its own norm of the input.
    """

    def __init__(
        self,
        residual: Residual,
        norm: Norm | None,
        d_model: int,
        name: str,
        sublayers: Sequence[str] = (),
        *,
        key: jax.Array,
    ):
        self.residual, self.name, self.sublayers = residual, name, tuple(sublayers)
        names = [name for where in residual.norms for name in (self.sublayers if where == "input" else ()) or (where,)]
        norms = {} if norm is None else {name: NormLayer(norm, d_model, name, key=at(key, "norms")) for name in names}
        self.norms = nnx.Dict(norms)
        specs = residual.parameters(d_model)
        self.params = Parameters(specs, key=at(key, "params")) if specs else None

    def __call__(
        self,
        stream: Stream,
        branch: Function,
        depth: Depth,
        valid_BL: jax.Array | None = None,
        added: Function = lambda y_BLD: y_BLD,
    ) -> Stream:
        """The stream after the branch.

        Args:
          stream: before it.
          branch: a function of (B, L, D) or, where sublayers are named, of all their inputs.
          depth: where the connection is.
          valid_BL: False for padding.
          added: what is done to the branch after a norm of it, which would undo a factor, and whose bias would fill
            sequences that are skipped.
        """
        norms: Norms = {name: functools.partial(self._normalized, name, valid_BL) for name in self.residual.norms}
        if "branch" in self.norms:
            norms["branch"] = lambda y_BLD: added(self._normalized("branch", valid_BL, y_BLD))
        if self.sublayers:  # one array (sublayers, B, L, D), for a residual may multiply what the norm returns
            norms["input"] = lambda x: jnp.stack([self._normalized(name, valid_BL, x) for name in self.sublayers])
        return self.residual(stream, branch, norms, {} if self.params is None else self.params(), depth)

    def _normalized(self, name: str, valid_BL: jax.Array | None, x_BLD: jax.Array) -> jax.Array:
        if name not in self.norms:
            return x_BLD
        with jax.named_scope(self.name):
            return self.norms[name](x_BLD, valid_BL)


class SingleStream(Residual):
    """norm_out(a · x + b ⊙ norm_branch(f(norm_in(x)))); a subclass defines which norms exist, a and b."""

    def a(self, depth: Depth) -> float:
        """The factor on the stream."""
        return 1.0

    def b(self, params: OwnParams, depth: Depth) -> float | jax.Array:
        """The factor on the branch."""
        return 1.0

    def __call__(self, stream, f, norms, params, depth):
        a, b = self.a(depth), self.b(params, depth)
        branch = f(norms["input"](stream) if "input" in norms else stream)
        branch = norms["branch"](branch) if "branch" in norms else branch
        stream = stream if isinstance(a, float) and a == 1 else times(a, stream)
        stream = stream + (branch if isinstance(b, float) and b == 1 else times(b, branch))
        return norms["output"](stream) if "output" in norms else stream


@dataclass(frozen=True)
class PostNorm(SingleStream):
    """norm(x + f(x)) (Vaswani et al. 2017)."""

    name = "post"
    norms = ("output",)


@dataclass(frozen=True)
class PreNorm(SingleStream):
    """x + f(norm(x)), with a norm after the last layer (Baevski and Auli 2019; Xiong et al. 2020)."""

    name = "pre"
    norms = ("input",)
    final_norm = True


@dataclass(frozen=True)
class ScaledPreNorm(PreNorm):
    """`pre` with norms over √l in block l, so that deep layers keep their variance (Sun W. et al. 2025, equation 4)."""

    name = "scaled_pre"

    def __call__(self, stream, f, norms, params, depth):
        factor = jax.lax.rsqrt(jnp.asarray(depth.layer + 1, jnp.float32))
        return super().__call__(stream, f, {"input": lambda x: times(factor, norms["input"](x))}, params, depth)


@dataclass(frozen=True)
class SandwichNorm(SingleStream):
    """x + norm(f(norm(x))), with a norm after the last layer (Ding et al. 2021, CogView)."""

    name = "sandwich"
    norms = ("input", "branch")
    final_norm = True


@dataclass(frozen=True)
class PeriNorm(SandwichNorm):
    """`sandwich` with a norm of the embedding (Kim J. et al. 2025)."""

    name = "peri"
    embedding_norm = True


@dataclass(frozen=True)
class BranchNorm(SingleStream):
    """x + norm(f(x)), with a norm after the last layer (Liu Z. et al. 2022, Swin V2; OLMo 2)."""

    name = "branch"
    norms = ("branch",)
    final_norm = True


@dataclass(frozen=True)
class SubNorm(PreNorm):
    """`pre` with a norm before the output projection of each sublayer too (Magneto, Wang H. et al. 2022b).

    Initial values are times γ = √log n for n branches in the stack, which are 2N, or 3M in a decoder of M blocks that
    attends to a source; in the encoder of N blocks beside it γ = √(⅓ log 3M log 2N) (figure 2).
    """

    name = "sub"
    gain: float | None = None
    """γ; None: as above."""
    inner_norms = True

    def of_encoder(self, encoder_layers, decoder_layers):
        gain = math.sqrt(math.log(3 * decoder_layers) * math.log(2 * encoder_layers) / 3)
        return dataclasses.replace(self, gain=gain if self.gain is None else self.gain)

    def inner_gain(self, branches):
        return math.sqrt(math.log(max(branches, 2))) if self.gain is None else self.gain

    def output_gain(self, branches):
        return self.inner_gain(branches)


@dataclass(frozen=True)
class NoNormResidual(SingleStream):
    """x + f(x), without any norm."""

    name = "no_norm"


@dataclass(frozen=True)
class DeepNorm(SingleStream):
    """norm(αx + f(x)), initial values times β (Wang H. et al. 2022, figure 2).

    For N blocks of two sublayers α = (2N)^¼ and β = (8N)^-¼, of three (3N)^¼ and (12N)^-¼. In an encoder of N blocks
    beside a decoder of M, α = 0.81 (N⁴M)^(1/16) and β = 0.87 (N⁴M)^(-1/16).
    """

    name = "deepnorm"
    alpha: float | None = None
    """α; None: as above."""
    beta: float | None = None
    """β; None: as above."""
    norms = ("output",)

    @property
    def counts_layers(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.alpha is None

    def recipe(self, d_model):
        return {"model.initializer": Xavier()}  # figure 2

    def of_encoder(self, encoder_layers, decoder_layers):
        size = float(encoder_layers**4 * decoder_layers) ** (1 / 16)
        alpha = 0.81 * size if self.alpha is None else self.alpha
        return dataclasses.replace(self, alpha=alpha, beta=0.87 / size if self.beta is None else self.beta)

    def a(self, depth):
        return float(depth.branches) ** 0.25 if self.alpha is None else self.alpha

    def inner_gain(self, branches):
        return (4 * branches) ** -0.25 if self.beta is None else self.beta

    def output_gain(self, branches):
        return self.inner_gain(branches)
