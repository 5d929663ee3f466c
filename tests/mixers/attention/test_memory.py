"""Trained keys and values that every query sees."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.analysis.activations import run_with_cache
from transformer.core.errors import ConfigError
from transformer.core.modules import split
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.backends import Chunked, Recurrent
from transformer.mixers.attention.memory import MemoryKeyValues
from transformer.mixers.attention.normalizers import LinearNormalizer, Retention
from transformer.mixers.attention.sharing import ScoreResidual
from transformer.models.config import ModelConfig
from transformer.models.language_model import LanguageModel
from transformer.positions.contextual import Forgetting
from transformer.positions.relative import KERPLE, ALiBi

LENGTH, D = 6, 8
X = jnp.asarray(np.random.default_rng(0).normal(size=(2, LENGTH, D)), jnp.float32)


@pytest.mark.parametrize("backend", [None, Chunked(block=4)], ids=str)
@pytest.mark.parametrize("position", [None, ALiBi()], ids=str)
@pytest.mark.parametrize("num_kv_heads", [2, 1])
def test_every_query_sees_them(num_kv_heads, position, backend, attention, run, heads):
    """softmax([q·k + bias, q·m]) [v, n] with m and n trained, without a bias (Sukhbaatar et al. 2019, equation 9)."""
    how = {"num_kv_heads": num_kv_heads, "position": position, "backend": backend}
    module = attention(parts=(MemoryKeyValues(3),), **how)
    groups = 2 // num_kv_heads
    q = heads(module.query(X))
    k, v = (
        np.repeat(np.asarray(layer(X)).reshape(2, LENGTH, num_kv_heads, 4), groups, 2)
        for layer in (module.key, module.value)
    )
    own = module.parts["memory"]()
    m, n = (np.repeat(np.asarray(own[name]), groups, 0) for name in ("keys", "values"))
    distance = np.arange(LENGTH)[:, None] - np.arange(LENGTH)
    slopes = np.array([2.0**-4, 2.0**-8])[:, None, None] * (position is not None)
    scores = np.einsum("blhk,bshk->bhls", q, k) / 2 - slopes * distance
    powers = np.exp(scores) * np.tri(LENGTH)
    powers = np.concatenate([powers, np.exp(np.einsum("blhk,hnk->bhln", q, m) / 2)], -1)
    values = np.concatenate([v, np.broadcast_to(n.transpose(1, 0, 2), (2, 3, 2, 4))], 1)
    found = np.einsum("bhls,bshk->blhk", powers / powers.sum(-1, keepdims=True), values).reshape(2, LENGTH, D)
    np.testing.assert_allclose(run(module)[0], found @ module.out.kernel[...], rtol=1e-4, atol=1e-5)


def test_they_are_the_first_keys_of_a_pattern(config):
    """So that the last query is at the position of the last key, as measures of patterns take it."""
    model = config(Attention(num_heads=2, parts=(MemoryKeyValues(3),)))
    params, apply = split(LanguageModel(model, key=jax.random.key(0)))
    _, found = run_with_cache(apply, params, jnp.arange(LENGTH)[None], names="*.pattern")
    for pattern in found.values():
        weights = np.asarray(pattern).reshape(-1, LENGTH, 3 + LENGTH)
        assert (weights[..., :3] > 0).all()
        np.testing.assert_array_equal(weights[..., 3:] > 0, np.broadcast_to(np.tri(LENGTH), weights[..., 3:].shape))


@pytest.mark.parametrize(
    ("choices", "why"),
    [
        ({"position": Forgetting()}, "forgetting counts the tokens"),
        ({"normalizer": Retention()}, "retention weighs by distance"),
        ({"normalizer": LinearNormalizer(), "backend": Recurrent()}, "recurrent reads from left to right"),
        ({"sharing": ScoreResidual()}, "are of no tokens"),
    ],
    ids=str,
)
def test_what_needs_tokens_is_refused(choices, why, config):
    position = choices.pop("position", KERPLE() if "sharing" in choices else None)
    with pytest.raises(ConfigError, match=why):
        config(Attention(num_heads=2, parts=(MemoryKeyValues(),), **choices), position=position)


def test_memory_does_not_decay():
    mixer = Attention(num_heads=2)
    specs = MemoryKeyValues().parameters(mixer, ModelConfig(d_model=8, mixer=mixer))
    assert not any(spec.decayed for spec in specs.values())
