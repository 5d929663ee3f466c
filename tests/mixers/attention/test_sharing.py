"""What attention takes over from earlier layers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.core.modules import split
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.sharing import (
    GatedValueEmbeddings,
    ScoreResidual,
    SharedKeyValues,
    ValueEmbeddings,
    ValueResidual,
)
from transformer.mixers.mixer import Shared
from transformer.models.language_model import LanguageModel
from transformer.models.pattern import Alternate

LENGTH, D = 6, 8
X = jnp.asarray(np.random.default_rng(0).normal(size=(2, LENGTH, D)), jnp.float32)


def test_scores_of_the_layer_before_are_added(attention, run, heads, mixed):
    """softmax(q·k/√K + scores before), and the sum is handed on."""
    module = attention(sharing=ScoreResidual())
    before = jnp.asarray(np.random.default_rng(1).normal(size=(2, 2, LENGTH, LENGTH)), jnp.float32)
    out, aux = run(module, shared=Shared(scores=before), first=False)
    scores = jnp.einsum("blhk,bshk->bhls", heads(module.query(X)), heads(module.key(X))) / 2 + before
    np.testing.assert_allclose(out, module.out(mixed(scores, heads(module.value(X)))), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(aux.shared.scores, scores, rtol=1e-5, atol=1e-5)


def test_values_of_the_first_layer_are_mixed_in(attention, run, heads, mixed):
    """½ V + ½ V₁; in the first layer V₁ is its own; V₁ is handed on."""
    module = attention(sharing=ValueResidual())
    first = jnp.ones((2, LENGTH, 2, 4))
    plain = attention()
    np.testing.assert_allclose(run(module, shared=Shared())[0], run(plain)[0], rtol=1e-5, atol=1e-6)
    out, aux = run(module, shared=Shared(values=first), first=False)
    q, k, v = (heads(layer(X)) for layer in (module.query, module.key, module.value))
    scores = jnp.einsum("blhk,bshk->bhls", q, k) / 2
    np.testing.assert_allclose(out, module.out(mixed(scores, 0.5 * v + 0.5)), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(aux.shared.values, first)


def test_values_of_a_table_of_tokens_are_mixed_in(config, attention, run, heads, mixed):
    """½ V + ½ E[token] in every layer, whatever the layers before it; a vector without a token is refused."""
    table = jnp.asarray(np.random.default_rng(1).normal(size=(2, LENGTH, 2, 4)), jnp.float32)
    module = attention(sharing=ValueEmbeddings())
    out, aux = run(module, shared=Shared(token_values=table, values=jnp.ones((2, LENGTH, 2, 4))), first=False)
    q, k, v = (heads(layer(X)) for layer in (module.query, module.key, module.value))
    scores = jnp.einsum("blhk,bshk->bhls", q, k) / 2
    np.testing.assert_allclose(out, module.out(mixed(scores, 0.5 * v + 0.5 * table)), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(aux.shared.token_values, table)
    with pytest.raises(ConfigError, match="value_embeddings has no tokens here"):
        run(module)
    model = LanguageModel(config(Attention(num_heads=2, sharing=ValueEmbeddings())), key=jax.random.key(0))
    rows = model.value_embedding(jnp.array([[3, 3, 5]]))
    np.testing.assert_array_equal(rows[0, 0], model.value_embedding.table[3].reshape(2, 4))
    np.testing.assert_array_equal(rows[0, 0], rows[0, 1])


def test_each_layer_has_gated_values_of_its_own_table(config, run, heads, mixed):
    """V + 2σ(x₁…x₃ W) E[token], W at first 0; an encoder-decoder and a segment memory have no tokens to look up."""
    mixer = Attention(num_heads=2, sharing=GatedValueEmbeddings(features=3))
    module = mixer.build(config(mixer), key=jax.random.key(0))
    rng, own = np.random.default_rng(1), module.params["sharing"]
    np.testing.assert_array_equal(own.gate[...], np.zeros((3, 2)))
    own.gate[...] = jnp.asarray(rng.normal(size=(3, 2)), jnp.float32)
    tokens = rng.integers(11, size=(2, LENGTH))
    out, aux = run(module, shared=Shared(token_ids=jnp.asarray(tokens)), first=False)
    gate = 2 / (1 + np.exp(-np.asarray(X)[..., :3] @ np.asarray(own.gate[...])))
    v = heads(module.value(X)) + gate[..., None] * np.asarray(own.table[...])[tokens].reshape(2, LENGTH, 2, 4)
    scores = jnp.einsum("blhk,bshk->bhls", heads(module.query(X)), heads(module.key(X))) / 2
    np.testing.assert_allclose(out, module.out(mixed(scores, v)), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(aux.shared.token_ids, tokens)
    with pytest.raises(ConfigError, match=r"gated_value_embeddings\(features=3\) has no tokens here"):
        run(module)
    with pytest.raises(ConfigError, match=r"earlier segments are not kept for gated_value_embeddings"):
        config(mixer, memory_length=2)
    with pytest.raises(ConfigError, match=r"gated_value_embeddings.features: 12 are more than d_model 8"):
        config(Attention(num_heads=2, sharing=GatedValueEmbeddings()))


def test_gated_values_keep_their_dtype():
    own, x = jnp.ones((1, 2, 2, 4), jnp.bfloat16), jnp.ones((1, 2, D), jnp.bfloat16)
    params = {"table": jnp.ones((11, D)), "gate": jnp.zeros((3, 2))}
    values = GatedValueEmbeddings(features=3).values(own, jnp.zeros((1, 2), jnp.int32), x, params)
    assert values.dtype == jnp.bfloat16
    np.testing.assert_array_equal(values, np.full((1, 2, 2, 4), 2.0))


def test_layers_in_turn_have_a_table(config):
    mixer = Attention(num_heads=2, sharing=GatedValueEmbeddings(features=3))
    pattern = (Alternate("mixer.sharing", (None, mixer.sharing)),)
    model = LanguageModel(config(Attention(num_heads=2), pattern=pattern), key=jax.random.key(0))
    first, second = (model.blocks[i].attention for i in (0, 1))
    assert "sharing" not in first.params
    assert second.params["sharing"].table.shape == (11, D)
    assert model.value_embedding is None


def test_shared_keys_and_values_have_no_cache(config):
    """A layer that reads those before it has neither projections nor slots."""
    shared = config(pattern=(Alternate("mixer.sharing", (None, SharedKeyValues())),))
    params, apply = split(LanguageModel(shared, key=jax.random.key(0)))
    own, other = (params["blocks"]["kinds"][str(i)]["attention"] for i in (0, 1))
    assert set(own) - set(other) == {"key", "value"}
    assert [set(layer) for layer in apply(params, 2, LENGTH, method="start").layers] == [{"attention"}, set()]


@pytest.mark.parametrize(("kind", "other"), [(ValueResidual(), "first"), (ValueEmbeddings(), "token")], ids=str)
def test_each_share_is_of_its_values(kind, other):
    params = {"own": jnp.float32(2.0), other: jnp.float32(3.0)}
    assert kind.values(jnp.ones((1, 1, 1, 1)), 10 * jnp.ones((1, 1, 1, 1)), X, params) == 2 + 30
