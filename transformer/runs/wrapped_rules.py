"""Update rules made of another rule."""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

from transformer.core.checks import check_kind
from transformer.core.errors import ConfigError
from transformer.core.parameters import Parameter
from transformer.runs.muon import Muon
from transformer.runs.rules import AdamW, UpdateRule, in_layers


def _check_direction(wrapper: UpdateRule, rule: UpdateRule) -> None:
    """Raise `ConfigError` where a rule is more than its direction, or is none."""
    check_kind(rule, UpdateRule, f"{wrapper.name}.rule")
    if type(rule).correction is not UpdateRule.correction:
        raise ConfigError(f"{wrapper.name}.rule: {rule} is more than a direction; use adamw, muon or another")


@dataclass(frozen=True)
class Cautious(UpdateRule):
    """Only entries of a rule's direction u that have the gradient's sign (Liang K. et al. 2024, algorithm 2).

    u · φ · d / (1 + Σ φ) with φ = 1 where u · gradient > 0 and 0 elsewhere, for each array of d entries; weight decay
    is of all entries. The rule's learning rates fit.
    """

    rule: UpdateRule = AdamW()
    """The rule whose direction is masked; without momentum it always has the gradient's sign."""

    def __post_init__(self):
        _check_direction(self, self.rule)

    @property
    def entrywise(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.rule.entrywise

    def direction(self, specs):
        rule = optax.with_extra_args_support(self.rule.direction(specs))

        def masked(spec: Parameter, direction: jax.Array, gradient: jax.Array) -> jax.Array:
            axes = tuple(range(direction.ndim - len(spec.single), direction.ndim))
            agrees = (direction * gradient > 0).astype(direction.dtype)
            return direction * agrees * math.prod(spec.single) / (1 + agrees.sum(axes, keepdims=True))

        def update(updates, state, params=None):
            direction, state = rule.update(updates, state, params)
            return jax.tree.map(masked, specs, direction, updates), state

        return optax.GradientTransformation(rule.init, update)


@dataclass(frozen=True)
class Hyperball(UpdateRule):
    """Steps along spheres: W ← R · n(W - rate · R · n(u)) with n(X) = X / ‖X‖ and R the initial ‖W‖, Frobenius norms.

    For each matrix of the layers (Wen et al. 2026); u is a rule's direction, and all else moves as under that rule.
    So initial values decide how large matrices are for ever, and those of deviation .02 are small in a narrow model:
    `model.initializer=fanin` gives outputs the variance of inputs at any width. The learning rate is about the angle
    by which a matrix turns, 0.01 and more. Weight decay of these matrices only turns them faster, by
    1 / (1 - rate · decay). A matrix that begins at 0 has no sphere and moves as under the rule.
    """

    rule: UpdateRule = Muon()
    """The rule whose direction is followed."""

    def __post_init__(self):
        _check_direction(self, self.rule)

    def direction(self, specs):
        def update(updates, state, params=None):
            sized = jax.tree.map(lambda u, r: jnp.where(r > 0, _scaled(u, r), u), updates, state)
            return sized, state

        sized = optax.GradientTransformation(_radii, update)
        return optax.chain(self.rule.direction(specs), in_layers(sized, optax.identity(), specs))

    def correction(self, specs, learning_rate):
        def update(updates, state, params=None):
            def to_sphere(u, p, r):
                return jnp.where(r > 0, _scaled(p + u, r) - p, u)

            return jax.tree.map(to_sphere, updates, params, state), state

        on_sphere = optax.GradientTransformation(_radii, update)
        return in_layers(on_sphere, optax.identity(), specs)


def _norm(x: jax.Array) -> jax.Array:
    """The Frobenius norm of each matrix."""
    return jnp.sqrt(jnp.square(x).sum((-2, -1), keepdims=True))


def _radii(params: Any) -> Any:
    return jax.tree.map(_norm, params)


def _scaled(x: jax.Array, norm: jax.Array) -> jax.Array:
    """Matrices of a given norm; zeros stay."""
    return norm * (x / jnp.maximum(_norm(x), jnp.finfo(x.dtype).tiny))
