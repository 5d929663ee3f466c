"""Positional schemes as values: where each one enters, and what follows from that."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.core.parameters import Normal
from transformer.embeddings.embedding import Embedding
from transformer.functional.biases import LinearDistance
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.normalizers import LinearNormalizer
from transformer.models.config import ModelConfig
from transformer.models.encoder import Encoder
from transformer.positions.absolute import Learned, QueryKeySinusoidal, Sinusoidal
from transformer.positions.position import Position
from transformer.positions.randomized import Randomized
from transformer.positions.relative import ALiBi
from transformer.positions.rotary import RoPE


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

    @dataclass(frozen=True)
    class Longer(Randomized):
        longest: int = 4096

    assert Longer(RoPE()).acts == Randomized(RoPE()).acts


def shipped(family):
    return [cls() for cls in family.variants().values() if cls.__module__.startswith("transformer.")]


@pytest.mark.parametrize("position", [None, *(p for p in shipped(Position) if "score" not in p.acts)], ids=str)
def test_an_encoder_without_positions_is_equivariant(position):
    """Permuted tokens have permuted outputs without positions, and with none of the schemes."""
    laws = {"initializer": Normal(0.5), "embedding": Embedding(initializer=Normal(0.5))}
    sizes = {"vocab_size": 9, "max_length": 8, "num_layers": 1, "d_model": 8, "mixer": Attention(num_heads=2)}
    config = ModelConfig(**sizes | laws, causal=False)
    model = Encoder(config.replace(position=position), key=jax.random.key(0))
    tokens, order = np.array([[1, 2, 3, 4, 5, 6]]), np.array([4, 2, 5, 0, 1, 3])
    out, permuted = (np.asarray(model(jnp.asarray(t))) for t in (tokens, tokens[:, order]))
    difference = np.abs(out[:, order] - permuted).max()
    assert difference < 1e-5 if position is None else difference > 1e-3
