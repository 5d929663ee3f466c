"""Interventions: functions of an activation, for `intervene` and `run_with_cache`; and a sweep of them.

Any function of an array is an intervention: `lambda x: 2 * x` scales, `jnp.zeros_like` silences.
"""

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from transformer.analysis.activations import Intervention, intervene, run_with_cache
from transformer.core.errors import ConfigError
from transformer.core.modules import Apply, Params

WITH_HEADS = ("q", "k", "v", "z")
"""Activations with heads on axis 2."""


@dataclass(frozen=True)
class Ablation:
    """An intervention on `z` (B, L, H, K): the outputs of some heads become zero, or their mean."""

    heads: tuple[int, ...]
    by_mean: bool

    def unfit(self, name: str) -> str | None:
        return None if name == "z" else "no outputs of heads; its layer's z has them"

    def __call__(self, z_BLHK: jax.Array) -> jax.Array:
        instead = z_BLHK.mean((0, 1)) if self.by_mean else jnp.zeros_like(z_BLHK)
        return jnp.where(_chosen(self.heads, z_BLHK.shape[2], "heads")[:, None], instead, z_BLHK)


@dataclass(frozen=True, eq=False)
class Patch:
    """An intervention that copies an activation (B, L, …) from another run, at some positions and heads."""

    other: jax.Array
    positions: Any
    heads: Any

    def unfit(self, name: str) -> str | None:
        if not _is_all(self.heads) and name not in WITH_HEADS:
            return "no heads; q, k, v and z of attention have them"
        if not _is_all(self.positions) and name in ("scores", "pattern"):
            return "heads on axis 1, not positions; its layer's z has them"
        return None

    def __call__(self, x: jax.Array) -> jax.Array:
        other = self.other
        if (other.shape[1:], other.dtype) != (x.shape[1:], x.dtype) or len(other) not in (1, len(x)):
            raise ConfigError(f"patch: an activation {other.dtype}{other.shape} for one {x.dtype}{x.shape}")
        chosen = _chosen(self.positions, x.shape[1], "positions")
        if not _is_all(self.heads):
            chosen = chosen[:, None] & _chosen(self.heads, x.shape[2], "heads")
        return jnp.where(chosen.reshape(*chosen.shape, *[1] * (x.ndim - 1 - chosen.ndim)), other, x)


def _is_all(indices: Any) -> bool:
    return isinstance(indices, slice) and indices == slice(None)


def ablate_heads(*heads: int, by_mean: bool = False) -> Intervention:
    """An intervention on `z` (B, L, H, K): the outputs of these heads become zero.

    Args:
      heads: their numbers, from 0; one that the layer does not have raises ConfigError when applied.
      by_mean: whether they become their mean over batch and tokens instead; in decoding, where one token is read at a
        time, over the batch alone.

    Raises:
      ConfigError: one of them is no number.
    """
    if wrong := [head for head in heads if not isinstance(head, int | np.integer)]:
        raise ConfigError(f"ablate_heads: {wrong[0]!r} is no number of a head; ablate_heads(0, 2) is of two")
    return Ablation(heads, by_mean)


def patch(other: jax.Array, *, positions: Any = slice(None), heads: Any = slice(None)) -> Intervention:
    """An intervention that copies the activation from another run at some positions and heads.

    Args:
      other: that activation, (B, L, …), or (B, L, H, …) where heads are chosen; one sequence is for all.
      positions: on axis 1, a number, several, a slice or a truth value for each; by default all.
      heads: on axis 2 at each of these positions, likewise; by default all.

    Raises:
      ConfigError: when applied, the activation has no such head or position (where their numbers are traced, they are
        not looked at), or is of another shape or dtype.
    """
    if not isinstance(other, jax.Array | np.ndarray):
        raise ConfigError(f"patch: a {type(other).__name__} is given, not the activation of another run")
    return Patch(other, positions, heads)


def _chosen(indices: Any, size: int, what: str) -> jax.Array:
    """Whether each of `size` numbers is among the indices, (size,) bool."""
    if isinstance(indices, slice):
        if wrong := [i for i in (indices.start, indices.stop) if i is not None and not -size <= i <= size]:
            raise ConfigError(f"{what}: a slice to or from {wrong[0]} among {size}")
        indices = np.arange(size)[indices]
    if isinstance(indices, Tracer):
        return jnp.zeros(size, jnp.bool).at[indices].set(True)
    numbers = np.atleast_1d(indices)
    if not numbers.size:
        return jnp.zeros(size, jnp.bool)
    if numbers.ndim > 1 or numbers.dtype.kind not in "biu":
        raise ConfigError(f"{what}: {indices!r} is neither a number nor a sequence of numbers")
    if numbers.dtype == bool and len(numbers) != size:
        raise ConfigError(f"{what}: {len(numbers)} truth values for {size}")
    if numbers.dtype != bool and (wrong := [int(i) for i in numbers if not -size <= i < size]):
        raise ConfigError(f"{what}: there is no {wrong[0]} among {size}")
    return jnp.zeros(size, jnp.bool).at[numbers].set(True)


def patching_effects(
    apply: Apply,
    params: Params,
    clean: jax.Array | Sequence[Any],
    corrupted: jax.Array | Sequence[Any],
    names: str | Sequence[str],
    measure: Callable[[Any], jax.Array],
    by_head: bool = False,
) -> dict[str, jax.Array]:
    """By name of an activation, the measure of a corrupted run with that of the clean run at one position, (L,).

    (Activation patching: Vig et al. 2020; Meng et al. 2022, section 2.1, causal tracing.)

    Args:
      apply: from `split`.
      params: its parameters.
      clean: inputs whose activations are copied, a tuple of them or one array.
      corrupted: inputs of the same shapes.
      names: activations with positions on axis 1, or patterns with `*`.
      measure: maps the result of `apply` to a scalar, such as a difference of two logits.
      by_head: whether one head is copied at all positions, in place of one position with all heads: (H,).

    Raises:
      ConfigError: one of the activations has heads on axis 1, or `by_head` and it has none; the measure is no scalar.
    """
    clean, corrupted = (given if isinstance(given, tuple | list) else (given,) for given in (clean, corrupted))
    patterns = [names] if isinstance(names, str) else list(names)
    shapes = [jax.tree.map(jnp.shape, list(given)) for given in (clean, corrupted)]
    if shapes[0] != shapes[1]:
        raise ConfigError(f"patching_effects: inputs {shapes[0]} and {shapes[1]}, which need the same shapes")
    _, activations = run_with_cache(apply, params, *clean, names=patterns)
    asked = [name for pattern in patterns for name in fnmatch.filter(activations, pattern)]

    def effects(name: str) -> jax.Array:
        def effect(one):
            place = {"heads": one} if by_head else {"positions": one}
            found = measure(intervene(apply, {name: patch(activations[name], **place)})(params, *corrupted))
            if jnp.shape(found):
                raise ConfigError(f"patching_effects: measure gives an array {jnp.shape(found)}, not a number")
            return found

        return jax.lax.map(effect, jnp.arange(activations[name].shape[2 if by_head else 1]))

    return {name: effects(name) for name in asked}
