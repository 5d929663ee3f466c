"""Synthetic scores against the formulas of their paper."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.base import HeadSizes
from transformer.mixers.attention.synthesizers import DenseSynthesizer, RandomSynthesizer
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.positions.contextual import Contextual
from transformer.positions.relative import RelativeKeys, TransformerXL

LENGTH, D = 6, 8
X = jnp.asarray(np.random.default_rng(0).normal(size=(2, LENGTH, D)), jnp.float32)
SIZES = {"vocab_size": 11, "max_length": LENGTH, "d_model": D, "num_layers": 2}


@pytest.mark.parametrize("dot_product", [False, True])
def test_dense_synthesizer(dot_product, attention, run, heads, mixed):
    """The scores of a token are a network of it; with `dot_product` those of queries and keys beside them."""
    module = attention(heads=DenseSynthesizer(length=LENGTH, dot_product=dot_product))
    projected = module.query(X)
    hidden = jax.nn.relu(projected[..., :D].reshape(2, LENGTH, 2, 4))
    scores = jnp.einsum("blhk,hkn->bhln", hidden, module.params["heads"]()["scores"])
    if dot_product:
        scores += jnp.einsum("blhk,bshk->bhls", heads(projected[..., D:]), heads(module.key(X))) / 2
    np.testing.assert_allclose(run(module)[0], module.out(mixed(scores, heads(module.value(X)))), rtol=1e-4, atol=1e-5)


def test_a_dense_synthesizer_in_rows_and_columns(attention, run, heads, mixed):
    """The score of position p is the product of an entry for its row and one for its column."""
    module = attention(heads=DenseSynthesizer(length=LENGTH, columns=2))
    hidden, params = jax.nn.relu(heads(module.query(X))), module.params["heads"]()
    rows, columns = (np.asarray(jnp.einsum("blhk,hkn->bhln", hidden, params[n])) for n in ("rows", "columns"))
    scores = np.stack([rows[..., p // 2] * columns[..., p % 2] for p in range(LENGTH)], -1)
    np.testing.assert_allclose(run(module)[0], module.out(mixed(scores, heads(module.value(X)))), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [DenseSynthesizer, RandomSynthesizer])
def test_weighted_synthesizers(kind, attention, heads):
    """α · synthetic scores + (1 - α) · those of queries and keys; α is trained and begins at one half."""
    module = attention(heads=kind(length=LENGTH, dot_product=True, weighted=True))
    assert module.params["heads"]()["share"] == 0
    ends = {}
    for name, share in {"synthetic": 40.0, "products": -40.0, "both": 1.0}.items():
        module.params["heads"].share[...] = jnp.float32(share)
        q, k, _ = module.project(X, "query", "key", "value")
        places = jnp.arange(LENGTH)[None]
        keys, _ = module.keys_values(k, module.value(X), places)
        ends[name] = jnp.einsum("blhk,bshk->bhls", module.queries(q, places), keys)
    share = jax.nn.sigmoid(1.0)
    np.testing.assert_allclose(
        ends["both"], share * ends["synthetic"] + (1 - share) * ends["products"], rtol=1e-4, atol=1e-5
    )
    products = jnp.einsum("blhk,bshk->bhls", heads(q[..., -D:]), heads(k)) / 2
    np.testing.assert_allclose(ends["products"], products, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rank", [None, 2])
def test_random_synthesizer(rank, attention, run, heads, mixed):
    """Scores are a trained matrix, or the product of two, and no token has a say."""
    module = attention(heads=RandomSynthesizer(length=LENGTH, rank=rank))
    params = module.params["heads"]()
    scores = params["queries"] if rank is None else jnp.einsum("hlr,hsr->hls", params["queries"], params["keys"])
    scores = jnp.broadcast_to(scores, (2, *scores.shape))
    np.testing.assert_allclose(run(module)[0], module.out(mixed(scores, heads(module.value(X)))), rtol=1e-4, atol=1e-5)
    assert not hasattr(module, "query")


PRODUCTS = [RelativeKeys(limit=2), TransformerXL(limit=2), Contextual(limit=2)]


def enlarged(module):
    """A layer whose trained distances count for much."""
    for name, values in module.position().items():
        getattr(module.position, name)[...] = 20 * values
    return module


@pytest.mark.parametrize("position", PRODUCTS, ids=str)
def test_a_synthesizer_without_scores_of_its_own_is_attention(position, attention, run):
    """Beside scores of 0 the product of queries and keys has its factor, and so have distances."""
    heads = RandomSynthesizer(length=LENGTH, dot_product=True)
    plain, module = (enlarged(attention(position=position, **own)) for own in ({}, {"heads": heads}))
    module.params["heads"].queries[...] = jnp.zeros_like(module.params["heads"].queries[...])
    np.testing.assert_allclose(run(module)[0], run(plain)[0], rtol=1e-4, atol=1e-5)


def test_a_source_longer_than_the_scores():
    """The encoder of an encoder-decoder has its own length to fit."""
    sizes = {"source_vocab_size": 11, "max_source_length": 9}
    with pytest.raises(ConfigError, match="9 tokens"):
        EncoderDecoderConfig(**SIZES | sizes, mixer=Attention(num_heads=2, heads=DenseSynthesizer(length=8)))


@pytest.mark.parametrize("columns", [None, 8])
def test_networks_of_a_dense_synthesizer_begin_by_the_size_of_a_head(columns):
    """Each head has its own, of deviation 1/√K, however many there are."""
    specs = DenseSynthesizer(length=64, columns=columns).parameters(HeadSizes(2, 2, 64, 64), 8)
    for spec in specs.values():
        np.testing.assert_allclose(spec.initial_value(jax.random.key(0)).std(), 64**-0.5, rtol=0.08)
