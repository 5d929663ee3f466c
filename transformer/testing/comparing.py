"""How two results are compared, and what a property says where it does not apply."""

import math

import jax
import numpy as np

from transformer.core.modules import Params

CLOSE = 2e-4
"""Largest difference of logits that were computed in another order, relative to the largest of them."""
ROUNDING = 2e-5
"""Largest difference to float64; the shipped options differed by 3e-6 at most with both in XLA (2026-11-21)."""
HALF = 0.05
"""Largest difference to bfloat16; the shipped options differed by 0.037 at most with both in XLA (2026-11-22)."""


class DoesNotApply(Exception):
    """A property does not apply to a subject: it neither holds nor fails there."""


def applies(condition: bool) -> None:
    """Raise `DoesNotApply` unless the condition holds."""
    if not condition:
        raise DoesNotApply


def close(left, right, what: str, tolerance: float = CLOSE) -> None:
    """Fail where two arrays differ by more than rounding."""
    difference = _largest_difference(left, right) / (np.abs(right).max() + 1e-6)
    assert difference <= tolerance, f"{what}: differs by {difference:.1e} of the largest value"


def _largest_difference(left, right) -> float:
    """The largest difference of two arrays in one place; NaN, which no tolerance allows, unless all is finite."""
    left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
    return np.abs(left - right).max() if np.isfinite(left).all() and np.isfinite(right).all() else math.nan


def differ(left, right, what: str) -> None:
    """Fail where two arrays are the same up to rounding."""
    left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
    assert np.abs(left - right).max() > CLOSE / 10 * np.abs(right).max(), f"{what}: no difference"


def close_gradients(gradient: Params, expected: Params, what: str, tolerance: float = CLOSE) -> None:
    size = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(expected))
    for (path, left), right in zip(jax.tree.leaves_with_path(gradient), jax.tree.leaves(expected), strict=True):
        difference = _largest_difference(left, right)
        assert difference <= tolerance * size, f"{what}: another gradient of {jax.tree_util.keystr(path)}"
