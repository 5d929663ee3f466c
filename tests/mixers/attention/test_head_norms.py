"""Norms of queries and keys."""

import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.mixers.attention.head_norms import QKNorm, WideQKNorm
from transformer.mixers.attention.synthesizers import RandomSynthesizer
from transformer.norms.norm import RMSNorm

LENGTH, D = 6, 8
X = jnp.asarray(np.random.default_rng(0).normal(size=(2, LENGTH, D)), jnp.float32)


@pytest.mark.parametrize("part", [QKNorm(RMSNorm(eps=0.1)), WideQKNorm(RMSNorm(eps=0.1))], ids=str)
def test_queries_and_keys_are_divided_by_their_size(attention, run, heads, mixed, part):
    """In each head, with one gain for all, or over all heads."""
    module = attention(parts=(part,))
    rng, own = np.random.default_rng(1), module.parts[part.name]
    for name in ("query_scale", "key_scale"):
        scale = getattr(own, name)
        assert scale.shape == ((D,) if isinstance(part, WideQKNorm) else (D // 2,))
        scale[...] = jnp.asarray(rng.normal(size=scale.shape), jnp.float32)

    def normalized(layer, scale):
        x = np.asarray(layer(X))
        x = x if isinstance(part, WideQKNorm) else heads(x)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 0.1) * np.asarray(scale[...])
        return x.reshape(2, LENGTH, 2, 4)

    q, k = normalized(module.query, own.query_scale), normalized(module.key, own.key_scale)
    out = module.out(mixed(jnp.einsum("blhk,bshk->bhls", q, k) / 2, heads(module.value(X))))
    np.testing.assert_allclose(run(module)[0], out, rtol=1e-4, atol=1e-5)


def test_a_norm_over_all_heads_needs_projections(attention):
    message = r"^mixer.parts: random_synthesizer.* has no projections to compare for wide_qk_norm$"
    with pytest.raises(ConfigError, match=message):
        attention(parts=(WideQKNorm(),), heads=RandomSynthesizer(length=LENGTH))
