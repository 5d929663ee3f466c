"""Which tokens attention reaches."""

import jax.numpy as jnp
import numpy as np
import pytest

from transformer.functional.masks import Full, Padding, Tokens
from transformer.mixers.attention.sparsity import (
    BigBird,
    DilatedWindow,
    Fixed,
    GlobalTokens,
    Linformer,
    LocalBlocks,
    SlidingWindow,
    Strided,
)
from transformer.mixers.mixer import Context

LENGTH, D = 6, 8
X = jnp.asarray(np.random.default_rng(0).normal(size=(2, LENGTH, D)), jnp.float32)


def test_linformer_of_full_rank_is_attention(attention, run):
    """With identities for its mixtures it attends to the tokens; padding is in no mixture."""
    module, plain = attention(sparsity=Linformer(rank=LENGTH, length=LENGTH), causal=False), attention(causal=False)
    for name in ("keys", "values"):
        getattr(module.params["sparsity"], name)[...] = jnp.eye(LENGTH)
    np.testing.assert_allclose(run(module, mask=Full())[0], run(plain, mask=Full())[0], rtol=1e-5, atol=1e-6)
    module = attention(sparsity=Linformer(rank=2, length=LENGTH), causal=False)
    valid = jnp.arange(LENGTH)[None] < 4
    tokens = Tokens.at(jnp.arange(LENGTH), valid=valid)
    changed = X.at[:, 4:].add(1.0)
    outputs = [module(x, context=Context(tokens, Full() & Padding()))[0][:, :4] for x in (X, changed)]
    np.testing.assert_array_equal(*outputs)


def test_sinks_are_seen_from_everywhere(attention, run, heads, mixed):
    """A window of two and the first token."""
    module = attention(sparsity=SlidingWindow(2, sinks=1))
    distance = np.arange(LENGTH)[:, None] - np.arange(LENGTH)
    allowed = (distance >= 0) & ((distance < 2) | (np.arange(LENGTH) == 0))
    scores = jnp.einsum("blhk,bshk->bhls", heads(module.query(X)), heads(module.key(X))) / 2
    expected = module.out(mixed(scores, heads(module.value(X)), allowed))
    np.testing.assert_allclose(run(module)[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("sparsity", "seen"),
    [
        (DilatedWindow(2, dilation=3), lambda i, j: abs(i - j) in (0, 3)),
        (LocalBlocks(2, neighbours=1), lambda i, j: abs(i // 2 - j // 2) <= 1),
        (Strided(3), lambda i, j: abs(i - j) < 3 or (i - j) % 3 == 0),
        (Fixed(4, summary=2), lambda i, j: i // 4 == j // 4 or j % 4 >= 2),
        (GlobalTokens(2, first=1), lambda i, j: abs(i - j) < 2 or 0 in (i, j)),
        (BigBird(2, share=0.0), lambda i, j: abs(i // 2 - j // 2) <= 1 or min(i, j) < 2),
    ],
)
def test_what_each_sparsity_lets_through(sparsity, seen):
    tokens = Tokens.first(12)
    expected = [[seen(i, j) for j in range(12)] for i in range(12)]
    np.testing.assert_array_equal(sparsity.mask()(tokens, tokens)[0, 0], expected)
