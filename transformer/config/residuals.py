"""How a sublayer is connected to the residual stream: one algebra.

    y = norm_out(a · x + b ⊙ norm_branch(f(norm_in(x))))

Every placement says which of the three norms exist and what a and b are. A connection may also keep
several streams; then `start` makes them of the embedded tokens and `end` one vector of them.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from transformer.config.parameters import ONES, ZEROS, Constant, Parameter
from transformer.config.variant import ConfigError, Variant
from transformer.functional.norms import layer_norm

Function = Callable[[jax.Array], jax.Array]
Norms = dict[str, Function]
Params = dict[str, jax.Array]
Stream = Any
"""(B, L, D), or what `start` makes of it."""


class Place(NamedTuple):
    """Where in the stack a connection stands."""

    layer: int | jax.Array
    """Number of the block from 0; an array where the blocks are scanned."""
    num_layers: int
    connection: int
    """Number of the connection in its block from 0."""
    connections: int
    """Connections in a block."""


class Residual(Variant, abc.ABC):
    """A residual connection around a sublayer f."""

    norms: ClassVar[tuple[str, ...]] = ()
    """Which of "input", "branch" and "output" are normalized."""
    final_norm: ClassVar[bool] = False
    """Whether the stream is normalized once more after the last layer."""
    embedding_norm: ClassVar[bool] = False
    """Whether the stream is normalized before the first layer."""
    streams: ClassVar[int] = 1
    """Vectors a token has in the stream."""
    begins_silent: ClassVar[bool] = False
    """Whether every branch begins with a factor of 0."""

    def parameters(self, d_model: int) -> dict[str, Parameter]:
        """The parameters it owns besides those of its norms, by name."""
        return {}

    def inner_gain(self, branches: int) -> float:
        """The factor on initial values of the value projection and of what leads into the feed-forward sublayer.

        `branches` is the number of residual branches of the stack.
        """
        return 1.0

    def output_gain(self, branches: int) -> float | None:
        """The factor on initial values of what leads back to the stream; None: as `scale_residual_init` says."""
        return None

    def start(self, x_BLD: jax.Array, num_layers: int) -> Stream:
        return x_BLD

    def end(self, stream: Stream, final_norm: Function) -> jax.Array:
        """What is read off the stream, normalized once more."""
        return final_norm(stream)

    @abc.abstractmethod
    def __call__(self, stream: Stream, f: Function, norms: Norms, params: Params, place: Place) -> Stream:
        """The stream after the sublayer."""


class Algebra(Residual):
    """norm_out(a · x + b ⊙ norm_branch(f(norm_in(x)))); a subclass says which norms exist, and a and b."""

    def a(self, place: Place) -> float:
        return 1.0

    def b(self, params: Params, place: Place) -> float | jax.Array:
        return 1.0

    def __call__(self, stream, f, norms, params, place):
        branch = f(norms["input"](stream) if "input" in norms else stream)
        branch = norms["branch"](branch) if "branch" in norms else branch
        stream = _times(self.a(place), stream) + _times(self.b(params, place), branch)
        return norms["output"](stream) if "output" in norms else stream


def _times(factor: float | jax.Array, x: jax.Array) -> jax.Array:
    if isinstance(factor, float):
        return x if factor == 1.0 else x * jnp.asarray(factor, x.dtype)
    return (x.astype(jnp.float32) * factor).astype(x.dtype)


@dataclass(frozen=True)
class PostNorm(Algebra):
    """norm(x + f(x)) (Vaswani et al. 2017)."""

    name = "post"
    norms = ("output",)


@dataclass(frozen=True)
class PreNorm(Algebra):
    """x + f(norm(x)), and a norm after the last layer (Baevski and Auli 2019; Xiong et al. 2020)."""

    name = "pre"
    norms = ("input",)
    final_norm = True


@dataclass(frozen=True)
class ScaledPreNorm(PreNorm):
    """`pre` with the norm of block l over √l: deep layers keep their variance (Sun W. et al. 2025, equation 4)."""

    name = "scaled_pre"

    def __call__(self, stream, f, norms, params, place):
        factor = jax.lax.rsqrt(jnp.asarray(place.layer + 1, jnp.float32))
        return super().__call__(stream, f, {"input": lambda x: _times(factor, norms["input"](x))}, params, place)


@dataclass(frozen=True)
class SandwichNorm(Algebra):
    """x + norm(f(norm(x))), and a norm after the last layer (Ding et al. 2021, CogView)."""

    name = "sandwich"
    norms = ("input", "branch")
    final_norm = True


@dataclass(frozen=True)
class PeriNorm(SandwichNorm):
    """`sandwich`, and a norm of the embedding (Kim J. et al. 2025)."""

    name = "peri"
    embedding_norm = True


@dataclass(frozen=True)
class BranchNorm(Algebra):
    """x + norm(f(x)), and a norm after the last layer (Liu Z. et al. 2022, Swin V2; OLMo 2)."""

    name = "branch"
    norms = ("branch",)
    final_norm = True


@dataclass(frozen=True)
class NoNormResidual(Algebra):
    """x + f(x), no norm anywhere."""

    name = "none"


@dataclass(frozen=True)
class DeepNorm(Algebra):
    """norm(αx + f(x)), initial values times β (Wang H. et al. 2022, figure 2).

    Of N blocks of two sublayers α = (2N)^¼ and β = (8N)^-¼, of three (3N)^¼ and (12N)^-¼. The encoder of an
    encoder-decoder has others there: give them.
    """

    name = "deepnorm"
    alpha: float | None = None
    beta: float | None = None
    norms = ("output",)

    def a(self, place):
        return float(place.connections * place.num_layers) ** 0.25 if self.alpha is None else self.alpha

    def inner_gain(self, branches):
        return (4 * branches) ** -0.25 if self.beta is None else self.beta

    def output_gain(self, branches):
        return self.inner_gain(branches)


@dataclass(frozen=True)
class ReZero(Algebra):
    """x + b · f(x), one number b a connection that begins at 0 (Bachlechner et al. 2020, equation 2).

    With `placement=pre`, ReZero + LayerNorm of Narang et al. 2021, and SkipInit (De and Smith 2020) at any `initial`.
    """

    initial: float = 0.0
    """Where b begins."""
    placement: Residual = NoNormResidual()
    """Where the norms sit."""
    per_feature: ClassVar[bool] = False

    def __post_init__(self):
        if type(self.placement).__call__ is not Algebra.__call__ or "branch" in self.placement.parameters(1):
            raise ConfigError(f"{self.name}.placement: {self.placement} has no plain branch; use pre, post or none")

    @property
    def begins_silent(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.initial == 0 and "output" not in self.norms

    @property
    def norms(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.placement.norms

    @property
    def final_norm(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.placement.final_norm

    @property
    def embedding_norm(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.placement.embedding_norm

    def parameters(self, d_model):
        return {"branch": Parameter((d_model,) if self.per_feature else (), Constant(self.initial))}

    def inner_gain(self, branches):
        return self.placement.inner_gain(branches)

    def output_gain(self, branches):
        return self.placement.output_gain(branches)

    def a(self, place):
        assert isinstance(self.placement, Algebra)
        return self.placement.a(place)

    def b(self, params, place):
        return params["branch"]


@dataclass(frozen=True)
class LayerScale(ReZero):
    """x + b ⊙ f(norm(x)), one number b a feature (Touvron et al. 2021, equation 4)."""

    initial: float = 1e-4
    placement: Residual = PreNorm()
    per_feature = True


@dataclass(frozen=True)
class Fixup(Algebra):
    """x + b · f(x + c) without norms; branches begin at 0, what is inside them over √branches (Zhang H. et al. 2019).

    The scalars b and c begin at 1 and 0. Every branch has two matrices in a row: m = 2 in L^(-1/(2m-2)).
    """

    name = "fixup"

    def parameters(self, d_model):
        return {"multiplier": Parameter((), ONES), "bias": Parameter((), ZEROS)}

    def inner_gain(self, branches):
        return branches**-0.5

    def output_gain(self, branches):
        return 0.0

    def b(self, params, place):
        return params["multiplier"]

    def __call__(self, stream, f, norms, params, place):
        return super().__call__(stream, lambda x: f(x + params["bias"].astype(x.dtype)), norms, params, place)


@dataclass(frozen=True)
class ResiDual(Residual):
    """A post-norm stream, and beside it the sum of all branches, which is normalized at the end.

    x ← norm(x + f(x)), d ← d + f(x), and x + norm(d) is read off (Xie S. et al. 2023, equation 2).
    """

    name = "residual"
    norms = ("output",)
    final_norm = True
    streams: ClassVar[int] = 2

    def start(self, x_BLD, num_layers):
        return x_BLD, x_BLD

    def end(self, stream, final_norm):
        x, dual = stream
        return x + final_norm(dual)

    def __call__(self, stream, f, norms, params, place):
        x, dual = stream
        branch = f(x)
        return norms["output"](x + branch), dual + branch


@dataclass(frozen=True)
class EmbeddingSkip(PreNorm):
    """`pre`, and every sublayer begins from λ₁x + λ₂x₀, x₀ the embedded tokens (modded-nanogpt, 2024)."""

    name = "embedding_skip"
    begins_as = "pre"
    streams: ClassVar[int] = 2

    def parameters(self, d_model):
        return {"own": Parameter((), ONES), "first": Parameter((), ZEROS)}

    def start(self, x_BLD, num_layers):
        return x_BLD, x_BLD

    def end(self, stream, final_norm):
        return final_norm(stream[0])

    def __call__(self, stream, f, norms, params, place):
        x, first = stream
        x = _times(params["own"], x) + _times(params["first"], first)
        return super().__call__(x, f, norms, params, place), first


@dataclass(frozen=True)
class UNet(PreNorm):
    """`pre`, and the blocks of the last half begin with what those of the first half ended with added, in reverse.

    (U-ViT, Bao et al. 2022, figure 2b, "add"; modded-nanogpt, 2024.)
    """

    name = "u_net"
    streams: ClassVar[int] = 2

    def start(self, x_BLD, num_layers):
        return x_BLD, jnp.zeros((max(num_layers // 2, 1), *x_BLD.shape), x_BLD.dtype)

    def end(self, stream, final_norm):
        return final_norm(stream[0])

    def __call__(self, stream, f, norms, params, place):
        x, left = stream
        half, mirror = place.num_layers // 2, place.num_layers - 1 - place.layer
        if place.connection == 0:
            added = left[jnp.clip(mirror, 0, len(left) - 1)]
            x = x + jnp.where(mirror < half, added, jnp.zeros_like(added))
        x = super().__call__(x, f, norms, params, place)
        if place.connection == place.connections - 1:
            row = jnp.clip(place.layer, 0, len(left) - 1)
            left = left.at[row].set(jnp.where(place.layer < half, x, left[row]))
        return x, left


@dataclass(frozen=True)
class HyperConnections(Residual):
    """n streams, mixed before and after every sublayer by trained matrices (Zhu D. et al. 2024).

    The sublayer reads Σ αᵢ xᵢ, stream i becomes Σⱼ Aⱼᵢ xⱼ + βᵢ f(norm(·)), and the sum of all is read
    off (equations 2 to 5). At the beginning connection k reads stream k modulo n alone and writes to
    all, which is `pre`. `dynamic` adds to each matrix what a small linear map of the normalized
    streams says (equations 10 to 13).
    """

    name = "hyper"
    begins_as = "pre"
    streams: int = 2  # pyright: ignore[reportIncompatibleVariableOverride]
    dynamic: bool = True
    norms = ("input",)
    final_norm = True

    def __post_init__(self):
        if self.streams < 1:
            raise ConfigError(f"hyper.streams: {self.streams} is not a positive number")

    def parameters(self, d_model):
        n = self.streams
        static = {
            "read": Parameter((n,), ZEROS),
            "mix": Parameter((n, n), ZEROS, decay=False),
            "write": Parameter((n,), ZEROS),
        }
        if not self.dynamic:
            return static
        return static | {
            "dynamic_mix": Parameter((d_model, n + 1), ZEROS),
            "dynamic_write": Parameter((d_model,), ZEROS),
            "dynamic_mix_factor": Parameter((), Constant(0.01)),
            "dynamic_write_factor": Parameter((), Constant(0.01)),
        }

    def start(self, x_BLD, num_layers):
        return jnp.repeat(x_BLD[:, :, None], self.streams, axis=2)

    def end(self, stream, final_norm):
        return final_norm(stream.sum(2))

    def __call__(self, stream, f, norms, params, place):
        n = self.streams
        x_BLnD = stream.astype(jnp.float32)
        own = jax.nn.one_hot((place.layer * place.connections + place.connection) % n, n)
        # The parameters are what is added to the first matrices, which depend on the place.
        mix = jnp.concatenate([(own + params["read"])[:, None], jnp.eye(n) + params["mix"]], 1)
        write = 1 + params["write"]
        if self.dynamic:
            normed = layer_norm(x_BLnD)
            mix = mix + params["dynamic_mix_factor"] * jnp.tanh(normed @ params["dynamic_mix"])
            write = write + params["dynamic_write_factor"] * jnp.tanh(normed @ params["dynamic_write"])
        mixed = jnp.einsum("...nd,...nm->...md", x_BLnD, jnp.broadcast_to(mix, (*stream.shape[:2], n, n + 1)))
        branch = f(norms["input"](mixed[:, :, 0].astype(stream.dtype))).astype(jnp.float32)
        return (mixed[:, :, 1:] + jnp.expand_dims(write, -1) * branch[:, :, None]).astype(stream.dtype)
