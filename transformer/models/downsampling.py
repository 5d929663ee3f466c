"""Downsampling: layers of a stack that see a shortened sequence, or trained vectors that read it."""

import abc
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from einops import rearrange

from transformer.core.arrays import dense
from transformer.core.checks import check_positive
from transformer.core.errors import ConfigError
from transformer.core.parameters import FanIn, Normal, OwnParams, Parameter
from transformer.core.values import Variant
from transformer.functional.attention import attention
from transformer.functional.masks import Padding, Tokens
from transformer.norms.norm import layer_norm
from transformer.residuals.residual import Stream

Answer = tuple[Stream, jax.Array, Any]
"""(stream after some layers, penalty they add to the loss, segment memory)."""


Run = Callable[[Stream, Tokens, range], Answer]
"""Runs some layers of a stack on a stream of tokens."""


class Downsampling(Variant):
    """How layers of a stack see fewer vectors than there are tokens."""

    mixes_tokens: ClassVar[bool] = True
    """Packed documents of one row see each other."""

    @property
    def condenses(self) -> bool:
        """Whether layers see vectors that were read off all tokens, without their order."""
        return False

    def parameters(self, d_model: int) -> dict[str, Parameter]:
        """The parameters it owns, by name."""
        return {}

    def check(self, num_layers: int, period: int, d_model: int) -> None:
        """Raise `ConfigError` where it does not fit the width, or layers whose kinds repeat after `period`."""

    @abc.abstractmethod
    def __call__(
        self, run: Run, stream: Stream, tokens: Tokens, layers: range, *, causal: bool, params: OwnParams
    ) -> Answer:
        """Runs these layers in order."""


@dataclass(frozen=True)
class Hourglass(Downsampling):
    """The middle layers see means of `factor` tokens; their outputs are added back to each token.

    (Nawrot et al. 2021, algorithm 1, with means and repetition; in an encoder without the shift, as Funnel, Dai Z.
    et al. 2020.) Positions and windows of the middle layers count means, which `middle` may shorten further. Decoding
    caches the tokens only and reads all of them again for each new one.
    """

    factor: int = 2
    """Tokens per mean, at least 2."""
    first: int = 1
    """Number of first layers, which see every token."""
    last: int = 1
    """Number of last layers, which see every token."""
    middle: Downsampling | None = None
    """How the layers between them see fewer still; None: as many."""

    def __post_init__(self):
        if self.factor < 2:
            raise ConfigError(f"hourglass.factor: {self.factor} shortens nothing; use 2, or none")
        if self.first < 0 or self.last < 0:
            raise ConfigError(f"hourglass: {self.first} first and {self.last} last are not numbers of layers")

    @property
    def condenses(self):
        return self.middle is not None and self.middle.condenses

    def parameters(self, d_model):
        return {} if self.middle is None else self.middle.parameters(d_model)

    def check(self, num_layers, period, d_model):
        if self.first + self.last >= num_layers:
            raise ConfigError(
                f"model.downsampling: {self} leaves none of {num_layers} layers between the {self.first} first and "
                f"the {self.last} last"
            )
        if self.first % period or self.last % period:
            raise ConfigError(
                f"model.downsampling: {self.first} first and {self.last} last layers are not whole turns of {period}"
            )
        if self.middle is not None:
            self.middle.check(num_layers - self.first - self.last, period, d_model)

    def __call__(self, run, stream, tokens, layers, *, causal, params):
        end = len(layers) - self.last
        x_BLD, penalty, _ = run(stream, tokens, layers[: self.first])
        short_BXD, places = shortened(x_BLD, tokens, self.factor, causal=causal)
        middle = layers[self.first : end]
        how = {} if self.middle is None else {"causal": causal, "params": params}
        inside = run if self.middle is None else functools.partial(self.middle, run)
        short_BXD, between, _ = inside(short_BXD, places, middle, **how)
        x_BLD = x_BLD + lengthened(short_BXD, self.factor, tokens.length)
        x_BLD, behind, _ = run(x_BLD, tokens, layers[end:])
        return x_BLD, penalty + between + behind, None


@dataclass(frozen=True)
class Latents(Downsampling):
    """All layers see `count` trained vectors that attend to the tokens; then the tokens attend to these.

    (Perceiver IO, Jaegle et al. 2021, figure 2.) What is read is added to the vectors and, at the end, to the embedded
    tokens. Both attentions normalize what they read, without gains. Positions of the layers count the vectors; the
    tokens' own have to be in their embedding.
    """

    count: int = 32
    """Number of trained vectors."""
    num_heads: int = 4
    """Heads of both attentions, a divisor of d_model."""

    @property
    def condenses(self):
        return True

    def __post_init__(self):
        check_positive(self, "count", "num_heads")

    def check(self, num_layers, period, d_model):
        if d_model % self.num_heads:
            raise ConfigError(f"latents.num_heads: {self.num_heads} heads do not divide d_model {d_model}")

    def parameters(self, d_model):
        square = Parameter((d_model, d_model), FanIn())
        matrices = [f"{way}_{role}" for way in ("read", "write") for role in ("query", "key", "value", "out")]
        return {"vectors": Parameter((self.count, d_model), Normal(0.02)), **dict.fromkeys(matrices, square)}

    def __call__(self, run, stream, tokens, layers, *, causal, params):
        vectors_BCD = jnp.broadcast_to(params["vectors"].astype(stream.dtype), (len(stream), *params["vectors"].shape))
        places = Tokens.first(self.count)
        vectors_BCD = vectors_BCD + self._read("read", vectors_BCD, places, stream, tokens, params)
        vectors_BCD, penalty, _ = run(vectors_BCD, places, layers)
        return stream + self._read("write", stream, tokens, vectors_BCD, places, params), penalty, None

    def _read(self, way: str, x_BLD, queries: Tokens, source_BSD, keys: Tokens, params: OwnParams) -> jax.Array:
        """What the heads of x find in a source."""
        inputs = {"query": layer_norm(x_BLD)} | dict.fromkeys(("key", "value"), layer_norm(source_BSD))
        projected = (dense(inputs[role], params[f"{way}_{role}"]) for role in inputs)
        parts = (rearrange(x, "b l (h k) -> b l h k", h=self.num_heads) for x in projected)
        with jax.named_scope(way):
            out_BLHK = attention(*parts, queries=queries, keys=keys, mask=Padding()).out
        return dense(rearrange(out_BLHK, "b l h k -> b l (h k)"), params[f"{way}_out"])


def shortened(x_BLD: jax.Array, tokens: Tokens, factor: int, *, causal: bool) -> tuple[jax.Array, Tokens]:
    """(B, ⌈L / factor⌉, D) means over `factor` tokens, padding left out, and their own `Tokens`, at positions 0, 1, …

    If `causal`, each group ends with the token at a multiple of `factor` (Nawrot et al. 2021, "shift right by
    k - 1"), so that this token and those after it may read the mean; otherwise it begins with that token.
    """
    valid_BL = jnp.ones((1, tokens.length), jnp.bool) if tokens.valid is None else tokens.valid
    sums_BXD = _blocks(x_BLD * valid_BL[..., None].astype(x_BLD.dtype), factor, causal=causal).sum(2)
    counts_BX = _blocks(valid_BL, factor, causal=causal).sum(2)
    means_BXD = sums_BXD / jnp.maximum(counts_BX, 1)[..., None].astype(x_BLD.dtype)
    places = Tokens.at(tokens.positions[:, ::factor] // factor, valid=None if tokens.valid is None else counts_BX > 0)
    return means_BXD, places


def lengthened(x_BXD: jax.Array, factor: int, length: int) -> jax.Array:
    """Repeats each vector `factor` times, (B, length, D)."""
    return jnp.repeat(x_BXD, factor, axis=1)[:, :length]


def _blocks(x_BLX: jax.Array, factor: int, *, causal: bool) -> jax.Array:
    """(B, ⌈L / factor⌉, factor, …), with zeros before the first token or after the last."""
    count, before = -(-x_BLX.shape[1] // factor), factor - 1 if causal else 0
    behind = max(0, count * factor - before - x_BLX.shape[1])
    padded = jnp.pad(x_BLX, ((0, 0), (before, behind), *((0, 0),) * (x_BLX.ndim - 2)))[:, : count * factor]
    return padded.reshape(len(padded), count, factor, *padded.shape[2:])
