"""A program as it would be with floats of 64 bits."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from transformer.functional.dense import dense
from transformer.testing.double import in_float64


def every_kind(x, table, tokens):
    """Calls, a loop of each kind, a choice, a scatter, a rule of its own for gradients, and a rounding."""
    x = jax.checkpoint(jax.nn.silu)(dense(x, table.T @ table))
    x, sums = lax.scan(lambda carry, row: (carry + row, (carry * row).sum()), x, jnp.stack([x, 2 * x]), reverse=True)
    x = jnp.sin(x) + lax.while_loop(lambda i: i < tokens.max(), lambda i: i + 2, 0).astype(x.dtype)
    x = lax.cond(tokens[0] > 0, lambda x: x / 3, lambda x: x * 3, x)
    return (x.at[tokens].add(1.25).astype(jnp.bfloat16).astype(jnp.float32) ** 2).sum() + sums.sum()


def test_every_float_has_64_bits():
    """The answer and the gradient of float64 inputs, to more digits than float32 has; integers stay."""
    rng = np.random.default_rng(0)
    x, table, tokens = rng.normal(size=(3, 4)), rng.normal(size=(5, 4)), np.array([2, 0, 2], np.int32)
    singles = x.astype(np.float32), table.astype(np.float32)
    found, gradient = in_float64(jax.jit(jax.value_and_grad(every_kind)), *singles, tokens)
    with jax.enable_x64(True):
        function = jax.value_and_grad(lambda x, table: _in_numpy(x, table, tokens))
        expected, expected_gradient = function(*(jnp.asarray(a.astype(np.float64)) for a in singles))
    assert found.dtype == gradient.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-11)
    assert abs(found / jax.jit(every_kind)(*singles, tokens) - 1) > 1e-9


def _in_numpy(x, table, tokens):
    """`every_kind` written out, without loops and roundings."""
    x = x @ (table.T @ table)
    x = x / (1 + jnp.exp(-x))
    sums = (x * 2 * x).sum() + (3 * x * x).sum()
    x = jnp.sin(4 * x) + 2
    return ((x / 3).at[tokens].add(1.25) ** 2).sum() + sums
