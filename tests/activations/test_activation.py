"""Activations: their formulas in plain Python, derivatives, and large inputs."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.activations import activation as activations
from transformer.activations.activation import (
    CELU,
    ELU,
    SELU,
    ClampedSwiGLU,
    LeakyReLU,
    Mish,
    QuickGELU,
    Squareplus,
    Swish,
    solu,
)

POINTS = np.array([-30.0, -4.0, -1.5, -1.0, -0.1, 0.3, 1.0, 2.5, 4.0, 30.0])


def gelu(x):
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def gelu_tanh(x):
    return x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def clamped(x, limit):
    """min(x, limit) σ(1.702 min(x, limit)) (v + 1) with v = 2x in [-limit, limit]."""
    gate, value = min(x, limit), max(min(2 * x, limit), -limit)
    return gate * (math.exp(1.702 * gate) / (1 + math.exp(1.702 * gate))) * (value + 1)


FORMULAS = [
    (activations.gelu, gelu),
    (activations.gelu_tanh, gelu_tanh),
    (activations.swish, lambda x: x * sigmoid(x)),
    (lambda x: activations.swish(x, 1.702), lambda x: x * sigmoid(1.702 * x)),
    (activations.squared_relu, lambda x: max(x, 0.0) ** 2),
    (Mish(), lambda x: x * math.tanh(math.log1p(math.exp(x)))),
    (ELU(0.5), lambda x: x if x > 0 else (math.exp(x) - 1) / 2),
    (CELU(2.0), lambda x: x if x > 0 else 2 * (math.exp(x / 2) - 1)),
    (SELU(), lambda x: 1.0507009873554805 * (x if x > 0 else 1.6732632423543772 * (math.exp(x) - 1))),
    (Squareplus(4.0), lambda x: (x + math.sqrt(x * x + 4)) / 2),
    (LeakyReLU(0.1), lambda x: x if x > 0 else 0.1 * x),
    (lambda x: ClampedSwiGLU(limit=3.5)(x, 2 * x), lambda x: clamped(x, 3.5)),
    (LeakyReLU(0.5, squared=True), lambda x: x * x if x > 0 else x * x / 4),
    (QuickGELU(), lambda x: x * sigmoid(1.702 * x)),
    (Swish(0.5), lambda x: x * sigmoid(0.5 * x)),
    (lambda x: ClampedSwiGLU(alpha=0.5)(x, jnp.zeros_like(x)), lambda x: min(x, 7.0) * sigmoid(0.5 * min(x, 7.0))),
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
    assert function(jnp.float32(0)) == np.float32(formula(0.0))
    far = jnp.array([-1e6, 1e6], jnp.float32)
    assert np.isfinite(function(far)).all()
    assert np.isfinite(jax.vmap(jax.grad(function))(far)).all()
    assert function(far.astype(jnp.bfloat16)).dtype == jnp.bfloat16


@pytest.mark.parametrize(("function", "formula"), FORMULAS[:2])
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_the_tail_of_gelu_has_digits(function, formula, dtype):
    """1 + erf would be 0 from -3.25 on."""
    points = jnp.asarray([-2.0, -2.5, -3.0, -3.25, -3.5], dtype)
    np.testing.assert_allclose(function(points).astype(jnp.float32), [formula(float(x)) for x in points], rtol=0.05)


def test_solu_by_hand():
    x = np.array([-1.0, 0.5, 2.0], np.float32)
    np.testing.assert_allclose(solu(jnp.asarray(x)), x * np.exp(x) / np.exp(x).sum(), rtol=1e-5)
