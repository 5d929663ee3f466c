"""Parts of attention that mix inputs or projections of neighbouring tokens."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from transformer.core.arrays import dense
from transformer.core.checks import check_positive
from transformer.core.errors import ConfigError
from transformer.core.parameters import ZEROS, FirstRow, Parameter
from transformer.functional.masks import Tokens
from transformer.mixers.attention.part import Part
from transformer.mixers.local import canon_kernel, convolve_latest
from transformer.mixers.mixer import Context


class LocalMixing(Part):
    """A causal convolution of the latest tokens, `width` of them."""

    width: int

    def __post_init__(self):
        check_positive(self, "width")

    def check(self, attention, model):
        if attention.sharing is not None and not attention.sharing.own_keys_values:
            raise ConfigError(f"mixer.sharing: layers without keys of their own keep nothing for {self}")

    def span(self):
        return self.width

    def convolved(
        self, x_BLX: jax.Array, kernel_WX: jax.Array, context: Context, read: Tokens
    ) -> tuple[jax.Array, jax.Array | None]:
        """(the convolution of features of the tokens read, the features in the slots of the memory with these)."""
        past_BSX = None if context.writing is None else context.writing.memory.convolved[self.name]
        return convolve_latest(x_BLX, kernel_WX, past_BSX, context, read)


@dataclass(frozen=True)
class ShortConvolution(LocalMixing):
    """A causal convolution of queries, keys and values (Primer, So et al. 2021).

    Initially it is the identity; in the authors' code a token has half a weight, and each before it a half by `width`.
    """

    name = "short_convolution"
    width: int = 3
    """Tokens spanned."""

    def parameters(self, attention, model):
        width = sum(attention.shape(model).widths.values())
        return {"kernel": Parameter((self.width, width), FirstRow(), decay=False)}

    def convolve(self, projected_BLX, context, read, params):
        return self.convolved(projected_BLX, params["kernel"], context, read)


@dataclass(frozen=True)
class CanonA(LocalMixing):
    """The input of attention and a causal convolution of it: x + conv(x) (Allen-Zhu 2025, Canon layers at A)."""

    name = "canon_a"
    width: int = 4
    """Tokens spanned."""

    def parameters(self, attention, model):
        return {"kernel": canon_kernel(self.width, model.d_model)}

    def enter(self, x_BLD, context, read, params):
        mixed, kept = self.convolved(x_BLD, params["kernel"], context, read)
        return x_BLD + mixed, kept


@dataclass(frozen=True)
class CanonB(LocalMixing):
    """Queries, keys and values and a causal convolution of them: x + conv(x) (Allen-Zhu 2025, Canon layers at B)."""

    name = "canon_b"
    width: int = 4
    """Tokens spanned."""

    def parameters(self, attention, model):
        return {"kernel": canon_kernel(self.width, sum(attention.shape(model).widths.values()))}

    def convolve(self, projected_BLX, context, read, params):
        mixed, kept = self.convolved(projected_BLX, params["kernel"], context, read)
        return projected_BLX + mixed, kept


@dataclass(frozen=True)
class Smear(LocalMixing):
    """The input of attention and some of that of the token before: x_t + λ σ(x_t W) x_(t-1), with λ at first 0.

    (github.com/KellerJordan/modded-nanogpt, 2025, on the embedding; one gate a token.) A gated token shift (Peng et al.
    2023, RWKV).
    """

    name = "smear"
    features: int = 12
    """Features of x_t, from the first, that W reads."""
    width = 2

    def __post_init__(self):
        check_positive(self, "features")

    def check(self, attention, model):
        super().check(attention, model)
        if self.features > model.d_model:
            raise ConfigError(f"smear.features: {self.features} are more than d_model {model.d_model}")

    def parameters(self, attention, model):
        return {"gate": Parameter((self.features, 1), ZEROS, decay=False), "factor": Parameter((), ZEROS)}

    def enter(self, x_BLD, context, read, params):
        before, kept = self.convolved(x_BLD, jnp.array([[0.0], [1.0]], jnp.float32), context, read)
        gate_BL1 = params["factor"] * jax.nn.sigmoid(dense(x_BLD[..., : self.features], params["gate"], jnp.float32))
        return x_BLD + gate_BL1.astype(x_BLD.dtype) * before, kept
