"""From states to one vector."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.functional.masks import Tokens
from transformer.models.build import build
from transformer.models.classifier import ClassifierConfig
from transformer.models.pooling import AttentionPooling, ClassToken, FirstToken, MeanPooling, MultiheadPooling

CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def test_poolings_by_hand():
    """Mean and attention over the real tokens, and the first of all."""
    x = np.random.default_rng(0).normal(size=(2, 4, 8)).astype(np.float32)
    valid, query = np.array([[1, 1, 1, 0], [1, 0, 0, 0]], bool), x[0, 0]
    pooled = {
        p: p(jnp.asarray(x), jnp.asarray(valid), {"query": jnp.asarray(query)})
        for p in (MeanPooling(), AttentionPooling(), ClassToken())
    }
    for i, (row, real) in enumerate(zip(x, valid, strict=True)):
        weights = np.exp(row[real] @ query) / np.exp(row[real] @ query).sum()
        chex.assert_trees_all_close(pooled[MeanPooling()][i], row[real].mean(0), **CLOSE)
        chex.assert_trees_all_close(pooled[AttentionPooling()][i], weights @ row[real], **CLOSE)
        chex.assert_trees_all_equal(pooled[ClassToken()][i], jnp.asarray(row[0]))


def test_pooling_by_several_heads_by_hand():
    """Zhai et al. 2022: attention of one query to the real tokens, and an MLP around which the result is added."""
    rng, pooling = np.random.default_rng(0), MultiheadPooling(num_heads=2, expansion=2)
    x, real = rng.normal(size=(1, 5, 8)), slice(0, 3)
    params = {name: rng.normal(size=spec.shape) for name, spec in pooling.parameters(8).items()}
    heads = []
    for part in (slice(0, 4), slice(4, 8)):
        keys, values = ((x[0, real] @ params[name])[:, part] for name in ("key", "value"))
        weights = np.exp(keys @ params["query"][part] / 2)
        heads.append(weights / weights.sum() @ values)
    y = np.concatenate(heads) @ params["out"]
    normed = (y - y.mean()) / np.sqrt(y.var() + 1e-5) * params["scale"]
    expected = y + np.asarray(jax.nn.gelu(jnp.float32(normed @ params["up"]))) @ params["down"]
    arrays = {name: jnp.float32(value) for name, value in params.items()}
    found = pooling(jnp.float32(x), jnp.arange(5)[None] < 3, arrays)
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(ConfigError, match=r"map.num_heads: 3 heads do not divide d_model 8; the nearest that do are"):
        ClassifierConfig(d_model=8, pooling=MultiheadPooling(num_heads=3))


@pytest.mark.parametrize("pooling", [MeanPooling(), AttentionPooling()], ids=str)
def test_pooling_of_nothing_is_zero(pooling):
    """A text without a real token gives zeros, not NaN."""
    out = pooling(jnp.ones((1, 3, 8)), jnp.zeros((1, 3), bool), {"query": jnp.ones(8)})
    assert not np.asarray(out).any()


def test_the_pooler_of_bert_by_hand():
    """tanh(xW + b) of the first token."""
    rng = np.random.default_rng(0)
    x, kernel, bias = rng.normal(size=(2, 3, 4)), rng.normal(size=(4, 4)), rng.normal(size=4)
    params = {"kernel": jnp.float32(kernel), "bias": jnp.float32(bias)}
    found = FirstToken()(jnp.float32(x), None, params)
    np.testing.assert_allclose(found, np.tanh(x[:, 0] @ kernel + bias), rtol=1e-4, atol=1e-5)


def test_the_class_token_is_read_and_no_register():
    """Where no layer mixes tokens, the logits are those of the class token by itself."""
    sizes = {"vocab_size": 5, "max_length": 4, "num_layers": 1, "d_model": 4, "mixer": None, "position": None}
    model = build(ClassifierConfig(**sizes, num_classes=3, registers=2, pooling=ClassToken()), key=jax.random.key(0))
    model.pooling_params.token[...] = token = jnp.array([1.0, -2.0, 0.5, 3.0])
    states, _ = model.transform(token[None, None], Tokens.first(1))
    np.testing.assert_allclose(model(jnp.array([[3, 1, 4]])), model.head(states[:, 0]), rtol=1e-5)
