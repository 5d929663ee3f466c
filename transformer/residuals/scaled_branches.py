"""Residual connections that scale the branch by trained numbers, or its initial values."""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from transformer.core.arrays import plus
from transformer.core.errors import ConfigError
from transformer.core.parameters import ONES, ZEROS, Constant, Parameter
from transformer.core.values import of_field
from transformer.residuals.residual import NoNormResidual, PreNorm, Residual, SingleStream


@dataclass(frozen=True)
class ReZero(SingleStream):
    """x + b · f(x) with one trained b per connection, initially 0 (Bachlechner et al. 2020, equation 2).

    `placement=pre` gives ReZero + LayerNorm (Narang et al. 2021), and any `initial` SkipInit (De and Smith 2020).
    """

    initial: float = 0.0
    """Initial value of b."""
    placement: Residual = NoNormResidual()
    """Residual connection that defines the norms and a."""
    per_feature: ClassVar[bool] = False

    def __post_init__(self):
        if type(self.placement).__call__ is not SingleStream.__call__ or "branch" in self.placement.parameters(1):
            raise ConfigError(f"{self.name}.placement: {self.placement} has no plain branch; use pre, post or no_norm")

    @property
    def begins_silent(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.initial == 0 and "output" not in self.norms

    norms = of_field("placement", "norms")
    final_norm = of_field("placement", "final_norm")
    embedding_norm = of_field("placement", "embedding_norm")
    inner_norms = of_field("placement", "inner_norms")
    embedding_gain = of_field("placement", "embedding_gain")
    inner_gain = of_field("placement", "inner_gain")
    output_gain = of_field("placement", "output_gain")
    counts_layers = of_field("placement", "counts_layers")
    a = of_field("placement", "a")

    def of_encoder(self, encoder_layers, decoder_layers):
        return dataclasses.replace(self, placement=self.placement.of_encoder(encoder_layers, decoder_layers))

    def parameters(self, d_model):
        return {"branch": Parameter((d_model,) if self.per_feature else (), Constant(self.initial))}

    def b(self, params, depth):
        return params["branch"]


@dataclass(frozen=True)
class LayerScale(ReZero):
    """x + b ⊙ f(norm(x)) with one trained b per feature (Touvron et al. 2021, equation 4).

    Initially all b are 0.1 there in models of up to 18 blocks, 1e-5 in 24 and 1e-6 in deeper ones.
    """

    initial: float = 0.1
    placement: Residual = PreNorm()
    per_feature = True


@dataclass(frozen=True)
class TFixup(SingleStream):
    """x + f(x) without norms, with smaller initial values (T-Fixup, Huang X. et al. 2020, section 3).

    Values, output projections, both matrices of feed-forward sublayers and token embeddings are times (3n)^-¼ for n
    branches in the stack: (9M)^-¼ in the paper's decoder of M blocks. In an encoder of N blocks beside it the factor
    is 0.67 N^-¼, but that of embeddings the decoder's. The paper starts from `initializer=xavier` and embeddings of
    deviation 1/√D, and trains without warm-up.
    """

    name = "t_fixup"
    gain: float | None = None
    """The factor on matrices; None: as above."""
    embedding: float | None = None
    """The factor on embeddings; None: as above."""

    def of_encoder(self, encoder_layers, decoder_layers):
        gain = 0.67 * encoder_layers**-0.25 if self.gain is None else self.gain
        embedding = (9 * decoder_layers) ** -0.25 if self.embedding is None else self.embedding
        return dataclasses.replace(self, gain=gain, embedding=embedding)

    def inner_gain(self, branches):
        return (3 * branches) ** -0.25 if self.gain is None else self.gain

    def output_gain(self, branches):
        return self.inner_gain(branches)

    def embedding_gain(self, branches):
        return (3 * branches) ** -0.25 if self.embedding is None else self.embedding


@dataclass(frozen=True)
class Fixup(SingleStream):
    """x + b · f(x + c) without norms; branches are initially 0, inner weights over √branches (Zhang H. et al. 2019).

    The scalars b and c are initially 1 and 0. Every branch has two matrices in a row: m = 2 in L^(-1/(2m-2)). For a
    scalar before the second one too, set `mixer.inner_norm` and `feed_forward.inner_norm` to `shift`.
    """

    name = "fixup"

    def parameters(self, d_model):
        return {"multiplier": Parameter((), ONES), "bias": Parameter((), ZEROS)}

    def inner_gain(self, branches):
        return branches**-0.5

    def output_gain(self, branches):
        return 0.0

    def b(self, params, depth):
        return params["multiplier"]

    def __call__(self, stream, f, norms, params, depth):
        return super().__call__(stream, lambda x: f(plus(x, params["bias"])), norms, params, depth)
