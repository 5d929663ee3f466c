"""Choices of multi-head attention: its projections, the scale, and how the heads become one vector."""

import abc
import math
from dataclasses import dataclass
from typing import ClassVar

import jax
from einops import rearrange

from transformer.core.parameters import Constant, Parameter
from transformer.core.values import ConfigError, Variant


class Projection(Variant):
    """Which linear layers make the queries, the keys and the values; None takes the input itself, cut into heads."""

    query: ClassVar[str | None] = "query"
    key: ClassVar[str | None] = "key"
    value: ClassVar[str | None] = "value"

    def check(self, d_model: int, num_heads: int, num_kv_heads: int, head_dim: int, value_dim: int) -> None:
        """Raise `ConfigError` where the shapes do not fit."""
        if self.value is None and value_dim != head_dim:
            raise ConfigError(
                f"model.projection: {self} cuts values of {head_dim} features, and model.merge wants {value_dim}; "
                "use concat or none"
            )
        if self.query == self.key and num_heads != num_kv_heads:
            raise ConfigError(
                f"model.projection: {self} needs as many key-value heads as query heads, "
                f"not {num_kv_heads} and {num_heads}"
            )
        if self.query is None and num_heads * head_dim != d_model:
            raise ConfigError(
                f"model.projection: {self} cuts d_model {d_model} into heads, and {num_heads} heads of {head_dim} "
                f"are {num_heads * head_dim}"
            )


@dataclass(frozen=True)
class SeparateProjections(Projection):
    """A linear layer each for queries, keys and values (Vaswani et al. 2017)."""

    name = "separate"


@dataclass(frozen=True)
class TiedProjections(Projection):
    """One layer for queries and keys, so that scores are symmetric: xᵀUᵀUx (Kitaev et al. 2020, shared QK)."""

    name = "tied"
    key = "query"


@dataclass(frozen=True)
class NoProjections(Projection):
    """softmax(xxᵀ)x in each head's share of the features: no parameters."""

    name = "none"
    query = key = value = None


class Scale(Variant, abc.ABC):
    """The factor on q·k."""

    def parameters(self, head_dim: int) -> dict[str, Parameter]:
        """The parameters it owns in every layer, by name."""
        return {}

    @abc.abstractmethod
    def __call__(self, head_dim: int, params: dict[str, jax.Array]) -> float | jax.Array: ...


@dataclass(frozen=True)
class InverseRootScale(Scale):
    """1/√K: keeps the variance of q·k at 1 where q and k have variance 1 (Vaswani et al. 2017)."""

    name = "inverse_root"

    def __call__(self, head_dim, params):
        return 1 / math.sqrt(head_dim)


@dataclass(frozen=True)
class InverseScale(Scale):
    """1/K (µP, Yang et al. 2022)."""

    name = "inverse"

    def __call__(self, head_dim, params):
        return 1 / head_dim


@dataclass(frozen=True)
class ConstantScale(Scale):
    """A fixed number; 1 leaves q·k as it is."""

    name = "constant"
    value: float = 1.0
    """The number."""

    def __call__(self, head_dim, params):
        return self.value


@dataclass(frozen=True)
class LearnedScale(Scale):
    """A trained number per layer that starts at 1/√K; with `qk_norm` the g of cosine attention (Henry et al. 2020)."""

    name = "learned"
    initial: float | None = None
    """Its initial value; None: 1/√K."""

    def parameters(self, head_dim):
        return {"scale": Parameter((), Constant(1 / math.sqrt(head_dim) if self.initial is None else self.initial))}

    def __call__(self, head_dim, params):
        return params["scale"]


class Merge(Variant, abc.ABC):
    """How the outputs of the heads become one vector."""

    projected: ClassVar[bool] = False
    """Whether a linear layer follows."""

    def check(self, d_model: int, num_heads: int, value_dim: int) -> None:
        """Raise `ConfigError` where the shapes do not fit."""

    def value_dim(self, d_model: int, head_dim: int) -> int:
        """Size of a head's values."""
        return head_dim

    def width(self, num_heads: int, value_dim: int) -> int:
        """Size of the one vector."""
        return num_heads * value_dim

    @abc.abstractmethod
    def __call__(self, out_BLHK: jax.Array) -> jax.Array:
        """Merges (B, L, H, V) into (B, L, `width`)."""


@dataclass(frozen=True)
class Concatenate(Merge):
    """Heads concatenated, then the output projection (Vaswani et al. 2017)."""

    name = "concat"
    projected = True

    def __call__(self, out_BLHK):
        return rearrange(out_BLHK, "b l h k -> b l (h k)")


@dataclass(frozen=True)
class ConcatenateOnly(Merge):
    """Heads concatenated, without an output projection."""

    name = "none"

    def check(self, d_model, num_heads, value_dim):
        if num_heads * value_dim != d_model:
            raise ConfigError(
                f"model.merge: {self} needs heads that fill d_model {d_model}, and {num_heads} heads of {value_dim} "
                f"are {num_heads * value_dim}"
            )

    def __call__(self, out_BLHK):
        return rearrange(out_BLHK, "b l h k -> b l (h k)")


@dataclass(frozen=True)
class SumHeads(Merge):
    """The sum of heads whose values are as wide as the model: Σ_h A_h X V_h, V_h (D, D).

    It computes the functions of `concat` with V_h = W_V,h W_O,h (Elhage et al. 2021), but V_h may have full rank.
    """

    name = "sum"

    def value_dim(self, d_model, head_dim):
        return d_model

    def width(self, num_heads, value_dim):
        return value_dim

    def __call__(self, out_BLHK):
        return out_BLHK.sum(2)
