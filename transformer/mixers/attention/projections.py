"""The projections of attention, the factor on its scores, and how its heads become one vector."""

import math
from dataclasses import dataclass

from einops import rearrange

from transformer.core.checks import check_positive
from transformer.core.errors import ConfigError
from transformer.core.json import later
from transformer.core.parameters import Constant, Parameter
from transformer.mixers.attention.base import Merge, Projection, Scale


@dataclass(frozen=True)
class TiedProjections(Projection):
    """One layer for queries and keys, so that scores are symmetric: xᵀUᵀUx (Kitaev et al. 2020, shared QK).

    In the paper keys have unit length, and no token but the first attends to itself; here it does, mostly to itself.
    """

    name = "tied"
    key = "query"


@dataclass(frozen=True)
class NoProjections(Projection):
    """softmax(xxᵀ)x in each head's share of the features: no parameters."""

    name = "no_projections"
    query = key = value = None


@dataclass(frozen=True)
class ScaledProjections(Projection):
    """One layer for each, whose initial values are multiplied by `gain`.

    1/√2, as in fairseq (Ott et al. 2019, arXiv:1904.01038), gives Xavier values the size they have where one matrix
    (D, 3D) makes all three, as in PyTorch's MultiheadAttention.
    """

    name = "scaled"
    gain: float = 2**-0.5
    """The factor."""

    def __post_init__(self):
        check_positive(self, "gain")


@dataclass(frozen=True)
class InverseScale(Scale):
    """√base/K: 1/K, or with a narrower model's K as base the usual factor in that one (µP, Yang et al. 2022)."""

    name = "inverse"
    base: int = later(1)

    def __post_init__(self):
        check_positive(self, "base")

    def __call__(self, head_dim, params):
        return self.base**0.5 / head_dim


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


@dataclass(frozen=True)
class ConcatenateOnly(Merge):
    """Heads concatenated, without an output projection."""

    name = "concat_only"

    def check(self, d_model, sizes):
        num_heads, _, _, value_dim = sizes
        if num_heads * value_dim != d_model:
            raise ConfigError(
                f"mixer.merge: {self} needs heads that fill d_model {d_model}, and {num_heads} heads of {value_dim} "
                f"are {num_heads * value_dim}"
            )

    def __call__(self, out_BLHK):
        return rearrange(out_BLHK, "b l h k -> b l (h k)")


@dataclass(frozen=True)
class SumHeads(Merge):
    """The sum of heads whose values are as wide as the model: Σ_h A_h X V_h, V_h (D, D).

    It computes what concatenation and a projection do with V_h = W_V,h W_O,h (Elhage et al. 2021), but V_h may have
    full rank.
    """

    name = "sum"

    def value_dim(self, d_model, head_dim):
        return d_model

    def width(self, num_heads, value_dim):
        return value_dim

    def __call__(self, out_BLHK):
        return out_BLHK.sum(2)
