"""What all rooms do with arrays: products, dropout, and how they are laid out over devices.

The layout of the residual stream is all a model says of devices; without a mesh, nothing. The program that runs a model
names its mesh while it is traced (`jax.sharding.use_abstract_mesh`); the compiler cuts everything else as parameters,
batch and stream are cut.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec
from jax.typing import DTypeLike

REPLICA, DATA, MODEL = "replica", "data", "model"
"""Axes of a mesh, over which independent runs, the sequences of a batch and the parts of a layer are divided."""


def axis_size(axis: str) -> int:
    """Devices along an axis of the mesh in use; 1 where there is none."""
    mesh = jax.sharding.get_abstract_mesh()
    return mesh.shape[axis] if axis in mesh.auto_axes else 1


def divided() -> bool:
    """Whether the compiler divides the work of one model over devices."""
    return DATA in jax.sharding.get_abstract_mesh().auto_axes


def constrain(x: jax.Array) -> jax.Array:
    """The stream (B, L, D), or tokens (T, D) of it, with its first axis cut over `data` and each vector whole."""
    if not divided():
        return x
    return lax.with_sharding_constraint(x, PartitionSpec(DATA, *(None,) * (x.ndim - 1)))


def whole_rows(table_VD: jax.Array) -> jax.Array:
    """The embedding table, gathered so that every row is whole before the lookup.

    Otherwise the compiler looks up pieces of rows and moves them between replicas.
    """
    if not divided():
        return table_VD
    return lax.with_sharding_constraint(table_VD, PartitionSpec(PartitionSpec.UNCONSTRAINED, None))


def look_up(table_VD: jax.Array, index_BL: jax.Array) -> jax.Array:
    """Rows of a table; NaN for indices outside of it."""
    table_VD = whole_rows(table_VD)
    return table_VD.at[index_BL].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)


def dropout(x: jax.Array, rate: float, key: jax.Array | None) -> jax.Array:
    """Zero each element with probability `rate` and divide the others by 1 - rate (Srivastava et al. 2014).

    Without a key, or with rate 0, returns `x`.
    """
    if key is None or rate == 0:
        return x
    return jnp.where(
        jax.random.bernoulli(key, 1 - rate, x.shape), x / jnp.asarray(1 - rate, x.dtype), jnp.zeros_like(x)
    )


def drop_sequences(x_BLD: jax.Array, rate: float | jax.Array, key: jax.Array | None) -> jax.Array:
    """Zero whole sequences with probability `rate` and divide the others by 1 - rate.

    On the branch of a residual connection this is stochastic depth (Huang et al. 2016). Without a key, returns `x`.
    """
    if key is None:
        return x_BLD
    keep = jax.random.bernoulli(key, 1 - rate, (x_BLD.shape[0], 1, 1))
    return jnp.where(keep, x_BLD / jnp.asarray(1 - rate, x_BLD.dtype), jnp.zeros_like(x_BLD))


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
