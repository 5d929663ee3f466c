"""Attention: groups of heads, and biases of its projections."""

from dataclasses import dataclass

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.analysis.counts import parameter_count
from transformer.core.errors import ConfigError
from transformer.functional.masks import Causal, Tokens
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.backends import Chunked
from transformer.mixers.attention.part import Part
from transformer.mixers.mixer import Context
from transformer.models.config import ModelConfig
from transformer.positions.position import Position
from transformer.positions.rotary import RoPE

KEY = jax.random.key(0)
L, D, H = 6, 8, 2
X = np.random.default_rng(0).normal(size=(L, D)).astype(np.float32)
TOKENS = Tokens.at(np.arange(L))
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def shipped(family):
    return [cls() for cls in family.variants().values() if cls.__module__.startswith("transformer.")]


def test_grouped_heads_are_repeated_heads(attention, attend):
    """Two key-value heads for four query heads equal four heads with each key and value twice."""
    grouped, full = (attention(RoPE(), num_heads=4, num_kv_heads=kv) for kv in (2, None))
    assert grouped.key.kernel.shape == (D, 4)
    for name in ("key", "value"):
        kernel = np.asarray(getattr(grouped, name).kernel[...]).reshape(D, 2, 2)
        getattr(full, name).kernel[...] = jnp.asarray(kernel.repeat(2, axis=1).reshape(D, D))
    chex.assert_trees_all_close(attend(grouped), attend(full), atol=1e-6)


@pytest.mark.parametrize("position", [None, *shipped(Position)], ids=str)
def test_a_key_bias_does_nothing_unless_it_is_rotated(position, attention):
    """q·(k + b) adds the same to all scores of a query, and softmax does not see it; RoPE turns b, CoPE's gates do."""
    params, keys, seen = {}, jnp.asarray(X).reshape(1, L, H, D // H), False
    if position is not None:
        params = {n: s.initial_value(KEY) for n, s in position.parameters(D, H, 8).items()}
        turned = (position.to_key(keys, TOKENS.positions, params) != keys).any()
        seen = turned or "score" in position.acts

    def out(value):
        module = attention(position=position, bias=("key",))
        module.key.bias[...] = module.key.bias[...] + value
        return module(jnp.asarray(X)[None], context=Context(TOKENS, Causal(), params))[0]

    difference = np.abs(out(3.0) - out(0.0)).max()
    assert difference > 1e-2 if seen else difference < 1e-5


@pytest.mark.parametrize("role", ["query", "value", "out"])
def test_other_biases_do_something(role, config, attention, attend):
    """Those of queries, values and outputs change the output; all are counted, that of keys too."""
    module = attention(bias=(role,))
    before = attend(module)
    layer = getattr(module, role)
    layer.bias[...] = layer.bias[...] + 1.0
    assert np.abs(attend(module) - before).max() > 1e-2
    plain = parameter_count(config())
    assert parameter_count(config(Attention(num_heads=H, bias=("key",)))) - plain == 2 * D
    everywhere = Attention(num_heads=H, bias=("query", "key", "value", "out"))
    assert parameter_count(config(everywhere)) - plain == 2 * 4 * D


def test_dropout_needs_weights(config, attention):
    """A backend that never forms them is refused; exact attention drops them under a key."""
    with pytest.raises(ConfigError, match=r"mixer.dropout: chunked.* never forms the weights; use backend=none"):
        config(Attention(num_heads=H, dropout=0.1, backend=Chunked()))
    context, x = Context(TOKENS, Causal()), jnp.asarray(X)[None]
    module, plain = (attention(dropout=rate) for rate in (0.5, 0.0))
    chex.assert_trees_all_close(module(x, context=context)[0], plain(x, context=context)[0], rtol=1e-6)
    assert np.abs(module(x, context=context, key=KEY)[0] - plain(x, context=context)[0]).max() > 1e-4


def test_parts_that_need_the_input_or_its_keys_are_not_in_attention_to_a_source():
    """Their parameters would be there, and nothing would read them."""

    @dataclass(frozen=True)
    class Doubled(Part):
        def extend(self, keys_values, keys, params):
            return keys_values, keys

    @dataclass(frozen=True)
    class Louder(Part):
        def mix(self, out_BLHV, own_BLHV, x_BLD, params):
            return 2 * out_BLHV

    assert Attention(parts=(Doubled(), Louder())).for_cross_attention().parts == (Louder(),)


def test_a_part_that_acts_nowhere_is_refused():
    """As one whose method is misspelled, which would change nothing without a word."""

    @dataclass(frozen=True)
    class Misspelled(Part):
        def mixx(self, out_BLHV, own_BLHV, x_BLD, params):
            return 2 * out_BLHV

    with pytest.raises(ConfigError, match=r"misspelled acts nowhere: .* none of .*; did you mean mix by mixx\?"):
        ModelConfig(mixer=Attention(parts=(Misspelled(),)))
