"""Positions that are added to the embedding, to the stream, or to queries and keys."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.functional.masks import Tokens
from transformer.mixers.mixer import Context
from transformer.models.config import ModelConfig
from transformer.models.encoder import Encoder
from transformer.models.transformer import Block
from transformer.positions.absolute import Learned, Sinusoidal, Sinusoidal2D, StepSinusoidal

KEY = jax.random.key(0)


@pytest.mark.parametrize("outside", [4, 100, -1])
def test_outside_a_learned_table(outside):
    """A position without a row gives NaN, and never the row of another position."""
    table = jnp.asarray(np.random.default_rng(0).normal(size=(4, 8)), jnp.float32)
    rows = Learned().to_embedding(jnp.array([[3, outside]]), 8, {"table": table})
    chex.assert_trees_all_equal(rows[0, 0], table[3])
    assert np.isnan(rows[0, 1]).all()


def test_learned_positions_end():
    """A table of n vectors has no vector n + 1, and says so."""
    model = Encoder(ModelConfig(vocab_size=9, max_length=4, causal=False, position=Learned()), key=KEY)
    with pytest.raises(ConfigError, match="5 tokens are more than max_length 4"):
        model(jnp.zeros((1, 5), jnp.int32))


def test_sines_before_cosines():
    interleaved, halves = (Sinusoidal(interleaved=i).to_embedding(jnp.arange(5)[None], 6, {}) for i in (True, False))
    assert interleaved is not None
    np.testing.assert_array_equal(halves, jnp.concatenate([interleaved[..., ::2], interleaved[..., 1::2]], -1))


@pytest.mark.parametrize("first", [0, 1])
def test_rows_and_columns_are_told_apart(first):
    """Half of the features are the row's, half the column's; what stands before the patches is nowhere in the grid."""
    grid = Sinusoidal2D().on_grid(columns=3, first=first)
    x = np.asarray(grid.to_embedding(jnp.arange(first + 6)[None], 8, {})[0])
    before, patch = x[:first], x[first:].reshape(2, 3, 8)
    assert (patch[..., :4] == patch[:, :1, :4]).all()
    assert (patch[..., 4:] == patch[:1, :, 4:]).all()
    assert len(np.unique(patch[:, 0, :4], axis=0)) == 2
    assert len(np.unique(patch[0, :, 4:], axis=0)) == 3
    assert len(np.unique(x.round(5), axis=0)) == first + 6
    assert not any((patch[..., :4] == b[:4]).all(-1).any() for b in before)


def test_every_block_is_told_its_number():
    """Sinusoids of position and step (Dehghani et al. 2018, equation 6), also where blocks share their parameters."""
    own = ModelConfig(position=StepSinusoidal(), mixer=None, num_layers=3, distinct_layers=1, d_model=16)
    block, context = Block(own, key=KEY), Context(Tokens.at(np.arange(8)))
    x = jnp.asarray(np.random.default_rng(0).normal(size=(1, 8, 16)), jnp.float32)
    for layer in range(3):
        angle = np.arange(8)[:, None] / 10_000 ** (np.arange(8) / 8)
        step = (layer + 1) / 10_000 ** (np.arange(8) / 8)
        added = np.stack([np.sin(angle) + np.sin(step), np.cos(angle) + np.cos(step)], -1).reshape(8, 16)
        moved = x + added.astype(np.float32)
        x, _ = block(x, context=context, layer=layer, key=None)
        plain = Block(own.replace(position=None), key=KEY)
        chex.assert_trees_all_close(x, plain(moved, context=context, layer=layer, key=None)[0], atol=1e-5)
