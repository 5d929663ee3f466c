"""The dense product: the gradients of a matrix product, and the compiled program that makes them fast."""

import functools
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.activations.activation import gelu
from transformer.core.arrays import dense


def normal(seed, *shape, dtype=jnp.float32):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


def matmul(x, kernel):
    return x @ kernel.astype(x.dtype)


def with_gradients(product, x, kernel, dy):
    out, pull_back = jax.vjp(product, x, kernel)
    return out, pull_back(dy)


@pytest.mark.parametrize("leading", [(5,), (2, 3), (2, 2, 2), ()], ids=str)
@pytest.mark.parametrize(("d_in", "d_out"), [(4, 6), (6, 4), (5, 5)])
def test_equals_matrix_product(leading, d_in, d_out):
    """Values and both gradients, for wide and narrow kernels and any leading axes."""
    arguments = normal(0, *leading, d_in), normal(1, d_in, d_out), normal(2, *leading, d_out)
    chex.assert_trees_all_close(with_gradients(dense, *arguments), with_gradients(matmul, *arguments), atol=1e-5)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)], ids=str)
@pytest.mark.parametrize(
    ("d_in", "transposed", "halves"), [(512, False, True), (512, True, False), (511, False, False)]
)
def test_one_row(shape, d_in, transposed, halves):
    """A large product of one row is the sum of two, unless the kernel is a transposed one or does not divide."""
    product = functools.partial(dense, transposed=transposed)
    arguments = normal(0, *shape, d_in), normal(1, d_in, 300), normal(2, *shape, 300)
    of_halves = f"2,{d_in // 2},300"
    assert (of_halves in str(jax.make_jaxpr(product)(*arguments[:2]))) == halves
    got, expected = (with_gradients(f, *arguments) for f in (product, matmul))
    chex.assert_trees_all_close(got, expected, atol=1e-4)
    assert of_halves not in str(jax.make_jaxpr(product)(normal(0, 2, d_in), arguments[1]))


@pytest.mark.parametrize(
    ("leading", "transposed", "turned"),
    [((4,), True, True), ((2, 3), True, True), ((4,), False, False), ((9,), True, False)],
)
def test_few_rows(leading, transposed, turned):
    """A product of two to eight rows with a transposed kernel is computed as its transpose."""
    product = functools.partial(dense, transposed=transposed)
    arguments = normal(0, *leading, 5), normal(1, 5, 7), normal(2, *leading, 7)
    assert ("optimization_barrier" in str(jax.make_jaxpr(product)(*arguments[:2]))) == turned
    got, expected = (with_gradients(f, *arguments) for f in (product, matmul))
    chex.assert_trees_all_close(got, expected, atol=1e-5)


@pytest.mark.parametrize(("d_in", "d_out"), [(4, 6), (6, 4)])
def test_bfloat16(d_in, d_out):
    """bfloat16 inputs and float32 kernels: outputs bfloat16, each gradient in the dtype of its argument."""
    x, kernel = normal(0, 3, d_in, dtype=jnp.bfloat16), normal(1, d_in, d_out)
    out, (dx, dkernel) = with_gradients(dense, x, kernel, normal(2, 3, d_out, dtype=jnp.bfloat16))
    assert (out.dtype, dx.dtype, dkernel.dtype) == (jnp.bfloat16, jnp.bfloat16, jnp.float32)
    exact = with_gradients(matmul, x.astype(jnp.float32), kernel, normal(2, 3, d_out))
    got = jax.tree.map(lambda a: a.astype(jnp.float32), (out, (dx, dkernel)))
    chex.assert_trees_all_close(got, exact, atol=0.05, rtol=0.02)


def test_the_result_may_have_the_precision_of_the_sum():
    """1,001 has no place in bfloat16; gradients have the dtypes of their arguments."""
    x, kernel = jnp.ones((2, 1001), jnp.bfloat16), jnp.ones((1001, 3))
    out, (dx, dkernel) = with_gradients(lambda x, kernel: dense(x, kernel, jnp.float32), x, kernel, jnp.ones((2, 3)))
    np.testing.assert_array_equal(out, np.full((2, 3), 1001, np.float32))
    assert (dx.dtype, dkernel.dtype) == (jnp.bfloat16, jnp.float32)


@pytest.mark.parametrize(("d_in", "d_out"), [(1, 2), (2, 1)])
def test_kernel_gradient_is_summed_in_float32(d_in, d_out):
    """1,000 tokens of 1 in bfloat16 add up to 1,000, which a bfloat16 sum could not hold exactly beside 256."""
    x, kernel = jnp.ones((1001, d_in), jnp.bfloat16), jnp.ones((d_in, d_out))
    _, (_, dkernel) = with_gradients(dense, x, kernel, jnp.ones((1001, d_out), jnp.bfloat16))
    np.testing.assert_array_equal(dkernel, np.full((d_in, d_out), 1001, np.float32))


def compiled_gradient(product, d_model=128, d_ff=512):
    """The optimized CPU program of the gradient of a feed-forward sublayer, without its metadata."""

    def loss(kernels, x):
        return (product(gelu(product(x, kernels[0])), kernels[1]) ** 2).sum()

    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((d_model, d_ff), (d_ff, d_model), (4, 8, d_model))]
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        program = jax.jit(jax.grad(loss)).lower(shapes[:2], shapes[2]).compile().as_text()
    return re.sub(r", metadata=\{[^}]*\}", "", program)


def transposed_activations(program):
    """How many computations of the program both do arithmetic and copy or transpose."""
    computations = re.split(r"\n(?=%|ENTRY)", program)
    fused = [c for c in computations if not c.startswith("ENTRY")]
    return sum(bool(re.search(r" multiply\(", c) and re.search(r" (copy|transpose)\(", c)) for c in fused)


def test_activation_is_not_fused_into_a_transposed_copy():
    """No backward pass of the activation ends in a strided copy for the kernel gradient.

    The plain product is compiled beside it, so that the day XLA no longer does it, this test says so.
    """
    assert transposed_activations(compiled_gradient(matmul)) > 0
    assert transposed_activations(compiled_gradient(dense)) == 0


def slow_products(program):
    """Products not along the last axis of their first factor, as it lies in memory; and those of float32 factors."""
    transposed = re.findall(r" dot\(.*lhs_contracting_dims=\{0\}", program)
    computations = re.split(r"\n(?=%|ENTRY)", program)
    return transposed, [c for c in computations if " dot(" in c and not re.search(r"param\S*: bf16.*: bf16", c)]


def test_every_product_has_the_fast_kernel():
    """The plain product is compiled beside it; under bfloat16 precision the factors are not converted back."""
    assert slow_products(compiled_gradient(matmul))[0]
    assert not slow_products(compiled_gradient(dense))[0]
    with jax.default_matmul_precision("bfloat16"):
        assert slow_products(compiled_gradient(dense)) == ([], [])


def test_bfloat16_precision():
    """Factors of all three products are rounded to bfloat16, sums are not, and float32 stays float32."""
    x, kernel, dy = normal(0, 3, 4), normal(1, 4, 6), normal(2, 3, 6)
    rounded = [a.astype(jnp.bfloat16).astype(jnp.float32) for a in (x, kernel, dy)]
    expected = with_gradients(matmul, *rounded)
    with jax.default_matmul_precision("bfloat16"):
        got = with_gradients(dense, x, kernel, dy)
    chex.assert_trees_all_close(got, expected, rtol=1e-6)
    chex.assert_trees_all_equal_dtypes(got, expected)
    exact = with_gradients(matmul, x, kernel, dy)
    assert all(jnp.abs(a - b).max() > 1e-3 for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(exact), strict=True))
