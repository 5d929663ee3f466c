"""From scores to weights: alternatives to the softmax of `transformer.functional.attention`.

A weighing is called with float32 scores (B, G, R, L, S), R query heads in each of G groups, with the
boolean mask that broadcasts to them, and with queries and keys. It is a pytree: its arrays may be parameters.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import jax
import jax.numpy as jnp

from transformer.functional.attention import Weigh, masked_softmax


class LinearWeigh(Weigh, Protocol):
    """Weights that are scores times a factor for each distance, divided by their sum where it `normalizes`."""

    @property
    def normalizes(self) -> bool:
        """Whether they are divided by their sum."""
        ...

    def fading(self, distance: jax.Array, num_groups: int) -> jax.Array:
        """The factor at integer distances (…, 1, 1, L, S), float32, which broadcasts to (…, G, R, L, S).

        The factor at a sum of distances is the product of the factors at each.
        """
        ...


def of_heads(array_H: jax.Array, scores: jax.Array) -> jax.Array:
    """One number per head, reshaped to broadcast to the scores."""
    return array_H.reshape(*scores.shape[1:3], 1, 1)


def _count(allowed: jax.Array | None, scores: jax.Array) -> jax.Array:
    """Number of keys a query may attend to, at least 1; float32."""
    if allowed is None:
        return jnp.asarray(scores.shape[-1], jnp.float32)
    allowed = jnp.broadcast_to(allowed, (*allowed.shape[:-1], scores.shape[-1]))
    return jnp.maximum(allowed.sum(-1, keepdims=True), 1).astype(jnp.float32)


def _where(allowed: jax.Array | None, weights: jax.Array) -> jax.Array:
    return weights if allowed is None else jnp.where(allowed, weights, 0.0)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Softmax:
    """exp(s) / Σ exp(s); with sinks exp(s) / (exp(sink) + Σ exp(s))."""

    sink_H: jax.Array | None = None

    def __call__(self, scores, allowed, queries, keys):
        return masked_softmax(scores, allowed, None if self.sink_H is None else of_heads(self.sink_H, scores))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SigmoidWeigh:
    """σ(s - log n), n the number of keys the query may attend to (Ramapuram et al. 2024, equation 3)."""

    def __call__(self, scores, allowed, queries, keys):
        return _where(allowed, jax.nn.sigmoid(scores - jnp.log(_count(allowed, scores))))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ReLUWeigh:
    """max(0, s) / n (Wortsman et al. 2023b, equation 2)."""

    def __call__(self, scores, allowed, queries, keys):
        return _where(allowed, jax.nn.relu(scores) / _count(allowed, scores))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TalkingHeads:
    """Scores mixed over heads, softmax, then weights mixed over heads (Shazeer et al. 2020)."""

    before_HH: jax.Array
    after_HH: jax.Array

    def __call__(self, scores, allowed, queries, keys):
        weights = masked_softmax(_over_heads(scores, self.before_HH), allowed)
        return _where(allowed, _over_heads(weights, self.after_HH))


def _over_heads(scores: jax.Array, mix_HH: jax.Array) -> jax.Array:
    heads = scores.reshape(scores.shape[0], -1, *scores.shape[3:])
    return jnp.einsum("bhls,hi->bils", heads, mix_HH).reshape(scores.shape)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Normalized:
    """s / Σ s for scores that are not negative: linear attention (Katharopoulos et al. 2020, equation 4)."""

    normalizes: ClassVar[bool] = True

    def fading(self, distance, num_groups):
        return jnp.ones_like(distance, jnp.float32)

    def __call__(self, scores, allowed, queries, keys):
        weights = _where(allowed, scores)
        total = weights.sum(-1, keepdims=True)
        return weights / jnp.where(total == 0, 1.0, total)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Decay:
    """s · γ^|i-j|, one γ for each head (RetNet, Sun Y. et al. 2023, equation 5)."""

    gamma_H: jax.Array
    normalizes: ClassVar[bool] = False

    def fading(self, distance, num_groups):
        return self.gamma_H.reshape(num_groups, -1, 1, 1) ** distance.astype(jnp.float32)

    def __call__(self, scores, allowed, queries, keys):
        distance = jnp.abs(queries.distance_from(keys))[:, None, None]
        return _where(allowed, scores * self.fading(distance, scores.shape[1]))


def elu_features(x: jax.Array) -> jax.Array:
    """elu(x) + 1, float32 (Katharopoulos et al. 2020, equation 7): of negative x it is exp(x)."""
    x = x.astype(jnp.float32)
    return jnp.where(x > 0, x + 1, jnp.exp(jnp.where(x > 0, 0.0, x)))  # a minimum halves the slope at 0


def random_features(x_BLHK: jax.Array, directions_FK: jax.Array) -> jax.Array:
    """exp(ωx - ‖x‖²/2) / √F: positive features whose products are exp(q·k) on average (Choromanski et al. 2020).

    Equation 7 of the paper (FAVOR+), float32; the directions ω are standard normal. As in the authors'
    code 1e-6 is added to the exponential: features that all vanish would give 0/0.
    """
    x = x_BLHK.astype(jnp.float32)
    exponent = x @ directions_FK.T - (x * x).sum(-1, keepdims=True) / 2
    return (jnp.exp(exponent) + 1e-6) / math.sqrt(len(directions_FK))
