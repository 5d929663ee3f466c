"""The linear layer, and the matrix product of every dense layer with its own rule for gradients."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax
from jax.typing import DTypeLike

from transformer.core.devices import MODEL, axis_size
from transformer.core.modules import at, make_parameter
from transformer.core.parameters import ZEROS, Initializer, Parameter

HALVED_FROM = 2**17
"""Weights from which a product of one row is computed in halves."""


TURNED_TO = 8
"""Rows up to which a product with a transposed kernel is computed as its transpose."""


def dense(x: jax.Array, kernel_DF: jax.Array, dtype: DTypeLike | None = None, *, transposed: bool = False) -> jax.Array:
    """`x @ kernel` with the kernel cast to the dtype of `x`.

    Args:
      x: (..., D), in the compute dtype, any float.
      kernel_DF: (D, F), in the parameter dtype.
      dtype: of the result, in which the sums are accumulated without rounding; None: that of `x`.
      transposed: whether the kernel is stored as (F, D), which decides how it is read fastest.

    Returns:
      (..., F) in that dtype. The kernel's gradient is accumulated in float32 and comes back
      in the kernel's own dtype.
    """
    D = len(kernel_DF)
    rows, product = x.size // D, _product
    if jax.default_backend() == "cpu":
        if rows == 1 and not transposed and kernel_DF.size >= HALVED_FROM and D % 2 == 0:
            product = _product_in_halves
        elif transposed and 1 < rows <= TURNED_TO:
            product = _product_turned
    return _dense(x, kernel_DF, dtype, product)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _dense(x, kernel_DF, dtype, product):
    return product(x, kernel_DF.astype(x.dtype), dtype)


def _product(x, kernel_DF, dtype):
    return jnp.matmul(x, kernel_DF, preferred_element_type=dtype)


def _product_in_halves(x, kernel_DF, dtype):
    """The product of a single row, as the sum of two.

    XLA on CPU computes a product of one row and, say, 384 x 384 weights on one core, but a batch of two on all:
    20 GB/s of weights in place of 10, and 1.3 times the tokens of a model of that width
    (`experiments/benchmarks/decoding.py`). Products of several rows, and with a transposed kernel, are slower so.
    """
    x_2D, kernel_2DF = x.reshape(2, -1), kernel_DF.reshape(2, -1, kernel_DF.shape[1])
    halves_2F = jnp.einsum("nd,ndf->nf", x_2D, kernel_2DF, preferred_element_type=jnp.float32)
    return halves_2F.sum(0).astype(dtype or x.dtype).reshape(*x.shape[:-1], -1)


def _product_turned(x, kernel_DF, dtype):
    """The product of a few rows and a kernel that is stored as (F, D), as (F, D) times their transpose.

    XLA on CPU would turn the whole kernel for every product: 1.1 to 2.4 times the time for two to eight rows and
    256 x 256 to 32,000 x 256 weights.
    """
    x_RD, kernel_FD = x.reshape(-1, x.shape[-1]), kernel_DF.T
    y_FR = lax.dot_general(kernel_FD, x_RD, (((1,), (1,)), ((), ())), preferred_element_type=dtype)
    # Without the barrier XLA turns the product back.
    return lax.optimization_barrier(y_FR).T.reshape(*x.shape[:-1], -1)


def _forward(x, kernel_DF, dtype, product):
    # The bare product: a call of `dense` would hide it from rematerialization policies.
    return product(x, kernel_DF.astype(x.dtype), dtype), (x, kernel_DF)


def _backward(dtype, product, residuals, dy):
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


class Dense(nnx.Module):
    """x · kernel + bias, with a (D, F) kernel."""

    def __init__(
        self, d_in: int, d_out: int, *, initializer: Initializer, bias: bool, key: jax.Array, gain: float = 1.0
    ):
        self.kernel = make_parameter(Parameter((d_in, d_out), initializer, gain=gain), at(key, "kernel"))
        self.bias = make_parameter(Parameter((d_out,), ZEROS), at(key, "bias")) if bias else None

    def __call__(self, x: jax.Array) -> jax.Array:
        return fused(x, [self])[0]


def fused(x: jax.Array, layers: Sequence[Dense]) -> list[jax.Array]:
    """The outputs of several layers with the same input, from one product with their concatenated kernels.

    Kernels cut into columns over several devices are not concatenated: no device has adjacent columns of all.
    """
    kernels = [layer.kernel[...] for layer in layers]
    if len(kernels) == 1 or axis_size(MODEL) > 1:
        parts = [dense(x, kernel) for kernel in kernels]
    else:
        ends = np.cumsum([kernel.shape[1] for kernel in kernels])[:-1]
        parts = jnp.split(dense(x, jnp.concatenate(kernels, 1)), ends, axis=-1)
    return [
        part if layer.bias is None else part + layer.bias[...].astype(part.dtype)
        for part, layer in zip(parts, layers, strict=True)
    ]
