"""The dense product of the whole project."""

import jax
import jax.numpy as jnp
from jax import lax


@jax.custom_vjp
def dense(x: jax.Array, kernel_DF: jax.Array) -> jax.Array:
    """`x @ kernel` with the kernel cast to the dtype of `x`.

    Args:
      x: (..., D), any float dtype: the compute dtype.
      kernel_DF: (D, F), the parameter dtype.

    Returns:
      (..., F) in the dtype of `x`. The kernel's gradient is accumulated in float32 and comes back
      in the kernel's own dtype.
    """
    return x @ kernel_DF.astype(x.dtype)


def _forward(x, kernel_DF):
    return dense(x, kernel_DF), (x, kernel_DF)


def _backward(residuals, dy):
    """Weight gradient as xᵀ·dy over flattened tokens, behind a barrier on dy.

    JAX's own transpose rule makes dy the transposed operand, and XLA on CPU then fuses the whole
    backward pass of the activation into that strided copy: 1.7 times the step time of a small
    language model. `experiments/benchmarks/training.py` measures it.
    """
    x, kernel_DF = residuals
    dy = lax.optimization_barrier(dy)
    x_TD, dy_TF = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
    dkernel_DF = lax.dot_general(x_TD, dy_TF, (((0,), (0,)), ((), ())), preferred_element_type=jnp.float32)
    return dy @ kernel_DF.T.astype(dy.dtype), dkernel_DF.astype(kernel_DF.dtype)


dense.defvjp(_forward, _backward)
