"""Directions of update rules, for given gradients of a matrix in three layers, a number and an embedding."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.parameters import Parameter

SPECS = {"blocks": {"kernel": Parameter((4, 6)), "gate": Parameter(())}, "table": Parameter((5, 4))}


def _arrays(seed):
    """Values of `SPECS`, of which those of blocks are stacked over three layers; float32."""
    rng = np.random.default_rng(seed)
    shapes = {"blocks": {"kernel": (3, 4, 6), "gate": (3,)}, "table": (5, 4)}
    return jax.tree.map(
        lambda shape: rng.normal(size=shape).astype(np.float32), shapes, is_leaf=lambda shape: isinstance(shape, tuple)
    )


@pytest.fixture
def gradients() -> list:
    return [_arrays(seed) for seed in range(1, 7)]


@pytest.fixture
def directions() -> Callable:
    """The rule's direction after each gradient, at parameters that do not move."""

    def of(rule, gradients):
        params = jax.tree.map(jnp.asarray, _arrays(0))
        made, found = rule.direction(SPECS), []
        with jax.numpy_dtype_promotion("standard"):
            state = made.init(params)
            for gradient in gradients:
                direction, state = made.update(jax.tree.map(jnp.asarray, gradient), state, params)
                found.append(jax.tree.map(np.asarray, direction))
        return found

    return of
