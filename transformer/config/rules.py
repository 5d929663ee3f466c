"""Update rules: from a gradient to a step of the parameters."""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax

from transformer.config.parameters import Parameter
from transformer.config.variant import ConfigError, Variant, check_not_negative, check_positive


class UpdateRule(Variant, abc.ABC):
    """p ← p - rate · (direction + decay · p): the rule gives the direction, all else is shared by all rules."""

    averages: ClassVar[bool] = False
    """Whether the rule keeps a mean of the parameters, by which a run is judged."""
    entrywise: ClassVar[bool] = False
    """Whether entries of the direction have about the size 1 at any width of the model."""

    @abc.abstractmethod
    def direction(self, specs: Any) -> optax.GradientTransformation:
        """From gradients to directions.

        Args:
          specs: the `Parameter` of every leaf. A leaf has more axes than its `Parameter` where layers are stacked.
        """

    def averaging(self, learning_rate: Callable[[jax.Array], jax.Array]) -> optax.GradientTransformation:
        """From steps, the learning rate already in them, to what is added to the parameters.

        A rule that keeps a mean has it as `average` in its state.

        Args:
          learning_rate: of the update after so many updates.
        """
        return optax.identity()


def _check_share(rule: UpdateRule, *names: str) -> None:
    """Raise `ConfigError` where one of the fields is not in [0, 1)."""
    for name in names:
        if not 0 <= getattr(rule, name) < 1:
            raise ConfigError(f"{rule.name}.{name}: {getattr(rule, name)} is not in [0, 1)")


@dataclass(frozen=True)
class AdamW(UpdateRule):
    """m / (√v + eps), means of the gradient and its square without bias (Loshchilov and Hutter 2019, algorithm 2)."""

    entrywise = True
    beta1: float = 0.9
    beta2: float = 0.99
    eps: float = 1e-8

    def __post_init__(self):
        _check_share(self, "beta1", "beta2")
        check_not_negative(self, "eps")

    def direction(self, specs):
        return optax.scale_by_adam(self.beta1, self.beta2, self.eps)


@dataclass(frozen=True)
class SGD(UpdateRule):
    """m ← momentum · m + gradient (Polyak 1964; Nesterov 1983, as in Sutskever et al. 2013)."""

    momentum: float = 0.9
    nesterov: bool = False

    def __post_init__(self):
        _check_share(self, "momentum")

    def direction(self, specs):
        return optax.trace(self.momentum, self.nesterov)


@dataclass(frozen=True)
class Lion(UpdateRule):
    """sign(beta1 · m + (1 - beta1) · gradient), then m moves with beta2 (Chen X. et al. 2023, algorithm 2).

    Wants learning rates 3 to 10 times smaller than AdamW's, and as many times more weight decay.
    """

    entrywise = True
    beta1: float = 0.9
    beta2: float = 0.99

    def __post_init__(self):
        _check_share(self, "beta1", "beta2")

    def direction(self, specs):
        return optax.scale_by_lion(self.beta1, self.beta2)


@dataclass(frozen=True)
class Adafactor(UpdateRule):
    """The gradient over a root mean square of rows and columns (Shazeer and Stern 2018, algorithms 4 and 5).

    Each matrix has one number a row and one a column in place of one an entry; the means forget with
    1 - step^-decay. The step is clipped where its root mean square is more than `clip`, and is relative:
    times the root mean square of the parameters, at least `eps`. No momentum. Wants learning rates of 0.01 and more.
    """

    decay: float = 0.8
    clip: float = 1.0
    eps: float = 1e-3

    def __post_init__(self):
        check_positive(self, "decay", "clip")
        check_not_negative(self, "eps")

    def direction(self, specs):
        rule = optax.chain(
            optax.scale_by_factored_rms(decay_rate=self.decay, min_dim_size_to_factor=1),
            optax.clip_by_block_rms(self.clip),
            optax.scale_by_param_block_rms(self.eps),
        )
        return _array_by_array(rule, specs)


def _array_by_array(rule: optax.GradientTransformation, specs: Any) -> optax.GradientTransformation:
    """`rule` of every array by itself, where a leaf may be a stack of them."""

    def mapped(function: Callable, spec: Parameter, leaf: jax.Array) -> Callable:
        for _ in range(leaf.ndim - len(spec.single)):
            function = jax.vmap(function)
        return function

    def init(params):
        return jax.tree.map(lambda spec, p: mapped(rule.init, spec, p)(p), specs, params)

    def update(updates, state, params=None):
        both = jax.tree.map(lambda spec, u, s, p: mapped(rule.update, spec, p)(u, s, p), specs, updates, state, params)
        return tuple(jax.tree.map(lambda _, pair, i=i: pair[i], specs, both) for i in (0, 1))

    return optax.GradientTransformation(init, update)  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class Muon(UpdateRule):
    """U Vᵀ of the momentum U S Vᵀ, about, for each matrix of the layers (Jordan et al. 2024); AdamW for all else.

    Five Newton-Schulz iterations give singular values of about 1. Times `rms` · √(larger side) the step
    has the root mean square of AdamW's, so that both share a learning rate (Liu et al. 2025, equation 4).
    """

    momentum: float = 0.95
    nesterov: bool = True
    rms: float = 0.2
    rest: AdamW = AdamW()
    """Of embeddings, output and vectors."""

    def __post_init__(self):
        _check_share(self, "momentum")
        check_positive(self, "rms")

    def direction(self, specs):
        def labels(params):
            return jax.tree.map(lambda spec, p: "matrix" if _in_layers(spec, p) else "rest", specs, params)

        def axes(params):
            # All axes before these two count matrices: layers, and experts.
            return jax.tree.map(lambda _: optax.contrib.MuonDimensionNumbers(-2, -1), params)

        def sized(updates, _):
            return jax.tree.map(lambda u: self.rms * max(u.shape[-2:]) ** 0.5 * u, updates)

        orthogonal = optax.contrib.scale_by_muon(
            beta=self.momentum, nesterov=self.nesterov, weight_dimension_numbers=axes
        )
        matrix = optax.chain(orthogonal, optax.stateless(sized))
        return optax.partition({"matrix": matrix, "rest": self.rest.direction(specs)}, labels)


def _in_layers(spec: Parameter, leaf: jax.Array) -> bool:
    """Whether a leaf holds the decayed matrices of stacked layers."""
    return leaf.ndim > len(spec.shape) and len(spec.single) == 2 and spec.decayed


class ScheduleFreeState(NamedTuple):
    """Of `ScheduleFree`, beside the second moment."""

    count: jax.Array
    weight: jax.Array
    """Sum of the squared learning rates."""
    base: Any
    """z: where the steps go."""
    average: Any
    """x: the mean of z."""


@dataclass(frozen=True)
class ScheduleFree(UpdateRule):
    """AdamW with a mean in place of momentum and of a schedule (Defazio et al. 2024, algorithm 1).

    Steps move z; x is the mean of z by squared learning rate; the gradient is taken at the parameters
    (1 - beta) · z + beta · x, and a run is judged by x. Made for `schedule=constant`.
    """

    name = "schedule_free"
    averages = True
    entrywise = True
    beta: float = 0.9
    beta2: float = 0.99
    eps: float = 1e-8

    def __post_init__(self):
        _check_share(self, "beta", "beta2")
        check_not_negative(self, "eps")

    def direction(self, specs):
        return optax.scale_by_rms(self.beta2, self.eps, eps_in_sqrt=False, bias_correction=True)

    def averaging(self, learning_rate):
        def mix(share, one, other):
            return jax.tree.map(lambda a, b: (1 - share) * a + share * b, one, other)

        def init(params):
            base, average = (jax.tree.map(jnp.copy, params) for _ in range(2))
            return ScheduleFreeState(jnp.int32(0), jnp.float32(0), base, average)

        def update(updates, state, params):
            own = learning_rate(state.count) ** 2
            weight = state.weight + own
            base = optax.apply_updates(state.base, updates)
            average = mix(own / jnp.maximum(weight, jnp.finfo(jnp.float32).tiny), state.average, base)
            updates = jax.tree.map(jnp.subtract, mix(self.beta, base, average), params)
            return updates, ScheduleFreeState(state.count + 1, weight, base, average)

        return optax.GradientTransformation(init, update)  # pyright: ignore[reportArgumentType]
