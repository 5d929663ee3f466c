"""Parts that multiply values, or the outputs of heads."""

import jax
import jax.numpy as jnp
import numpy as np

from transformer.mixers.attention.gates import HeadScale, ValueGate
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
