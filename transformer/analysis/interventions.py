"""Interventions: functions of an activation, for `intervene` and `run_with_cache`; and a sweep of them.

Any function of an array is an intervention: `lambda x: 2 * x` scales, `jnp.zeros_like` silences.
"""

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from transformer.analysis.activations import Intervention, intervene, run_with_cache
from transformer.core.errors import ConfigError
from transformer.core.modules import Apply, Params


@dataclass(frozen=True)
class Ablation:
    """An intervention on `z` (B, L, H, K): the outputs of some heads become zero, or their mean."""

    heads: tuple[int, ...]
    by_mean: bool
    activation: ClassVar[str] = "z"

    def __call__(self, z_BLHK: jax.Array) -> jax.Array:
        instead = z_BLHK.mean((0, 1)) if self.by_mean else jnp.zeros_like(z_BLHK)
        return jnp.where(_chosen(self.heads, z_BLHK.shape[2], "heads")[:, None], instead, z_BLHK)


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
      positions: on axis 1, a number, several or a slice; by default all.
      heads: on axis 2 at each of these positions; by default all. A head or position that the activation
        does not have raises ConfigError when applied.
    """

    def replace(x):
        if jnp.shape(other)[1:] != x.shape[1:] or len(other) not in (1, len(x)):
            raise ConfigError(f"patch: an activation {jnp.shape(other)} for one {x.shape}")
        chosen = _chosen(positions, x.shape[1], "positions")
        if not isinstance(heads, slice) or heads != slice(None):
            chosen = chosen[:, None] & _chosen(heads, x.shape[2], "heads")
        return jnp.where(chosen.reshape(*chosen.shape, *[1] * (x.ndim - 1 - chosen.ndim)), other, x)

    return replace


def _chosen(indices: Any, size: int, what: str) -> jax.Array:
    """Whether each of `size` numbers is among the indices, (size,) bool."""
    if isinstance(indices, slice):
        if indices.start is not None and indices.start >= size:
            raise ConfigError(f"{what}: there is none at {indices.start} to {indices.stop} among {size}")
    elif not isinstance(indices, Tracer):
        indices = np.atleast_1d(indices)
        if not indices.size:
            return jnp.zeros(size, jnp.bool)
        if indices.dtype == bool:
            if indices.shape != (size,):
                raise ConfigError(f"{what}: {indices.size} truth values for {size}")
        elif wrong := [int(i) for i in indices.reshape(-1) if not -size <= i < size]:
            raise ConfigError(f"{what}: there is no {wrong[0]} among {size}")
    return jnp.zeros(size, jnp.bool).at[indices].set(True)


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
      ConfigError: one of the activations has heads on axis 1, or `by_head` and it has none.
    """
    clean, corrupted = (given if isinstance(given, tuple | list) else (given,) for given in (clean, corrupted))
    patterns = [names] if isinstance(names, str) else list(names)
    shapes = [jax.tree.map(jnp.shape, list(given)) for given in (clean, corrupted)]
    if shapes[0] != shapes[1]:
        raise ConfigError(f"patching_effects: inputs {shapes[0]} and {shapes[1]}, which need the same shapes")
    _, activations = run_with_cache(apply, params, *clean, names=patterns)
    asked = [name for pattern in patterns for name in fnmatch.filter(activations, pattern)]

    for name in asked:
        own = name.rpartition(".")[2]
        if own in ("scores", "pattern"):
            raise ConfigError(f"patching_effects: {name} has heads on axis 1, not positions; its layer's z has them")
        if by_head and own not in ("q", "k", "v", "z"):
            raise ConfigError(f"patching_effects: {name} has no heads; q, k, v and z of attention have them")

    def effects(name: str) -> jax.Array:
        def effect(one):
            place = {"heads": one} if by_head else {"positions": one}
            return measure(intervene(apply, {name: patch(activations[name], **place)})(params, *corrupted))

        return jax.jit(jax.vmap(effect))(jnp.arange(activations[name].shape[2 if by_head else 1]))

    return {name: effects(name) for name in asked}
