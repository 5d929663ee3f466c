"""Update rules: how a gradient becomes a step of the parameters."""

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax

from transformer.core.arrays import towards
from transformer.core.checks import check_not_negative, check_positive
from transformer.core.errors import ConfigError
from transformer.core.parameters import Parameter
from transformer.core.values import Variant


class UpdateRule(Variant):
    """p ← p - rate · (direction + decay · p): a rule defines the direction; all else is shared by all rules."""

    averages: ClassVar[bool] = False
    """Whether the rule keeps a mean of the parameters, with which a run is evaluated."""
    entrywise: ClassVar[bool] = False
    """Whether entries of the direction are about 1 in size at any width of the model."""

    @abc.abstractmethod
    def direction(self, specs: Any) -> optax.GradientTransformation:
        """The transformation of gradients into directions.

        Args:
          specs: the `Parameter` of every leaf. A leaf has more axes than its `Parameter` where layers are stacked.
        """

    def correction(self, specs: Any, learning_rate: Callable[[jax.Array], jax.Array]) -> optax.GradientTransformation:
        """Turns scaled updates into what is added to the parameters.

        A rule that keeps a mean has it as `average` in its state.

        Args:
          specs: as of `direction`.
          learning_rate: the learning rate after n updates, as a function of n.
        """
        return optax.identity()


def check_share(rule: UpdateRule, *names: str) -> None:
    """Raise `ConfigError` where one of the fields is not in [0, 1)."""
    for name in names:
        if not 0 <= getattr(rule, name) < 1:
            raise ConfigError(f"{rule.name}.{name}: {getattr(rule, name)} is not in [0, 1)")


@dataclass(frozen=True)
class AdamW(UpdateRule):
    """m / (√v + eps), unbiased means of the gradient and of its square (Loshchilov and Hutter 2019, algorithm 2)."""

    entrywise = True
    beta1: float = 0.9
    """Share of m kept at a step, in [0, 1)."""
    beta2: float = 0.99
    """Share of v kept at a step, in [0, 1)."""
    eps: float = 1e-8
    """Added to √v."""

    def __post_init__(self):
        check_share(self, "beta1", "beta2")
        check_positive(self, "eps")

    def direction(self, specs):
        return optax.scale_by_adam(self.beta1, self.beta2, self.eps)


@dataclass(frozen=True)
class AdEMAMix(UpdateRule):
    """(m1 + a · m2) / (√v + eps), where m2 is a slower mean that begins at 0 (Pagliardini et al. 2024, algorithm 1).

    m1 and v are unbiased, as in AdamW, whose learning rates fit. Over `warmup` steps a rises linearly from 0 to
    `alpha`, and the share of m2 kept from `beta1` to `beta3` so that the half-life of m2 rises linearly. The paper has
    beta2 .999.
    """

    entrywise = True
    beta1: float = 0.9
    """Share of m1 kept at a step, in (0, 1)."""
    beta2: float = 0.99
    """Share of v kept at a step, in [0, 1)."""
    beta3: float = 0.9999
    """Share of m2 kept at a step after `warmup`, in (0, 1)."""
    alpha: float = 5.0
    """Weight of m2 after `warmup`."""
    warmup: int = 1000
    """Steps in which a and the share of m2 rise; the paper takes all of a run, and 0 for none."""
    eps: float = 1e-8
    """Added to √v."""

    def __post_init__(self):
        check_share(self, "beta1", "beta2", "beta3")
        check_positive(self, "beta1", "beta3", "eps")
        check_not_negative(self, "alpha", "warmup")

    def direction(self, specs):
        def done(count):
            return jnp.minimum((count + 1) / max(self.warmup, 1), 1.0)

        def alpha(count):
            return self.alpha * done(count)

        def beta3(count):
            # ln(1/2) / ln(beta) is the half-life, so that 1 / ln(beta) rises linearly.
            first, last = (1 / math.log(beta) for beta in (self.beta1, self.beta3))
            return jnp.exp(1 / (first + (last - first) * done(count)))

        return optax.contrib.scale_by_ademamix(self.beta1, self.beta2, beta3, alpha, self.eps)


@dataclass(frozen=True)
class ADOPT(UpdateRule):
    """m ← beta1 · m + (1 - beta1) · clip(gradient / max(√v, eps)), then v (Taniguchi et al. 2024, algorithm 2).

    v is the mean of squares of earlier gradients alone, so that any beta2 converges; the first gradient begins it
    and moves nothing. Step t after that clips entries to ± t^¼. AdamW's learning rates fit.
    """

    entrywise = True
    beta1: float = 0.9
    """Share of m kept at a step, in [0, 1)."""
    beta2: float = 0.9999
    """Share of v kept at a step, in [0, 1)."""
    eps: float = 1e-6
    """Smallest √v."""

    def __post_init__(self):
        check_share(self, "beta1", "beta2")
        check_positive(self, "eps")

    def direction(self, specs):
        return optax.contrib.scale_by_adopt(self.beta1, self.beta2, self.eps)


@dataclass(frozen=True)
class SGD(UpdateRule):
    """m ← momentum · m + gradient (Polyak 1964; Nesterov 1983, as in Sutskever et al. 2013)."""

    momentum: float = 0.9
    """Share of m kept at a step, in [0, 1)."""
    nesterov: bool = False
    """Whether to use Nesterov's momentum, which looks one step ahead."""

    def __post_init__(self):
        check_share(self, "momentum")

    def direction(self, specs):
        return optax.trace(self.momentum, self.nesterov)


@dataclass(frozen=True)
class Lion(UpdateRule):
    """sign(beta1 · m + (1 - beta1) · gradient), then m moves with beta2 (Chen X. et al. 2023, algorithm 2).

    Needs learning rates 3 to 10 times smaller than AdamW's, and a weight decay larger by the same factor. The shares of
    the paper, and its (.95, .98) for language, average over fifty steps and more: runs of hundreds want smaller ones.
    """

    entrywise = True
    beta1: float = 0.9
    """Share of m in the direction, in [0, 1)."""
    beta2: float = 0.99
    """Share of m kept at a step, in [0, 1)."""

    def __post_init__(self):
        check_share(self, "beta1", "beta2")

    def direction(self, specs):
        return optax.scale_by_lion(self.beta1, self.beta2)


@dataclass(frozen=True)
class Adafactor(UpdateRule):
    """The gradient over a factored root mean square, without momentum (Shazeer and Stern 2018, algorithms 4 and 5).

    Of each matrix it keeps a number for each row and column, not for each entry; step t keeps the share
    1 - t^-decay of these means. Steps are relative to the root mean square of the parameters, which needs
    learning rates of 0.01 and more.
    """

    decay: float = 0.8
    """The exponent above; this is no weight decay."""
    clip: float = 1.0
    """Largest root mean square of a step, before it is made relative."""
    eps: float = 1e-3
    """Smallest root mean square of the parameters that steps are relative to."""

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
    """`rule` applied to every array separately, where a leaf may be a stack of arrays."""

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


def in_layers(
    matrix: optax.GradientTransformation, rest: optax.GradientTransformation, specs: Any
) -> optax.GradientTransformation:
    """`matrix` for the decayed matrices of layers, those that predict further tokens too, `rest` for all else.

    All axes of a leaf before the last two index matrices: layers and experts.
    """

    def label(path: tuple[Any, ...], spec: Parameter, leaf: jax.Array) -> str:
        of_layers = leaf.ndim > len(spec.shape) or path[0].key == "future"
        return "matrix" if of_layers and len(spec.single) == 2 and spec.decayed else "rest"

    def labels(params: Any) -> Any:
        return jax.tree.map_with_path(label, specs, params)

    return optax.partition({"matrix": matrix, "rest": rest}, labels)


class ScheduleFreeState(NamedTuple):
    """The state of `ScheduleFree`, except for the second moment."""

    count: jax.Array  # pyright: ignore[reportIncompatibleMethodOverride]  a tuple has a method of optax's name
    weight: jax.Array
    """Sum of the squared learning rates."""
    base: Any
    """z: the parameters that steps move."""
    average: Any
    """x: the mean of z."""


@dataclass(frozen=True)
class ScheduleFree(UpdateRule):
    """AdamW with a mean instead of momentum and a schedule (Defazio et al. 2024, algorithm 1).

    Steps move z; x is the mean of z weighted by squared learning rates; the gradient is taken at the parameters
    (1 - beta) · z + beta · x, and a run is evaluated at x. Made for `schedule=constant`. As in the authors' later code
    v is unbiased, where the algorithm multiplies the learning rate, and so weights and decay, by √(1 - beta2ᵗ); there
    beta2 is .999.
    """

    name = "schedule_free"
    averages = True
    entrywise = True
    beta: float = 0.9
    """Share of x in the parameters, in [0, 1)."""
    beta2: float = 0.99
    """Share of the mean of squared gradients v kept at a step, in [0, 1)."""
    eps: float = 1e-8
    """Added to √v."""

    def __post_init__(self):
        check_share(self, "beta", "beta2")
        check_positive(self, "eps")

    def direction(self, specs):
        return optax.scale_by_rms(self.beta2, self.eps, eps_in_sqrt=False, bias_correction=True)

    def correction(self, specs, learning_rate):
        def mix(share, one, other):
            return jax.tree.map(lambda a, b: towards(a, b, share), one, other)

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
