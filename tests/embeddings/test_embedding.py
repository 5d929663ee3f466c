"""Embeddings: rows of a table, their widths, lengths and types, and the logits of the same table."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.core.modules import split
from transformer.embeddings.embedding import EmbeddingLayer
from transformer.functional.masks import Tokens
from transformer.mixers.attention.attention import Attention
from transformer.models.build import build
from transformer.models.config import ModelConfig
from transformer.models.language_model import LanguageModel

KEY = jax.random.key(0)
X = jnp.asarray(np.random.default_rng(0).normal(size=(1, 8, 16)), jnp.float32)
SMALL = ModelConfig(vocab_size=8, max_length=8, num_layers=2, d_model=16, mixer=Attention(num_heads=2))


def config(**choices):
    """A small config, with choices by dotted path."""
    return SMALL.replace(choices)


TEXT = jnp.array([[1, 6, 2, 7, 4]])
TEXTS = jnp.array([[3, 1, 4, 1, 5], [7, 2, 6, 5, 3]], jnp.int32)


def pure(config: ModelConfig, seed: int = 0):
    """Random parameters, none of which is at a special value, and the model."""
    params, apply = split(LanguageModel(config, key=jax.random.key(seed)))
    rng = np.random.default_rng(seed)
    params = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape, scale=0.3), a.dtype), params)
    return params, jax.jit(apply, static_argnames="method")


@pytest.mark.parametrize("tied", [True, False])
def test_embedding(tied):
    """Rows of the table; logits from the same table or from one of their own, always float32."""
    model = LanguageModel(config(**{"head.tied": tied}, dtype="bfloat16"), key=KEY)
    embedding, tokens = model.embedding, jnp.array([[3, 0, 3]])
    assert (model.output is None) == tied
    rows = embedding(tokens)
    assert rows.dtype == jnp.bfloat16
    chex.assert_trees_all_equal(rows[0], embedding.table[...][jnp.array([3, 0, 3])].astype(jnp.bfloat16))
    output = embedding if tied else model.output
    table = np.asarray(output.table[...])
    logits = output.logits(X.astype(jnp.bfloat16))
    assert logits.dtype == jnp.float32
    chex.assert_trees_all_close(logits, np.asarray(X) @ table.T, atol=2e-3, rtol=2e-2)
    states, _ = model.transform(rows, Tokens.at(np.arange(3)))
    chex.assert_trees_all_equal(model(tokens), output.logits(states))
    assert tied or np.abs(table - np.asarray(embedding.table[...])).min() > 0


@pytest.mark.parametrize("token", [8, 1000, -1])
def test_token_outside_the_vocabulary(token):
    """It is refused, and in a program, which cannot, it gives NaN and never another token's row."""
    layer, tokens = EmbeddingLayer(8, config(), key=KEY), jnp.array([[1, token]])
    with pytest.raises(ConfigError, match=rf"^token {token} at \(0, 1\) is not in \[0, 8\)$"):
        layer(tokens)
    rows = jax.jit(layer)(tokens)
    assert np.isfinite(rows[0, 0]).all()
    assert np.isnan(rows[0, 1]).all()


def test_embedding_needs_a_vocabulary():
    """Without a vocabulary size the error names the field."""
    with pytest.raises(ConfigError, match=r"model\.vocab_size"):
        EmbeddingLayer(None, config(), key=KEY)


def test_factorized_and_unit_embeddings():
    """A narrow table and a matrix are the wide table that is their product; unit rows have one length."""
    factors, wide = (config(**{"embedding.dim": dim}) for dim in (3, None))
    (params, apply), (other, plain) = (split(build(config, key=KEY)) for config in (factors, wide))
    narrow = params["embedding"]
    assert narrow["table"].shape[1] == 3
    other = params | {"embedding": {"table": narrow["table"] @ narrow["projection"]}}
    chex.assert_trees_all_close(apply(params, TEXT), plain(other, TEXT), rtol=1e-4, atol=1e-5)
    model = build(config(**{"embedding.unit_length": True}), key=KEY)
    model.embedding.gain[...] = jnp.float32(3.0)
    np.testing.assert_allclose(np.linalg.norm(model.embedding(TEXT), axis=-1), 3.0, rtol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(model.embedding.logits(jnp.eye(16)[None])[0], axis=0), 3.0, rtol=1e-4)


def test_scaled_embeddings():
    """√D times the rows; the logits by the tied table are not scaled."""
    scaled, plain = (LanguageModel(config(**{"embedding.scaled": own}), key=KEY) for own in (True, False))
    chex.assert_trees_all_close(scaled.embedding(TEXT), 4 * plain.embedding(TEXT), rtol=1e-6)
    chex.assert_trees_all_equal(scaled.embedding.logits(X), plain.embedding.logits(X))


def test_a_type_adds_its_vector():
    """Of every token, and type 0 where none is given; only where the model has types."""
    params, run = pure(SMALL.replace({"embedding.types": 3}))
    types = jnp.array([[0, 0, 1, 1, 2], [2, 1, 0, 1, 2]], jnp.int32)
    plain_params, plain = pure(SMALL)
    moved = params | {"embedding": {"table": params["embedding"]["table"]}}
    table = params["embedding"]["types"]
    for row in range(2):  # types that all tokens share can be had by another table
        same = moved | {"position": {"table": params["position"]["table"] + table[row]}}
        np.testing.assert_allclose(
            run(params, TEXTS, types_BL=jnp.full_like(types, row)), plain(same, TEXTS), rtol=1e-4, atol=1e-5
        )
    np.testing.assert_array_equal(run(params, TEXTS), run(params, TEXTS, types_BL=jnp.zeros_like(types)))
    assert np.abs(run(params, TEXTS) - run(params, TEXTS, types_BL=types)).max() > 1e-3
    assert np.isnan(run(params, TEXTS, types_BL=types + 1)).any()
    with pytest.raises(ConfigError, match=r"^type 3 at \(0, 4\) is not in \[0, 3\)$"):
        LanguageModel(SMALL.replace({"embedding.types": 3}), key=KEY)(TEXTS, types_BL=types + 1)
    with pytest.raises(ConfigError, match=r"embedding\.types is not set"):
        plain(plain_params, TEXTS, types_BL=types)
