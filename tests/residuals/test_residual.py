"""How sublayers are connected to the stream."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.norms.norm import LayerNorm, layer_norm
from transformer.residuals.residual import (
    BranchNorm,
    DeepNorm,
    Depth,
    NoNormResidual,
    PeriNorm,
    PostNorm,
    PreNorm,
    ResidualLayer,
    SandwichNorm,
    ScaledPreNorm,
)

KEY = jax.random.key(0)
X = jnp.asarray(np.random.default_rng(0).normal(size=(1, 8, 16)), jnp.float32)


@pytest.mark.parametrize(
    ("residual", "expected"),
    [
        (NoNormResidual(), lambda x: x + np.sin(x)),
        (PreNorm(), lambda x: x + np.sin(2 * x)),
        (PostNorm(), lambda x: 5 * (x + np.sin(x))),
        (SandwichNorm(), lambda x: x + 3 * np.sin(2 * x)),
        (PeriNorm(), lambda x: x + 3 * np.sin(2 * x)),
        (BranchNorm(), lambda x: x + 3 * np.sin(x)),
        (ScaledPreNorm(), lambda x: x + np.sin(2 * x / 2)),  # √4 in the fourth block
        (DeepNorm(), lambda x: 5 * (2 * x + np.sin(x))),  # (2 · 8)^¼
        (DeepNorm(7.0), lambda x: 5 * (7 * x + np.sin(x))),
    ],
    ids=lambda value: "" if callable(value) and not hasattr(value, "name") else str(value),
)
def test_residual_wiring(residual, expected):
    """Where norms and factors sit: multiplication by 2, 3 and 5 in place of the input, branch and output norm."""
    connection, depth = ResidualLayer(residual, LayerNorm(), 16, "connection", key=KEY), Depth(3, 8, 0, 2, 16)
    assert set(connection.norms) == set(residual.norms)
    norms = {"input": lambda x: 2 * x, "branch": lambda x: 3 * x, "output": lambda x: 5 * x}
    out = residual(X, jnp.sin, {name: norms[name] for name in residual.norms}, {}, depth)
    chex.assert_trees_all_close(out, expected(np.asarray(X)), atol=1e-5)
    real = residual(X, jnp.sin, dict.fromkeys(residual.norms, layer_norm), {}, depth)
    chex.assert_trees_all_close(connection(X, jnp.sin, depth), real, atol=1e-6)
