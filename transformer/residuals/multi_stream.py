"""Residual connections that keep several streams."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from transformer.core.arrays import times
from transformer.core.checks import check_positive
from transformer.core.parameters import ONES, ZEROS, Constant, FanIn, Parameter
from transformer.norms.norm import layer_norm, rms_norm
from transformer.residuals.residual import PreNorm, Residual


@dataclass(frozen=True)
class ResiDual(Residual):
    """A post-norm stream with a second stream, the sum of all branches, which is normalized at the end.

    x ← norm(x + f(x)), d ← d + f(x), and the result is x + norm(d) (Xie S. et al. 2023, equation 2).
    """

    name = "residual"
    norms = ("output",)
    final_norm = True
    streams: ClassVar[int] = 2

    def start(self, x_BLD, num_layers):
        return x_BLD, x_BLD

    def end(self, stream, final_norm, params):
        x, dual = stream
        return x + final_norm(dual)

    def __call__(self, stream, f, norms, params, depth):
        x, dual = stream
        branch = f(x)
        return norms["output"](x + branch), dual + branch


@dataclass(frozen=True)
class EmbeddingSkip(PreNorm):
    """`pre` with λ₁x + λ₂x₀ in place of x, x₀ the embedded tokens (github.com/KellerJordan/modded-nanogpt, 2024)."""

    name = "embedding_skip"
    begins_as = "pre"
    streams: ClassVar[int] = 2

    def parameters(self, d_model):
        return {"own": Parameter((), ONES), "first": Parameter((), ZEROS)}

    def start(self, x_BLD, num_layers):
        return x_BLD, x_BLD

    def end(self, stream, final_norm, params):
        return final_norm(stream[0])

    def __call__(self, stream, f, norms, params, depth):
        x, first = stream
        x = times(params["own"], x) + times(params["first"], first)
        return super().__call__(x, f, norms, params, depth), first


@dataclass(frozen=True)
class UNet(PreNorm):
    """`pre` with skip connections as in a U-Net: block N - 1 - i adds the output of block i to its input.

    (U-ViT, Bao et al. 2022, figure 2b, "add"; github.com/KellerJordan/modded-nanogpt, 2024.) N blocks, from 0.
    """

    name = "u_net"
    streams: ClassVar[int] = 2
    counts_layers = True

    def start(self, x_BLD, num_layers):
        return x_BLD, jnp.zeros((max(num_layers // 2, 1), *x_BLD.shape), x_BLD.dtype)

    def end(self, stream, final_norm, params):
        return final_norm(stream[0])

    def __call__(self, stream, f, norms, params, depth):
        x, left = stream
        half, mirror = depth.num_layers // 2, depth.num_layers - 1 - depth.layer
        if depth.connection == 0:
            added = left[jnp.clip(mirror, 0, len(left) - 1)]
            x = x + jnp.where(mirror < half, added, jnp.zeros_like(added))
        x = super().__call__(x, f, norms, params, depth)
        if depth.connection == depth.connections - 1:
            row = jnp.clip(depth.layer, 0, len(left) - 1)
            left = left.at[row].set(jnp.where(depth.layer < half, x, left[row]))
        return x, left


@dataclass(frozen=True)
class Backout(PreNorm):
    """`pre` whose final states are x - λ·(input of the middle block) (github.com/KellerJordan/modded-nanogpt, 2025).

    So later layers can remove what served the first half only as context.
    """

    initial: float = 0.5
    """Initial value of λ, which is trained."""
    streams: ClassVar[int] = 2
    counts_layers = True

    def shared_parameters(self):
        return {"factor": Parameter((), Constant(self.initial))}

    def start(self, x_BLD, num_layers):
        return x_BLD, x_BLD

    def end(self, stream, final_norm, params):
        x, middle = stream
        return final_norm(x - times(params["factor"], middle))

    def __call__(self, stream, f, norms, params, depth):
        x, middle = stream
        if depth.connection == 0:
            middle = jnp.where(depth.layer == depth.num_layers // 2, x, middle)
        return super().__call__(x, f, norms, params, depth), middle


@dataclass(frozen=True)
class HyperConnections(Residual):
    """n streams, mixed before and after every sublayer by trained matrices (Zhu D. et al. 2024).

    The sublayer reads Σ αᵢ xᵢ, stream i becomes Σⱼ Aⱼᵢ xⱼ + βᵢ f(norm(·)), and the result is the sum of
    all (equations 2 to 5). Initially connection k reads only stream k modulo n and writes to all, which
    is `pre`. `dynamic` adds to each matrix a tanh of a linear map of the normalized streams, times a
    trained factor (equations 10 to 13). The paper also scales initial output matrices by √n, without saying which way.
    """

    name = "hyper"
    begins_as = "pre"
    streams: int = 2  # pyright: ignore[reportIncompatibleVariableOverride]
    """n: number of streams."""
    dynamic: bool = True
    """Whether the matrices depend on the tokens."""
    norms = ("input",)
    final_norm = True

    def __post_init__(self):
        check_positive(self, "streams")

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
            "dynamic_write": Parameter((d_model,), ZEROS, decay=True),
            "dynamic_mix_factor": Parameter((), Constant(0.01)),
            "dynamic_write_factor": Parameter((), Constant(0.01)),
        }

    def start(self, x_BLD, num_layers):
        return jnp.repeat(x_BLD[:, :, None], self.streams, axis=2)

    def end(self, stream, final_norm, params):
        return final_norm(stream.sum(2))

    def __call__(self, stream, f, norms, params, depth):
        n = self.streams
        x_BLnD = stream.astype(jnp.float32)
        own = jax.nn.one_hot((depth.layer * depth.connections + depth.connection) % n, n, dtype=jnp.float32)
        # The parameters are added to the initial matrices, which depend on the place.
        mix = jnp.concatenate([(own + params["read"])[:, None], jnp.eye(n, dtype=jnp.float32) + params["mix"]], 1)
        write = 1 + params["write"]
        if self.dynamic:
            normed = layer_norm(x_BLnD)
            mix = mix + params["dynamic_mix_factor"] * jnp.tanh(normed @ params["dynamic_mix"])
            write = write + params["dynamic_write_factor"] * jnp.tanh(normed @ params["dynamic_write"])
        mixed = jnp.einsum("...nd,...nm->...md", x_BLnD, jnp.broadcast_to(mix, (*stream.shape[:2], n, n + 1)))
        branch = f(norms["input"](mixed[:, :, 0].astype(stream.dtype))).astype(jnp.float32)
        return (mixed[:, :, 1:] + jnp.expand_dims(write, -1) * branch[:, :, None]).astype(stream.dtype)


@dataclass(frozen=True)
class ManifoldHyperConnections(Residual):
    """`hyper` whose mixing matrices are doubly stochastic, so that streams keep their size (mHC, Xie Z. et al. 2025).

    The sublayer reads Σ σ(rᵢ) xᵢ, and stream i becomes Σⱼ Aᵢⱼ xⱼ + 2σ(wᵢ) f(norm(·)). A is exp(a) with columns and rows
    divided by their sums in turn (Sinkhorn and Knopp 1967). r, w and a are trained numbers plus a trained factor
    times a linear map of the normalized streams of the token. Initially connection k reads mostly stream k modulo n,
    as in `hyper`, and A is nearly the identity.
    """

    name = "manifold_hyper"
    streams: int = 2  # pyright: ignore[reportIncompatibleVariableOverride]
    """n: number of streams."""
    iterations: int = 20
    """How often columns and rows are divided by their sums."""
    norms = ("input",)
    final_norm = True
    sharpness: ClassVar[float] = 4.0
    """Half the initial distance of r, and of a, between the stream's own entry and the others."""

    def __post_init__(self):
        check_positive(self, "streams", "iterations")

    def parameters(self, d_model):
        sizes = {"read": self.streams, "write": self.streams, "mix": self.streams**2}
        static = {name: Parameter((size,), ZEROS) for name, size in sizes.items()}
        factors = {f"{name}_factor": Parameter((), Constant(0.01)) for name in sizes}
        return static | factors | {"dynamic": Parameter((self.streams * d_model, sum(sizes.values())), FanIn())}

    def start(self, x_BLD, num_layers):
        return jnp.repeat(x_BLD[:, :, None], self.streams, axis=2)

    def end(self, stream, final_norm, params):
        return final_norm(stream.sum(2))

    def __call__(self, stream, f, norms, params, depth):
        n = self.streams
        x_BLnD = stream.astype(jnp.float32)
        dynamic = rms_norm(x_BLnD.reshape(*stream.shape[:2], -1)) @ params["dynamic"]
        read, write, mix = (
            params[name] + params[f"{name}_factor"] * part
            for name, part in zip(("read", "write", "mix"), jnp.split(dynamic, [n, 2 * n], -1), strict=True)
        )
        own = jax.nn.one_hot((depth.layer * depth.connections + depth.connection) % n, n, dtype=jnp.float32)
        read = jax.nn.sigmoid(read + self.sharpness * (2 * own - 1))
        own_mix = jnp.eye(n, dtype=jnp.float32)
        mix = self._doubly_stochastic(mix.reshape(*mix.shape[:-1], n, n) + 2 * self.sharpness * own_mix)
        seen = jnp.einsum("bln,blnd->bld", read, x_BLnD).astype(stream.dtype)
        branch = f(norms["input"](seen)).astype(jnp.float32)
        mixed = jnp.einsum("blnm,blmd->blnd", mix, x_BLnD)
        return (mixed + 2 * jax.nn.sigmoid(write)[..., None] * branch[:, :, None]).astype(stream.dtype)

    def _doubly_stochastic(self, logits: jax.Array) -> jax.Array:
        """exp(logits) with columns, then rows, divided by their sums, in turn."""

        def divided(log, _):
            log = log - jax.nn.logsumexp(log, -2, keepdims=True)
            return log - jax.nn.logsumexp(log, -1, keepdims=True), None

        return jnp.exp(jax.lax.scan(divided, logits, length=self.iterations)[0])
