"""The matrix product of every dense layer, with its own rule for gradients."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike


def dense(x: jax.Array, kernel_DF: jax.Array, dtype: DTypeLike | None = None) -> jax.Array:
    """`x @ kernel` with the kernel cast to the dtype of `x`.

    Args:
      x: (..., D), in the compute dtype, any float.
      kernel_DF: (D, F), in the parameter dtype.
      dtype: of the result, in which the sums are accumulated without rounding; None: that of `x`.

    Returns:
      (..., F) in that dtype. The kernel's gradient is accumulated in float32 and comes back
      in the kernel's own dtype.
    """
    return _dense(x, kernel_DF, dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _dense(x, kernel_DF, dtype):
    return _product(x, kernel_DF, dtype)


def _product(x, kernel_DF, dtype):
    return jnp.matmul(x, kernel_DF.astype(x.dtype), preferred_element_type=dtype)


def _forward(x, kernel_DF, dtype):
    # The bare product: a call of `dense` would hide it from rematerialization policies.
    return _product(x, kernel_DF, dtype), (x, kernel_DF)


def _backward(dtype, residuals, dy):
    x, kernel_DF = residuals
    dy = lax.optimization_barrier(dy.astype(x.dtype))
    x_TD, dy_TF = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
    return dy @ kernel_DF.T.astype(dy.dtype), _kernel_gradient(x_TD, dy_TF).astype(kernel_DF.dtype)


def _kernel_gradient(x_TD, dy_TF):
    """xᵀ·dy over all tokens, (D, F) float32.

    Two habits of XLA on CPU decide its shape; `experiments/benchmarks/training.py` measures both.
    JAX's own transpose rule makes dy the transposed operand, and the whole backward pass of the
    activation is fused into that strided copy: 1.7 times the step of a small language model, hence
    the barrier on dy. A product whose output is narrow runs at half the rate of its transpose (57
    against 104 GFLOP/s on one core for 768 tokens, 512 to 128), hence the second barrier.
    """
    product = functools.partial(
        lax.dot_general, dimension_numbers=(((0,), (0,)), ((), ())), preferred_element_type=jnp.float32
    )
    if x_TD.shape[1] > dy_TF.shape[1]:
        return lax.optimization_barrier(product(dy_TF, x_TD)).T
    return product(x_TD, dy_TF)


_dense.defvjp(_forward, _backward)
