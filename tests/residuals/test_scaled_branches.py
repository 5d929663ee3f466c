"""Connections with a factor on the branch."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.residuals.residual import DeepNorm, Depth, NoNormResidual, PostNorm
from transformer.residuals.scaled_branches import Fixup, LayerScale, ReZero, TFixup

X = np.random.default_rng(0).normal(size=(1, 8, 16)).astype(np.float32)
FEATURES = np.linspace(-1, 1, 16).astype(np.float32)
NORMS = {"input": lambda x: 2 * x, "branch": lambda x: 3 * x, "output": lambda x: 5 * x}
CONNECTIONS = {
    "rezero": (ReZero(), {"branch": -0.5}, lambda x: x - 0.5 * np.sin(x)),
    "rezero, post": (ReZero(placement=PostNorm()), {"branch": -0.5}, lambda x: 5 * (x - 0.5 * np.sin(x))),
    "rezero, deepnorm": (
        ReZero(placement=DeepNorm(7.0)),
        {"branch": -0.5},
        lambda x: 5 * (7 * x - 0.5 * np.sin(x)),
    ),
    "layerscale": (LayerScale(), {"branch": FEATURES}, lambda x: x + FEATURES * np.sin(2 * x)),
    "layerscale, none": (
        LayerScale(placement=NoNormResidual()),
        {"branch": FEATURES},
        lambda x: x + FEATURES * np.sin(x),
    ),
    "t_fixup": (TFixup(), {}, lambda x: x + np.sin(x)),
    "fixup": (Fixup(), {"multiplier": 3.0, "bias": 0.25}, lambda x: x + 3 * np.sin(x + 0.25)),
}


@pytest.mark.parametrize(("residual", "params", "expected"), CONNECTIONS.values(), ids=CONNECTIONS)
def test_the_factor_is_on_the_branch(residual, params, expected):
    """Multiplication by 2, 3 and 5 in place of the input, branch and output norm."""
    assert {name: spec.shape for name, spec in residual.parameters(16).items()} == {
        name: np.shape(value) for name, value in params.items()
    }
    norms, params = {name: NORMS[name] for name in residual.norms}, {k: jnp.asarray(v) for k, v in params.items()}
    chex.assert_trees_all_close(
        residual(jnp.asarray(X), jnp.sin, norms, params, Depth(3, 8, 0, 2, 16)), expected(X), atol=1e-5
    )


@pytest.mark.parametrize(
    ("residual", "value"), [(ReZero(), 0.0), (ReZero(0.2), 0.2), (LayerScale(), 0.1), (LayerScale(1e-5), 1e-5)]
)
def test_the_initial_factor_is_that_of_the_field(residual, value):
    np.testing.assert_allclose(residual.parameters(4)["branch"].initial_value(jax.random.key(0)), value, rtol=1e-6)
