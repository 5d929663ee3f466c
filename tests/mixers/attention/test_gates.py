"""Parts that multiply values, or the outputs of heads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.gates import HeadScale, OutputGate, ValueGate
from transformer.mixers.attention.head_norms import ValueNorm
from transformer.norms.norm import RMSNorm, rms_norm

LENGTH, D = 6, 8
X = jnp.asarray(np.random.default_rng(0).normal(size=(2, LENGTH, D)), jnp.float32)


def test_gated_and_normalized_values(attention, run, heads, mixed):
    """norm(xV ⊙ σ(xG)) is what the weights mix (Qiu et al. 2025, G2; Zhuo et al. 2025)."""
    module = attention(parts=(ValueGate(), ValueNorm(RMSNorm())))
    gate = jax.nn.sigmoid(X @ module.parts["value_gate"].kernel[...])
    v = rms_norm(heads(module.value(X) * gate), scale_D=jnp.ones(4))
    scores = jnp.einsum("blhk,bshk->bhls", heads(module.query(X)), heads(module.key(X))) / 2
    np.testing.assert_allclose(run(module)[0], module.out(mixed(scores, v)), rtol=1e-4, atol=1e-5)


def test_a_factor_for_each_head(attention, run):
    """Doubling one head's factor adds that head's part of the output once more."""
    module, without = (attention(parts=(HeadScale(),)) for _ in range(2))
    for one, factor in ((module, 2.0), (without, 0.0)):
        one.parts["head_scale"].factors[...] = jnp.array([factor, 1.0])
    both = run(attention())[0]
    assert np.abs(both - run(without)[0]).max() > 0.1
    np.testing.assert_allclose(run(module)[0] - both, both - run(without)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("gate", [OutputGate(), OutputGate(headwise=True), OutputGate(features=3)], ids=str)
def test_gated_outputs(gate, attention, run, heads):
    """Each head's output times σ of a product of the input, a number for a feature or one for the head (G1)."""
    module, plain = attention(parts=(gate,)), attention()
    kernel, out = np.asarray(module.parts["output_gate"].kernel[...]), np.asarray(plain.out.kernel[...])
    assert kernel.shape == (gate.features or D, 2 if gate.headwise else D)
    plain.out.kernel[...] = jnp.eye(D)
    factors = 1 / (1 + np.exp(-np.asarray(X)[..., : len(kernel)] @ kernel))
    found = heads(run(plain)[0]) * factors.reshape(2, LENGTH, 2, -1)
    np.testing.assert_allclose(run(module)[0], found.reshape(2, LENGTH, D) @ out, rtol=1e-4, atol=1e-5)


def test_a_gate_reads_no_more_features_than_there_are(config):
    with pytest.raises(ConfigError, match=r"output_gate.features: 9 are more than d_model 8"):
        config(Attention(num_heads=2, parts=(OutputGate(features=9),)))
    with pytest.raises(ConfigError, match=r"output_gate.features: 0 is not a positive number"):
        OutputGate(features=0)
