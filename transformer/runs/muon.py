"""Update rules whose steps of matrices are orthogonal: Muon and what is made of it."""

import abc
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import optax

from transformer.core.checks import check_positive
from transformer.core.values import Variant
from transformer.runs.rules import AdamW, UpdateRule, check_share, in_layers


class Orthogonalization(Variant):
    """Iterations X ← a X + b (X Xᵀ) X + c (X Xᵀ)² X, which take singular values in (0, 1] to about 1."""

    @property
    @abc.abstractmethod
    def coefficients(self) -> tuple[tuple[float, float, float], ...]:
        """(a, b, c) of each iteration."""


@dataclass(frozen=True)
class NewtonSchulz(Orthogonalization):
    """(3.4445, -4.7750, 2.0315) at each iteration: steep at 0, and ends between 0.7 and 1.2 (Jordan et al. 2024)."""

    name = "newton_schulz"
    steps: int = 5
    """Number of iterations."""

    def __post_init__(self):
        check_positive(self, "steps")

    @property
    def coefficients(self):
        return ((3.4445, -4.7750, 2.0315),) * self.steps


POLAR_EXPRESS = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
    (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
    (1.8750014808534479, -1.2500016453999487, 0.3750001645474248),
    (1.875, -1.25, 0.375),
)


@dataclass(frozen=True)
class PolarExpress(Orthogonalization):
    """Nearly the polynomial with the smallest error at each iteration, for singular values in [0.001, 1].

    Amsel et al. 2025, algorithm 1, whose numbers are kind to small singular values. Against rounding the first seven
    iterations are of X / 1.01, the very first of X / 1.01², as the authors divide by 1.01 times the norm; those after
    the eighth are like it. Singular values converge to 1.
    """

    name = "polar_express"
    steps: int = 5
    """Number of iterations."""

    def __post_init__(self):
        check_positive(self, "steps")

    @property
    def coefficients(self):
        *first, last = POLAR_EXPRESS
        divisors = (1.01**2, *[1.01] * (len(first) - 1))
        table = [*((a / d, b / d**3, c / d**5) for (a, b, c), d in zip(first, divisors, strict=True)), last]
        return (*table[: self.steps], *[last] * (self.steps - len(table)))


@dataclass(frozen=True)
class Muon(UpdateRule):
    """About U Vᵀ of the momentum's SVD U S Vᵀ, for each matrix of the layers (Jordan et al. 2024); AdamW otherwise.

    Times `rms` · √(larger side) the step has the root mean square of AdamW's, so that both share a learning rate
    (Liu et al. 2025, equation 4).
    """

    momentum: float = 0.95
    """Share of the momentum kept at a step, in [0, 1)."""
    nesterov: bool = True
    """Whether to use Nesterov's momentum, which looks one step ahead; with the bias corrected, as in Nadam (optax)."""
    orthogonalization: Orthogonalization = NewtonSchulz()
    """The iterations that make singular values equal."""
    norm: Literal["frobenius", "schatten", "aol"] = "frobenius"
    """What divides M, so that singular values are at most 1: ‖M‖; ‖M Mᵀ‖^½, which is smaller; or for row i of a wide
    matrix (Σⱼ |M Mᵀ|ᵢⱼ)^½, which brings singular values together (Boissin et al. 2025). The latter two at least 1e-4,
    as in optax: smaller M are left smaller."""
    rms: float = 0.2
    """Root mean square of a matrix's step, before the learning rate."""
    rest: AdamW = AdamW()
    """The rule for embeddings, output and vectors."""

    def __post_init__(self):
        check_share(self, "momentum")
        check_positive(self, "rms")

    def direction(self, specs):
        def axes(params):
            return jax.tree.map(lambda _: optax.contrib.MuonDimensionNumbers(-2, -1), params)

        coefficients = self.orthogonalization.coefficients
        orthogonal = optax.contrib.scale_by_muon(
            coefficients,
            len(coefficients),
            self.momentum,
            nesterov=self.nesterov,
            preconditioning=self.norm,
            weight_dimension_numbers=axes,
        )
        return in_layers(optax.chain(orthogonal, self.sized()), self.rest.direction(specs), specs)

    def sized(self) -> optax.GradientTransformation:
        """What gives orthogonal matrices the size of a step."""

        def update(updates, _):
            return jax.tree.map(lambda u: self.rms * max(u.shape[-2:]) ** 0.5 * u, updates)

        return optax.stateless(update)


@dataclass(frozen=True)
class NorMuon(Muon):
    """Muon whose neurons take steps of equal size over time (Li Z. et al. 2025, algorithm 1).

    Each column of U Vᵀ, the weights that make an output, is divided by √v + eps, where v is a mean of its mean
    squares; then the matrix is scaled to a root mean square of exactly `rms`. AdamW's learning rates fit. Nesterov's
    momentum is of the authors' code; the algorithm has none.
    """

    beta2: float = 0.95
    """Share of v kept at a step, in [0, 1)."""
    eps: float = 1e-8
    """Added to √v and to the root mean square."""

    def __post_init__(self):
        super().__post_init__()
        check_share(self, "beta2")
        check_positive(self, "eps")

    def sized(self):
        def init(params):
            return jax.tree.map(lambda p: jnp.zeros_like(p[..., :1, :]), params)

        def mean(u, v):
            return self.beta2 * v + (1 - self.beta2) * jnp.square(u).mean(-2, keepdims=True)

        def scaled(u, v):
            u = u / (jnp.sqrt(v) + self.eps)
            return self.rms * u / (jnp.sqrt(jnp.square(u).mean((-2, -1), keepdims=True)) + self.eps)

        def update(updates, state, params=None):
            state = jax.tree.map(mean, updates, state)
            return jax.tree.map(scaled, updates, state), state

        return optax.GradientTransformation(init, update)
