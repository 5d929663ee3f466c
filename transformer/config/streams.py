"""Residual connections that keep several streams."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from transformer.config.parameters import ONES, ZEROS, Constant, Parameter
from transformer.config.residuals import PreNorm, Residual, times
from transformer.config.variant import check_positive
from transformer.functional.norms import layer_norm


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
        x = times(params["own"], x) + times(params["first"], first)
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
