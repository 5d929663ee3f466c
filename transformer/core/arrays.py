"""What all rooms do with arrays: products, dropout, ids in their range, and how they are laid out over devices.

The layout of the residual stream is all a model says of devices; without a mesh, nothing. The program that runs a model
names its mesh while it is traced (`jax.sharding.use_abstract_mesh`); the compiler cuts everything else as parameters,
batch and stream are cut.
"""

import functools
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.sharding import PartitionSpec
from jax.typing import DTypeLike

from transformer.core.errors import ConfigError
from transformer.core.int8 import Int8

REPLICA, DATA, CONTEXT, MODEL = AXES = "replica", "data", "context", "model"
"""Axes of a mesh, over which independent runs, the sequences of a batch, the tokens of a sequence and the parts of a
layer are divided."""


def axis_size(axis: str) -> int:
    """Devices along an axis of the mesh in use; 1 where there is none."""
    mesh = jax.sharding.get_abstract_mesh()
    return mesh.shape[axis] if axis in mesh.auto_axes else 1


def divided() -> bool:
    """Whether the compiler divides the work of one model over devices."""
    return MODEL in jax.sharding.get_abstract_mesh().auto_axes


def constrain(x: jax.Array) -> jax.Array:
    """The stream (B, L, D), cut over `data` and `context`, or tokens (T, D) of it, cut over `data`; vectors are whole.

    So is an axis that its devices do not divide: of uneven parts XLA makes wrong gradients of tables (jax 0.10.2).
    Within `shard_map` over an axis, arrays are local already and are not constrained again.
    """
    if not divided():
        return x
    cuts = {0: DATA, **({1: CONTEXT} if x.ndim == 3 else {})}
    even = {i: axis for i, axis in cuts.items() if axis_size(axis) > 1 and x.shape[i] % axis_size(axis) == 0}
    return lax.with_sharding_constraint(x, PartitionSpec(*map(even.get, range(x.ndim))))


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


def plus(x: jax.Array, parameter: jax.Array) -> jax.Array:
    """x + a parameter that is the same for all tokens, in the dtype of `x` and added in float32.

    The gradient of the parameter is a sum over all tokens, and bfloat16 would lose more than half of it.
    """
    return (x.astype(jnp.float32) + parameter).astype(x.dtype)


def times(factor: float | jax.Array, x: jax.Array) -> jax.Array:
    """factor · x in the dtype of `x`; a factor that is an array, such as a parameter, is multiplied in float32."""
    if isinstance(factor, float):
        return x * jnp.asarray(factor, x.dtype)
    return (x.astype(jnp.float32) * factor).astype(x.dtype)


def towards(start: jax.Array, end: jax.Array, share: float | jax.Array) -> jax.Array:
    """The point at a share of the way, which is `start` to the bit where both are equal, and `end` at 1."""
    return jnp.where(jnp.equal(share, 1), end, start + share * (end - start))


def dropout(x: jax.Array, rate: float, key: jax.Array | None) -> jax.Array:
    """Zero each element with probability `rate` and divide the others by 1 - rate (Srivastava et al. 2014).

    Without a key, or with rate 0, returns `x`.
    """
    if key is None or rate == 0:
        return x
    return _kept(x, jax.random.bernoulli(key, 1 - rate, x.shape), rate)


def drop_sequences(x_BLD: jax.Array, rate: float | jax.Array, key: jax.Array | None) -> jax.Array:
    """Zero whole sequences with probability `rate` and divide the others by 1 - rate.

    On the branch of a residual connection this is stochastic depth (Huang et al. 2016). Without a key, returns `x`.
    """
    if key is None:
        return x_BLD
    keep = jax.random.bernoulli(key, 1 - rate, (x_BLD.shape[0], 1, 1))
    return _kept(x_BLD, keep, rate)


def _kept(x: jax.Array, keep: jax.Array, rate: float | jax.Array) -> jax.Array:
    # 1 - rate has too few digits in bfloat16: its quotients would not have the mean of what they are of.
    return jnp.where(keep, (x.astype(jnp.float32) / (1 - rate)).astype(x.dtype), jnp.zeros_like(x))


HALVED_FROM = 2**17
"""Weights from which a product of one row is computed in halves."""


TURNED_TO = 8
"""Rows up to which a product with a transposed kernel is computed as its transpose."""


def dense(
    x: jax.Array, kernel_DF: jax.Array | Int8, dtype: DTypeLike | None = None, *, transposed: bool = False
) -> jax.Array:
    """`x @ kernel` with the kernel cast to the dtype of `x`.

    Under `jax.default_matmul_precision("bfloat16")` the factors of all three products, of the value and of both
    gradients, are rounded to bfloat16, and float32 in and out stay float32.

    Args:
      x: (..., D), in the compute dtype, any float.
      kernel_DF: (D, F), in the parameter dtype, or integers, which have no gradient.
      dtype: of the result, in which the sums are accumulated without rounding; None: that of `x`.
      transposed: whether the kernel is stored as (F, D), which decides how it is read fastest.

    Returns:
      (..., F) in that dtype. The kernel's gradient is accumulated in float32 and comes back
      in the kernel's own dtype.
    """
    if isinstance(kernel_DF, Int8):
        return kernel_DF.product(x, dtype or x.dtype)
    D = len(kernel_DF)
    rows, product = x.size // D, _product
    if on_cpu():
        if rows == 1 and not transposed and kernel_DF.size >= HALVED_FROM and D % 2 == 0:
            product = _product_in_halves
        elif transposed and 1 < rows <= TURNED_TO:
            product = _product_turned
    dtype, of_factors = dtype or x.dtype, x.dtype
    precision = jax.config.jax_default_matmul_precision  # pyright: ignore[reportAttributeAccessIssue]
    if x.dtype == jnp.float32 and precision == "bfloat16":
        if product is _product_turned:  # XLA turns it again, to factors for which it has no kernel of bfloat16
            x, kernel_DF = (lax.reduce_precision(a, exponent_bits=8, mantissa_bits=7) for a in (x, kernel_DF))
        else:
            of_factors = jnp.dtype(jnp.bfloat16)
    return _dense(x, kernel_DF, dtype, of_factors, product)


_PLATFORM: ContextVar[str | None] = ContextVar("platform", default=None)


@contextmanager
def compiled_for(platform: str) -> Iterator[None]:
    """Within it, or within functions decorated with it, what is traced is for devices of that platform.

    It need not be that of the devices that there are: programs are compiled for other machines too.
    """
    token = _PLATFORM.set(platform)
    try:
        yield
    finally:
        _PLATFORM.reset(token)


def platform() -> str:
    """The platform of the devices that a program is traced for: cpu, gpu or tpu."""
    found = _PLATFORM.get() or jax.default_backend()
    return "gpu" if found in ("cuda", "rocm") else found


def has_cuda() -> bool:
    """Whether JAX for CUDA is installed, without which no program is compiled for a GPU."""
    return any(importlib.util.find_spec(f"jax_cuda{version}_plugin") for version in (13, 12))


def on_cpu() -> bool:
    return platform() == "cpu"


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def _dense(x, kernel_DF, dtype, of_factors, product):
    return product(x.astype(of_factors), kernel_DF.astype(of_factors), dtype)


def _product(x, kernel_DF, dtype):
    return _as_it_is(jnp.matmul(x, kernel_DF, preferred_element_type=dtype), x)


def _as_it_is(product, factor):
    """The product, kept from being turned where XLA would not find a kernel for it.

    XLA on CPU decides first that it has a kernel for bfloat16 factors and a float32 result, may then turn product and
    factors to save a later transpose, and stops the program because it has none for those.
    """
    mixed = on_cpu() and factor.dtype == jnp.bfloat16 and product.dtype == jnp.float32
    return lax.optimization_barrier(product) if mixed else product


def _product_in_halves(x, kernel_DF, dtype):
    """The product of a single row, as the sum of two.

    XLA on CPU computes a product of one row and, say, 384 x 384 weights on one core, but a batch of two on all:
    20 GB/s of weights in place of 10, and 1.3 times the tokens of a model of that width
    (`experiments/benchmarks/decoding.py`). Products of several rows, and with a transposed kernel, are slower so.
    """
    x_2D, kernel_2DF = x.reshape(2, -1), kernel_DF.reshape(2, -1, kernel_DF.shape[1])
    halves_2F = jnp.einsum("nd,ndf->nf", x_2D, kernel_2DF, preferred_element_type=jnp.float32)
    return halves_2F.sum(0).astype(dtype).reshape(*x.shape[:-1], -1)


def _product_turned(x, kernel_DF, dtype):
    """The product of a few rows and a kernel that is stored as (F, D), as (F, D) times their transpose.

    XLA on CPU would turn the whole kernel for every product: 1.1 to 2.4 times the time for two to eight rows and
    256 x 256 to 32,000 x 256 weights.
    """
    x_RD, kernel_FD = x.reshape(-1, x.shape[-1]), kernel_DF.T
    y_FR = lax.dot_general(kernel_FD, x_RD, (((1,), (1,)), ((), ())), preferred_element_type=dtype)
    # Without the barrier XLA turns the product back.
    return lax.optimization_barrier(y_FR).T.reshape(*x.shape[:-1], -1)


def _forward(x, kernel_DF, dtype, of_factors, product):
    # The bare product: a call of `dense` would hide it from rematerialization policies.
    return product(x.astype(of_factors), kernel_DF.astype(of_factors), dtype), (x, kernel_DF)


def _backward(dtype, of_factors, product, residuals, dy):
    x, kernel_DF = residuals
    # Without the barrier XLA fuses the whole backward pass of the activation into the products' copies of dy.
    dy = lax.optimization_barrier(dy.astype(of_factors))
    over_F = (((dy.ndim - 1,), (1,)), ((), ()))
    dx = lax.dot_general(dy, kernel_DF.astype(of_factors), over_F, preferred_element_type=x.dtype)
    return _as_it_is(dx, dy), _kernel_gradient(x.astype(of_factors), dy).astype(kernel_DF.dtype)


def _kernel_gradient(x, dy):
    """xᵀ·dy over all tokens, (D, F) float32.

    XLA on CPU has fast kernels for products along the last axis of the one and the first of the other factor, as they
    lie in memory; others run at two thirds of their rate, and those of bfloat16 at a third, because it converts the
    factors back (`experiments/benchmarks/training.py`). The transpose and the barrier lay x out so; the axis of one
    element between them keeps XLA from expressing the transpose as another layout of the same array.

    Where devices divide the tokens of a sequence, sequences and tokens stay two axes: XLA would gather what is one axis
    of both, and compute the whole product on each device.
    """
    if axis_size(CONTEXT) > 1:
        tokens = tuple(range(x.ndim - 1))
        numbers = ((tokens, tokens), ((), ()))
        return _as_it_is(lax.dot_general(x, dy, numbers, preferred_element_type=jnp.float32), x)
    x_TD, dy_TF = (a.reshape(-1, a.shape[-1]) for a in (x, dy))
    if on_cpu():
        x_DT = lax.optimization_barrier(x_TD.T[None])[0]
        return _as_it_is(jnp.matmul(x_DT, dy_TF, preferred_element_type=jnp.float32), x_TD)
    return lax.dot_general(x_TD, dy_TF, (((0,), (0,)), ((), ())), preferred_element_type=jnp.float32)


_dense.defvjp(_forward, _backward)


def has_numbers(array: Any) -> bool:
    """Whether its numbers can be looked at: those of a program's arguments and of other hosts cannot."""
    return not isinstance(array, Tracer) and (not isinstance(array, jax.Array) or array.is_fully_addressable)


def check_ids(ids: Any, limit: int, what: str, first: int = 0) -> None:
    """Raise `ConfigError` that names the first id that is not in [first, limit), and where it is.

    Ids that a program is traced with are no numbers yet, and neither are those on other hosts: they are not looked at,
    and nothing is added to a compiled program, in which such an id gives NaN.

    Args:
      ids: an array of any shape.
      limit: one more than the largest id.
      what: the word for one of them, such as `token`.
      first: the smallest id.
    """
    if not isinstance(ids, np.ndarray | jax.Array) or not jnp.issubdtype(ids.dtype, jnp.integer):
        given = getattr(ids, "dtype", type(ids).__name__)
        raise ConfigError(f"{what} ids are {given}, not an array of integers in [{first}, {limit})")
    if not has_numbers(ids):
        return
    numbers = np.asarray(ids)
    if len(wrong := np.argwhere((numbers < first) | (numbers >= limit))):
        place = tuple(int(i) for i in wrong[0])
        raise ConfigError(f"{what} {numbers[place]} at {place} is not in [{first}, {limit})")


def check_tokens(tokens_BL: Any, vocab_size: int | None) -> None:
    """Raise `ConfigError` where tokens are no array (B, L), or one of them is not in the vocabulary (`check_ids`).

    Args:
      tokens_BL: what was given to a model.
      vocab_size: how many tokens there are; None: it is not looked at.
    """
    if isinstance(tokens_BL, str):
        raise ConfigError("tokens: a text is given; encode it first, jnp.asarray(tokenizer.encode(text))[None]")
    if isinstance(tokens_BL, list | tuple):
        raise ConfigError(f"tokens: a {type(tokens_BL).__name__} is given, not an array (B, L); use jnp.asarray")
    if (shape := getattr(tokens_BL, "shape", None)) is not None and len(shape) != 2:
        hint = "; tokens[None] is a batch of one" if len(shape) == 1 else ""
        raise ConfigError(f"tokens: an array {shape} is given, not one (B, L){hint}")
    if vocab_size is not None:
        check_ids(tokens_BL, vocab_size, "token")
