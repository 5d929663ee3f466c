"""Kernels of integers: near the product they stand for, in the model and in decoding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.arrays import dense
from transformer.core.errors import ConfigError
from transformer.core.int8 import Int8
from transformer.core.modules import split
from transformer.inference.generate import generate
from transformer.inference.quantize import quantize
from transformer.models.language_model import LanguageModel
from transformer.testing.subject import small, tokens_of


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def test_whole_numbers_are_exact():
    """Rows and columns whose largest number is 127 are what they stand for; zeros stay zeros."""
    kernel = jnp.array([[127.0, 1.0, 0.0], [-3.0, -127.0, 0.0]])
    x = jnp.array([[127.0, 5.0], [0.0, 0.0]])
    np.testing.assert_allclose(dense(x, Int8.of(kernel)), x @ kernel, rtol=1e-6)


@pytest.mark.parametrize("rows", [1, 3, 20])
def test_the_error_is_that_of_rounding(rows):
    """Each factor is off by at most half a step of 1/127 of the largest of its row or column."""
    x, kernel = normal(0, rows, 64), normal(1, 64, 5)
    halves = [0.5 * jnp.abs(a).max(axis, keepdims=True) / 127 for a, axis in ((x, 1), (kernel, 0))]
    bound = halves[0] * jnp.abs(kernel).sum(0) + halves[1] * (jnp.abs(x).sum(1, keepdims=True) + 64 * halves[0])
    error = jnp.abs(dense(x, Int8.of(kernel)) - x @ kernel)
    assert (error <= bound + 1e-5).all()
    assert error.max() > 1e-4


def test_columns_side_by_side_are_one_kernel():
    several = [normal(seed, 8, 4) for seed in range(3)]
    together = Int8.of(several[0]).beside(*map(Int8.of, several[1:]))
    x = normal(9, 5, 8)
    np.testing.assert_allclose(together.product(x, x.dtype), dense(x, Int8.of(jnp.concatenate(several, 1))), rtol=1e-6)


def test_a_model_reads_and_continues_with_a_quarter_of_the_bytes():
    """Logits near those of the parameters, the same whole and token by token."""
    params, apply = split(LanguageModel(small(num_layers=2), key=jax.random.key(0)))
    quantized = quantize(params)
    kernels = [leaf for leaf in jax.tree.leaves(quantized) if leaf.dtype == jnp.int8]
    assert len(kernels) == 6
    assert sum(kernel.size for kernel in kernels) > 0.5 * sum(leaf.size for leaf in jax.tree.leaves(params))
    tokens = jnp.asarray(tokens_of(2))
    exact, near = apply(params, tokens), apply(quantized, tokens)
    assert 1e-5 < jnp.abs(exact - near).max() < 0.05 * jnp.abs(exact).max()
    found = generate(apply, quantized, tokens[:, :4], num_tokens=5)
    whole = apply(quantized, jnp.concatenate([tokens[:, :4], found.tokens_BT], 1))
    np.testing.assert_array_equal(whole.argmax(-1)[:, 3:-1], found.tokens_BT)


def test_nothing_to_quantize_is_refused():
    with pytest.raises(ConfigError, match="quantize: no parameter is the kernel of an attention or feed-forward layer"):
        quantize({"embedding": {"table": jnp.ones((3, 2))}})


def test_a_kernel_in_8_bits_is_no_array_of_numbers():
    """Its rows would have no end."""
    kernel = Int8.of(jnp.ones((2, 2)))
    with pytest.raises(TypeError, match="not iterable"):
        iter(kernel)
    with pytest.raises(ConfigError, match=r"^parameters in 8 bits are no array; take those from before quantize$"):
        np.asarray(kernel)


def test_what_is_quantized_is_parameters_once():
    params = split(LanguageModel(small(), key=jax.random.key(0)))[0]
    with pytest.raises(ConfigError, match=r"^quantize: blocks/.* is in 8 bits already$"):
        quantize(quantize(params))
    with pytest.raises(ConfigError, match=r"^quantize: parameters are needed, and LanguageModel is given; split"):
        quantize(LanguageModel(small(), key=jax.random.key(0)))
