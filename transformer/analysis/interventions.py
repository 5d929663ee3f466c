"""Interventions: functions of an activation, for `intervene` and `run_with_cache`; and a sweep of them.

Any function of an array is an intervention: `lambda x: 2 * x` scales, `jnp.zeros_like` silences.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from transformer.analysis.activations import Intervention, intervene, run_with_cache
from transformer.models.pure import Apply, Params


def ablate_heads(*heads: int, by_mean: bool = False) -> Intervention:
    """An intervention on `z` (B, L, H, K): zero the outputs of these heads or, with `by_mean`, replace them by their
    mean over batch and tokens."""

    def ablate(z_BLHK):
        chosen_HK = jnp.isin(jnp.arange(z_BLHK.shape[2]), jnp.asarray(heads))[:, None]
        instead = z_BLHK.mean((0, 1)) if by_mean else jnp.zeros_like(z_BLHK)
        return jnp.where(chosen_HK, instead, z_BLHK)

    return ablate


def patch(other: jax.Array, *, positions: Any = slice(None), heads: Any = None) -> Intervention:
    """An intervention that copies the activation from another run at these positions (axis 1) and heads (axis 2).

    Args:
      other: the activation of that run, of the same shape.
      positions: an index or slice of axis 1.
      heads: an index or slice of axis 2; None: all.
    """

    def replace(x):
        place = (slice(None), positions) if heads is None else (slice(None), positions, heads)
        return x.at[place].set(other[place])

    return replace


def patching_effects(
    apply: Apply,
    params: Params,
    clean: tuple[Any, ...],
    corrupted: tuple[Any, ...],
    names: Sequence[str],
    measure: Callable[[Any], jax.Array],
) -> jax.Array:
    """(names, L): the measure of a corrupted run with one activation of the clean run at one position.

    (Activation patching: Vig et al. 2020; Meng et al. 2022, section 2.1, causal tracing.)

    Args:
      apply: from `split`.
      params: its parameters.
      clean: inputs whose activations are copied.
      corrupted: inputs of the same shapes.
      names: activations with positions on axis 1.
      measure: maps the result of `apply` to a scalar, such as a difference of two logits.
    """
    _, activations = run_with_cache(apply, params, *clean, names=names)

    def effect(name, position):
        return measure(intervene(apply, {name: patch(activations[name], positions=position)})(params, *corrupted))

    lengths = {name: activations[name].shape[1] for name in names}
    return jnp.stack(
        [jax.jit(jax.vmap(lambda p, name=name: effect(name, p)))(jnp.arange(lengths[name])) for name in names]
    )
