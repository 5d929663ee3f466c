"""Positional schemes as values: where each one enters, and what lies outside a learned table."""

from dataclasses import dataclass

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.values import ConfigError
from transformer.functional.biases import LinearDistance
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.normalizers import LinearNormalizer
from transformer.models.config import ModelConfig
from transformer.positions.absolute import Learned, QueryKeySinusoidal, Sinusoidal
from transformer.positions.position import Position
from transformer.positions.randomized import Randomized
from transformer.positions.relative import ALiBi
from transformer.positions.rotary import LinearScaling, Llama3Scaling, NTKScaling, RoPE, YaRN


@dataclass(frozen=True)
class Nowhere(Position):
    """A scheme that defines no way into a model."""


POSITIONS = jnp.array([[0, 3, 1]])
X = jnp.asarray(np.random.default_rng(0).normal(size=(1, 3, 2, 4)), jnp.float32)


@pytest.mark.parametrize(
    ("position", "ways"),
    [
        (Nowhere(), ()),
        (Sinusoidal(), ("to_embedding",)),
        (Learned(), ("to_embedding",)),
        (QueryKeySinusoidal(), ("to_query_key_input",)),
        (RoPE(), ("to_query", "to_key")),
        (ALiBi(), ("bias",)),
    ],
    ids=str,
)
def test_where_positions_enter(position, ways):
    """Each scheme enters in its own place and nowhere else."""
    specs = position.parameters(d_model=8, num_heads=2, max_length=4)
    params = {name: spec.initializer(jax.random.key(0), spec.shape) for name, spec in specs.items()}
    calls = {
        "to_embedding": lambda: position.to_embedding(POSITIONS, 8, params),
        "to_query_key_input": lambda: position.to_query_key_input(POSITIONS, 8, params),
        "bias": lambda: position.bias(X, True, params),
    }
    assert position.acts == set(ways)
    for way, call in calls.items():
        if way in ways:
            assert call() is not None
        else:
            with pytest.raises(NotImplementedError):
                call()
    turned = [np.any(turn(X, POSITIONS, params) != X) for turn in (position.to_query, position.to_key)]
    assert turned == ["to_query" in ways, "to_key" in ways]


@pytest.mark.parametrize("outside", [4, 100, -1])
def test_outside_a_learned_table(outside):
    """A position without a row gives NaN, and never the row of another position."""
    table = jnp.asarray(np.random.default_rng(0).normal(size=(4, 8)), jnp.float32)
    rows = Learned().to_embedding(jnp.array([[3, outside]]), 8, {"table": table})
    chex.assert_trees_all_equal(rows[0, 0], table[3])
    assert np.isnan(rows[0, 1]).all()


@pytest.mark.parametrize("kind", [LinearScaling, NTKScaling, YaRN, Llama3Scaling])
@pytest.mark.parametrize("factor", [0.0, 0.5])
def test_scaling_is_for_longer_texts(kind, factor):
    assert kind(factor=1.0).factor == 1
    with pytest.raises(ConfigError, match=rf"{kind.name}\.factor: {factor} is less than 1, .*; use none"):
        kind(factor=factor)


def test_what_a_scheme_does_follows_from_what_it_defines():
    """A scheme of one's own with a bias is refused where scores take none, without a flag to remember."""

    @dataclass(frozen=True)
    class Slope(Position):
        def bias(self, q_BLHK, causal, params):
            return LinearDistance(jnp.ones(q_BLHK.shape[2]))

    assert Slope().biased
    assert Slope().acts == {"bias"}
    with pytest.raises(ConfigError, match="takes no bias"):
        ModelConfig(position=Slope(), mixer=Attention(normalizer=LinearNormalizer()))
    assert Randomized(ALiBi()).fades
    assert not Randomized(RoPE()).biased
