"""What attention takes over from earlier layers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.modules import split
from transformer.core.values import ConfigError
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.sharing import ScoreResidual, SharedKeyValues, ValueEmbeddings, ValueResidual
from transformer.mixers.mixer import Shared
from transformer.models.language_model import LanguageModel
from transformer.models.pattern import Alternate

LENGTH, D = 6, 8
X = jnp.asarray(np.random.default_rng(0).normal(size=(2, LENGTH, D)), jnp.float32)


def test_scores_of_the_layer_before_are_added(attention, run, heads, mixed):
    """softmax(q·k/√K + scores before), and the sum is handed on."""
    module = attention(sharing=ScoreResidual())
    before = jnp.asarray(np.random.default_rng(1).normal(size=(2, 2, LENGTH, LENGTH)), jnp.float32)
    out, outcome = run(module, shared=Shared(scores=before), first=False)
    scores = jnp.einsum("blhk,bshk->bhls", heads(module.query(X)), heads(module.key(X))) / 2 + before
    np.testing.assert_allclose(out, module.out(mixed(scores, heads(module.value(X)))), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(outcome.shared.scores, scores, rtol=1e-5, atol=1e-5)


def test_values_of_the_first_layer_are_mixed_in(attention, run, heads, mixed):
    """½ V + ½ V₁; in the first layer V₁ is its own; V₁ is handed on."""
    module = attention(sharing=ValueResidual())
    first = jnp.ones((2, LENGTH, 2, 4))
    plain = attention()
    np.testing.assert_allclose(run(module, shared=Shared())[0], run(plain)[0], rtol=1e-5, atol=1e-6)
    out, outcome = run(module, shared=Shared(values=first), first=False)
    q, k, v = (heads(layer(X)) for layer in (module.query, module.key, module.value))
    scores = jnp.einsum("blhk,bshk->bhls", q, k) / 2
    np.testing.assert_allclose(out, module.out(mixed(scores, 0.5 * v + 0.5)), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(outcome.shared.values, first)


def test_values_of_a_table_of_tokens_are_mixed_in(config, attention, run, heads, mixed):
    """½ V + ½ E[token] in every layer, whatever the layers before it; a vector without a token is refused."""
    table = jnp.asarray(np.random.default_rng(1).normal(size=(2, LENGTH, 2, 4)), jnp.float32)
    module = attention(sharing=ValueEmbeddings())
    out, outcome = run(module, shared=Shared(token_values=table, values=jnp.ones((2, LENGTH, 2, 4))), first=False)
    q, k, v = (heads(layer(X)) for layer in (module.query, module.key, module.value))
    scores = jnp.einsum("blhk,bshk->bhls", q, k) / 2
    np.testing.assert_allclose(out, module.out(mixed(scores, 0.5 * v + 0.5 * table)), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(outcome.shared.token_values, table)
    with pytest.raises(ConfigError, match="value_embeddings has no tokens here"):
        run(module)
    model = LanguageModel(config(Attention(num_heads=2, sharing=ValueEmbeddings())), key=jax.random.key(0))
    rows = model.value_embedding(jnp.array([[3, 3, 5]]))
    np.testing.assert_array_equal(rows[0, 0], model.value_embedding.table[3].reshape(2, 4))
    np.testing.assert_array_equal(rows[0, 0], rows[0, 1])


def test_shared_keys_and_values_have_no_cache(config):
    """A layer that reads those before it has neither projections nor slots."""
    shared = config(pattern=(Alternate("mixer.sharing", (None, SharedKeyValues())),))
    params, apply = split(LanguageModel(shared, key=jax.random.key(0)))
    own, other = (params["blocks"]["kinds"][str(i)]["attention"] for i in (0, 1))
    assert set(own) - set(other) == {"key", "value"}
    assert [layer is None for layer in apply(params, 2, LENGTH, method="start").layers] == [False, True]
