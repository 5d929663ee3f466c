"""Experts as a feed-forward sublayer."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from transformer.activations.activation import GLU, ReLU, SiLU
from transformer.core.parameters import Normal
from transformer.feed_forwards.experts import TopKExperts
from transformer.functional.masks import Tokens
from transformer.mixers.mixer import Context
from transformer.models.config import ModelConfig
from transformer.residuals.residual import NoNormResidual
from transformer.residuals.scaled_branches import Fixup
from transformer.testing.subject import Subject, small, tokens_of

KEY = jax.random.key(0)
WIDE = ModelConfig(d_model=16, initializer=Normal(0.4))
TOKENS = Tokens.at(np.arange(8))
X = jnp.asarray(np.random.default_rng(0).normal(size=(1, 8, 16)), jnp.float32)


def test_each_shared_expert_drops_features_of_its_own():
    """Two that take each other away leave nothing, but what one of them drops and the other does not."""
    kind = TopKExperts(shared=2, dropout=0.5)
    module = kind.build(ModelConfig(d_model=16), key=KEY)
    first, second = module.shared
    module.out[...] = jnp.zeros_like(module.out[...])
    for own, other in zip(first.branches, second.branches, strict=True):
        other.kernel[...] = own.kernel[...]
    second.out.kernel[...] = -first.out.kernel[...]
    still, trained = (module(X, context=Context(TOKENS), key=key)[0] for key in (None, KEY))
    np.testing.assert_allclose(still, 0, atol=1e-6)
    assert np.abs(trained).max() > 1e-4


def test_gated_experts_by_hand():
    """Σ weight · (silu(x gate) ⊙ x up) out over the two likeliest of three experts and the one that all take."""
    module = TopKExperts(3, shared=1, d_ff=6, activation=GLU(gate=SiLU())).build(WIDE, key=KEY)
    (shared,) = module.shared
    gates, ups, outs = (np.asarray(kernels[...]) for kernels in (*module.branches, module.out))
    own = [np.asarray(layer.kernel[...]) for layer in (*shared.branches, shared.out)]

    def network(x_D, gate_DF, up_DF, out_FD):
        activated_F = x_D @ gate_DF
        return (activated_F / (1 + np.exp(-activated_F)) * (x_D @ up_DF)) @ out_FD

    expected = []
    for x_D in np.asarray(X)[0]:
        logits_E = x_D @ np.asarray(module.router.kernel[...])
        chosen = np.argsort(-logits_E)[:2]
        weights = np.exp(logits_E[chosen]) / np.exp(logits_E[chosen]).sum()
        routed = sum(w * network(x_D, gates[e], ups[e], outs[e]) for w, e in zip(weights, chosen, strict=True))
        expected.append(routed + network(x_D, *own))
    np.testing.assert_allclose(module(X, context=Context(TOKENS))[0][0], expected, rtol=1e-4, atol=1e-5)


def test_experts_with_biases_by_hand():
    """Σ weight · (relu(x in + b) out + c), and the router has a bias too."""
    module = TopKExperts(3, top=2, d_ff=6, activation=ReLU(), bias=True).build(WIDE, key=KEY)
    rng = np.random.default_rng(1)
    (biases,) = module.branch_biases
    for own in (biases, module.out_bias, module.router.bias):
        own[...] = jnp.asarray(rng.normal(size=own.shape), jnp.float32)
    kernels, outs = np.asarray(module.branches[0][...]), np.asarray(module.out[...])
    expected = []
    for x_D in np.asarray(X)[0]:
        logits_E = x_D @ np.asarray(module.router.kernel[...]) + np.asarray(module.router.bias[...])
        chosen = np.argsort(-logits_E)[:2]
        weights = np.exp(logits_E[chosen]) / np.exp(logits_E[chosen]).sum()
        hidden = [np.maximum(x_D @ kernels[e] + np.asarray(biases[...])[e], 0) for e in chosen]
        made = [h @ outs[e] + np.asarray(module.out_bias[...])[e] for h, e in zip(hidden, chosen, strict=True)]
        expected.append(sum(w * own for w, own in zip(weights, made, strict=True)))
    np.testing.assert_allclose(module(X, context=Context(TOKENS))[0][0], expected, rtol=1e-4, atol=1e-5)


def test_vmap_over_inputs_and_gradients_of_each():
    """JAX's ragged product is mapped over all of its arguments or none."""
    own = Subject(small(feed_forward=TopKExperts(4, top=2)))
    tokens = jnp.asarray(tokens_of(3))

    def loss(params, tokens_L):
        return own.apply(params, tokens_L[None]).mean()

    one_by_one = [jax.grad(loss)(own.params, row) for row in tokens]
    each = jax.vmap(jax.grad(loss), (None, 0))(own.params, tokens)
    chex.assert_trees_all_close(each, jax.tree.map(lambda *leaves: jnp.stack(leaves), *one_by_one), atol=1e-5)
    together = jax.vmap(lambda row: own.apply(own.params, row[None])[0])(tokens)
    np.testing.assert_allclose(together, own.apply(own.params, tokens), atol=1e-6)


def test_a_residual_connection_scales_the_matrices_of_experts():
    """Those that read by its inner factor, those of the output by its outer one."""
    kind, plain = TopKExperts(2, d_ff=8), ModelConfig(d_model=8, residual=NoNormResidual(), scale_residual_init=False)
    fixed, usual = (kind.build(model, key=KEY) for model in (plain.replace(residual=Fixup()), plain))
    for found, expected in zip(fixed.branches, usual.branches, strict=True):
        np.testing.assert_allclose(found[...], expected[...] * plain.branches**-0.5, rtol=1e-6)
    np.testing.assert_array_equal(fixed.out[...], 0 * usual.out[...])
