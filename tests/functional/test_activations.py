"""Activations: their formulas in plain Python, derivatives, and large inputs."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.functional import activations

POINTS = np.array([-30.0, -4.0, -1.5, -1.0, -0.1, 0.3, 1.0, 2.5, 4.0, 30.0])


def gelu(x):
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def gelu_tanh(x):
    return x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


FORMULAS = [
    (activations.gelu, gelu),
    (activations.gelu_tanh, gelu_tanh),
    (activations.relu, lambda x: max(x, 0.0)),
    (activations.silu, lambda x: x * sigmoid(x)),
    (activations.sigmoid, sigmoid),
    (activations.identity, lambda x: x),
]


@pytest.mark.parametrize(("function", "formula"), FORMULAS)
def test_equals_formula(function, formula):
    """Values at and far from zero."""
    np.testing.assert_allclose(function(jnp.asarray(POINTS, jnp.float32)), [formula(x) for x in POINTS], atol=1e-6)


@pytest.mark.parametrize(("function", "formula"), FORMULAS)
def test_derivative(function, formula):
    """The derivative is that of the formula by central differences."""
    slopes = jax.vmap(jax.grad(function))(jnp.asarray(POINTS, jnp.float32))
    expected = [(formula(x + 1e-5) - formula(x - 1e-5)) / 2e-5 for x in POINTS]
    np.testing.assert_allclose(slopes, expected, atol=1e-5)


@pytest.mark.parametrize(("function", "formula"), FORMULAS)
def test_extremes(function, formula):
    """Zero is exact; a million on either side is finite with a finite derivative; the dtype stays."""
    assert float(function(jnp.float32(0))) == formula(0.0)
    far = jnp.array([-1e6, 1e6], jnp.float32)
    assert np.isfinite(function(far)).all()
    assert np.isfinite(jax.vmap(jax.grad(function))(far)).all()
    assert function(far.astype(jnp.bfloat16)).dtype == jnp.bfloat16
