"""How positions reach scores and values."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.arrays import dropout
from transformer.functional.biases import alibi_slopes
from transformer.functional.masks import Causal, Tokens
from transformer.functional.positions import sinusoidal
from transformer.mixers.attention.backends import Chunked
from transformer.mixers.attention.projections import ConstantScale
from transformer.mixers.mixer import Context
from transformer.models.encoder import Encoder
from transformer.positions.absolute import QueryKeySinusoidal, Sinusoidal
from transformer.positions.contextual import Contextual, Forgetting
from transformer.positions.relative import ALiBi, RelativeKeys, TransformerXL
from transformer.positions.rotary import RoPE
from transformer.residuals.residual import NoNormResidual

KEY = jax.random.key(0)
LENGTH, D = 6, 8
X = jnp.asarray(np.random.default_rng(0).normal(size=(2, LENGTH, D)), jnp.float32)
TOKENS = Tokens.at(np.arange(LENGTH))
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def test_additive_positions_reach_the_values(config, by_hand):
    """(V + π)-attention: sinusoids added to the input are in queries, keys and values."""
    model = Encoder(config(causal=False, num_layers=1, position=Sinusoidal(), residual=NoNormResidual()), key=KEY)
    tokens, block = jnp.array([[1, 2, 3, 4, 5, 6]]), model.blocks[0]
    x = np.asarray(model.embedding(tokens)[0] + sinusoidal(TOKENS.positions, D)[0])
    x = x + by_hand(block.attention, x, factor=(D // 2) ** -0.5)
    x = x + np.asarray(block.feed_forward(jnp.asarray(x)[None])[0][0])
    chex.assert_trees_all_close(np.asarray(model(tokens)[0]), x, **CLOSE)


def test_query_key_positions_never_reach_the_values(config, by_hand):
    """V · softmax((K + π)ᵀ(Q + π)) by hand, in the first layer and in the next."""
    position = QueryKeySinusoidal()
    model = Encoder(config(causal=False, position=position, residual=NoNormResidual()), key=KEY)
    tokens = jnp.array([[1, 2, 3, 4, 5, 6]])
    x, at = np.asarray(model.embedding(tokens)[0]), np.asarray(sinusoidal(TOKENS.positions, D)[0])
    for block in model.blocks:
        x = x + by_hand(block.attention, x, factor=(D // 2) ** -0.5, at=at)
        x = x + np.asarray(block.feed_forward(jnp.asarray(x)[None])[0][0])
    chex.assert_trees_all_close(np.asarray(model(tokens)[0]), x, rtol=1e-4, atol=1e-4)


def test_positions_that_enter_queries_and_keys_only(attention, attend):
    """They change the output, and with queries and keys switched off they do not reach the values."""
    module, plain = (attention(p) for p in (QueryKeySinusoidal(), RoPE()))
    assert np.abs(attend(module, mask=Causal()) - attend(plain, mask=Causal())).max() > 1e-6
    for layer in (module, plain):
        layer.query.kernel[...] = jnp.zeros((D, D))
    chex.assert_trees_all_close(attend(module, mask=Causal()), attend(plain, mask=Causal()), atol=1e-6)


@pytest.mark.parametrize("backend", [None, Chunked(block=4)], ids=str)
@pytest.mark.parametrize("scale_bias", [False, True])
def test_a_finite_bias_before_or_after_scaling_by_hand(scale_bias, backend, attention, attend, by_hand):
    """ALiBi: softmax(QKᵀ/√d + M), and with `scale_bias` softmax((QKᵀ + M)/√d); they differ."""
    module = attention(position=ALiBi(), scale_bias=scale_bias, backend=backend)
    slopes = np.array(alibi_slopes(2), np.float32)[:, None, None]
    bias = -slopes * np.abs(np.arange(LENGTH)[:, None] - np.arange(LENGTH))
    before, after = (by_hand(module, factor=(D // 2) ** -0.5, **{name: bias}) for name in ("bias", "after"))
    assert np.abs(before - after).max() > 1e-2
    chex.assert_trees_all_close(attend(module), before if scale_bias else after, **CLOSE)


def test_masks_do_not_care_where_the_bias_is(attention, attend):
    """Under either order, what the mask forbids has no influence."""
    for scale_bias in (False, True):
        module = attention(position=ALiBi(), scale_bias=scale_bias)
        changed = np.where(np.arange(LENGTH)[:, None] > 2, -X[0], X[0])
        before, after = attend(module, mask=Causal()), attend(module, changed, Causal())
        np.testing.assert_array_equal(before[:3], after[:3])


def test_forgetting(attention, run, heads, mixed):
    """A key weighs as much as its score says, times the gates of all tokens after it up to the query."""
    module = attention(position=Forgetting())
    params = module.position()
    gates = jax.nn.sigmoid(X @ params["forget"] + params["forget_bias"])
    kept = np.ones((2, 2, LENGTH, LENGTH))
    for query in range(LENGTH):
        for key in range(query):
            kept[:, :, query, key] = np.prod(gates[:, key + 1 : query + 1], 1)
    scores = jnp.einsum("blhk,bshk->bhls", heads(module.query(X)), heads(module.key(X))) / 2 + np.log(kept)
    expected = module.out(mixed(scores, heads(module.value(X))))
    np.testing.assert_allclose(run(module)[0], expected, rtol=1e-4, atol=1e-5)


def test_contextual_positions(attention, run, heads, mixed):
    """The distance of a key is the sum of the gates up to the query, and between whole distances the score is mixed."""
    module = attention(position=Contextual(limit=2))
    q, k, table = heads(module.query(X)), heads(module.key(X)), np.asarray(module.position()["table"])
    scores = np.array(jnp.einsum("blhk,bshk->bhls", q, k) / 2)
    gates, added = np.asarray(jax.nn.sigmoid(scores)), np.zeros(scores.shape)
    for query in range(LENGTH):
        for key in range(query + 1):
            place = np.minimum(gates[:, :, query, key : query + 1].sum(-1), 2)
            low = np.floor(place).astype(int)
            vector = (
                table[low] * (low + 1 - place)[..., None] + table[np.minimum(low + 1, 2)] * (place - low)[..., None]
            )
            added[:, :, query, key] = (vector * q[:, query]).sum(-1) / 2
    expected = module.out(mixed(scores + added, heads(module.value(X))))
    np.testing.assert_allclose(run(module)[0], expected, rtol=1e-4, atol=1e-5)


def test_distances_have_values(attention, heads):
    """Σ weight · (v + a), with a vector of the clipped distance (Shaw et al. 2018, equation 3), under dropout too."""
    module = attention(position=RelativeKeys(limit=2, values=True), dropout=0.4)
    keys, values = (np.asarray(module.position()[name]) for name in ("table", "values"))
    places = np.clip(np.arange(LENGTH) - np.arange(LENGTH)[:, None], -2, 2) + 2
    q, k, v = (heads(layer(X)) for layer in (module.query, module.key, module.value))
    scores = (jnp.einsum("blhk,bshk->bhls", q, k) + jnp.einsum("blhk,lsk->bhls", q, keys[places])) / 2
    weights = jax.nn.softmax(jnp.where(np.tri(LENGTH, dtype=bool), scores, -jnp.inf))
    key = jax.random.key(3)
    dropped = dropout(weights[:, :, None], rate=0.4, key=key)[:, :, 0]  # (B, G, H/G, L, S), as attention drops them
    for drop, own in ((None, weights), (key, dropped)):
        out = jnp.einsum("bhls,bshk->blhk", own, v) + jnp.einsum("bhls,lsk->blhk", own, values[places])
        tokens = Tokens.at(jnp.arange(LENGTH))
        found, _ = module(X, context=Context(tokens, Causal()), key=drop)
        np.testing.assert_allclose(found, module.out(out.reshape(2, LENGTH, -1)), rtol=1e-4, atol=1e-5)


PRODUCTS = [RelativeKeys(limit=2), TransformerXL(limit=2), Contextual(limit=2)]


def enlarged(module):
    """A layer whose trained distances count for much."""
    for name, values in module.position().items():
        getattr(module.position, name)[...] = 20 * values
    return module


@pytest.mark.parametrize("scale_bias", [False, True])
@pytest.mark.parametrize("position", PRODUCTS, ids=str)
def test_a_factor_on_scores_is_one_on_queries(position, scale_bias, attention, run):
    """What queries have for distances has the factor of q·k, once (Shaw et al. 2018, equation 4)."""
    choices = {"position": position, "scale_bias": scale_bias}
    whole, module = (enlarged(attention(scale=ConstantScale(factor), **choices)) for factor in (1.0, 0.3))
    whole.query.kernel[...] = 0.3 * whole.query.kernel[...]
    np.testing.assert_allclose(run(module)[0], run(whole)[0], rtol=1e-4, atol=1e-5)
