"""Short convolutions of inputs, queries, keys and values."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.functional.masks import Causal, Tokens
from transformer.mixers.attention.gates import OutputGate
from transformer.mixers.attention.short_convolution import CanonA, CanonB, ShortConvolution, Smear
from transformer.mixers.attention.sparsity import SlidingWindow
from transformer.mixers.mixer import Context
from transformer.testing.properties import cached
from transformer.testing.subject import Subject, small

LENGTH, D = 6, 8
X = jnp.asarray(np.random.default_rng(0).normal(size=(2, LENGTH, D)), jnp.float32)


def test_a_convolution_begins_as_none(attention, run):
    """The kernel is 1 at the token itself and 0 before it."""
    convolved = attention(parts=(ShortConvolution(3),))
    np.testing.assert_allclose(run(convolved)[0], run(attention())[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("width", [1, 2, 4])
def test_every_width_is_remembered(width):
    cached(Subject(small(**{"mixer.parts": (ShortConvolution(width),)})))


@pytest.mark.parametrize("parts", [(CanonA(3),), (Smear(),), (CanonA(2), CanonB(3), ShortConvolution(2))], ids=str)
def test_every_convolution_of_a_layer_is_remembered(parts):
    cached(Subject(small(**{"mixer.parts": parts})))
    cached(Subject(small(**{"mixer.parts": parts, "mixer.sparsity": SlidingWindow(2)})))


def canon(x, kernel):
    """x_t + Σᵢ kernelᵢ ⊙ x_{t-i}."""
    x, kernel = np.asarray(x, np.float64), np.asarray(kernel, np.float64)
    moved = [np.concatenate([np.zeros_like(x[:, :i]), x[:, : x.shape[1] - i]], 1) for i in range(len(kernel))]
    return x + sum(row * one for row, one in zip(kernel, moved, strict=True))


def test_canon_layers_add_a_convolution(attention, run, heads, mixed):
    """Of the input before attention (A), and of queries, keys and values (B)."""
    module = attention(parts=(CanonA(3), CanonB(2)))
    first, second = (module.parts[name].kernel[...] for name in ("canon_a", "canon_b"))
    assert (first.shape, second.shape) == ((3, D), (2, 3 * D))
    x = jnp.asarray(canon(X, first), jnp.float32)
    projected = np.concatenate([layer(x) for layer in (module.query, module.key, module.value)], -1)
    q, k, v = map(heads, np.split(canon(projected, second).astype(np.float32), 3, -1))
    found = mixed(jnp.einsum("blhk,bshk->bhls", q, k) / 2, v)
    np.testing.assert_allclose(run(module)[0], module.out(found), rtol=1e-4, atol=1e-5)


def test_a_gate_reads_what_attention_reads(attention, run, heads):
    """The input with its convolution."""
    module, plain = attention(parts=(CanonA(3), OutputGate())), attention(parts=(CanonA(3),))
    plain.out.kernel[...] = jnp.eye(D)
    x = canon(X, module.parts["canon_a"].kernel[...])
    gate = 1 / (1 + np.exp(-x @ np.asarray(module.parts["output_gate"].kernel[...])))
    expected = (run(plain)[0] * gate) @ np.asarray(module.out.kernel[...])
    np.testing.assert_allclose(run(module)[0], expected, rtol=1e-4, atol=1e-5)


def test_a_part_convolves_at_one_stage():
    @dataclass(frozen=True)
    class Twice(CanonA):
        name = "twice"

        def convolve(self, projected_BLX, context, read, params):
            return projected_BLX, None

    with pytest.raises(ConfigError, match=r"mixer.parts: twice acts on inputs and on projections"):
        small(**{"mixer.parts": (Twice(),)})


def test_the_token_before_is_smeared_in(attention, run):
    """x_t + λ σ(x_t W) x_(t-1), and nothing at first."""
    module, plain = attention(parts=(Smear(features=3),)), attention()
    np.testing.assert_array_equal(run(module)[0], run(plain)[0])
    own, x = module.parts["smear"], np.asarray(X)
    own.gate[...], own.factor[...] = jnp.array([[1.0], [-2.0], [0.5]]), jnp.float32(0.7)
    gate = 0.7 / (1 + np.exp(-(x[..., :1] - 2 * x[..., 1:2] + 0.5 * x[..., 2:3])))
    smeared = x + gate * np.concatenate([np.zeros_like(x[:, :1]), x[:, :-1]], 1)
    context = Context(Tokens.at(jnp.arange(LENGTH)), Causal())
    expected = plain(jnp.asarray(smeared), context=context)[0]
    np.testing.assert_allclose(run(module)[0], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ConfigError, match=r"smear.features: 40 are more than d_model 32"):
        small(**{"mixer.parts": (Smear(features=40),)})
