"""Schemes of distances, by their equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.activations.activation import CELU, Squareplus
from transformer.core.errors import ConfigError
from transformer.functional.masks import Tokens
from transformer.mixers.attention.normalizers import Performer
from transformer.models.config import ModelConfig
from transformer.models.language_model import LanguageModel
from transformer.positions.absolute import QueryKeySinusoidal, Sinusoidal, Sinusoidal2D
from transformer.positions.randomized import Randomized
from transformer.positions.relative import FIRE, KERPLE, T5Bias, TransformerXL
from transformer.positions.rotary import RoPE, XPos


def test_transformer_xl_has_the_sinusoid_of_query_less_key():
    """(q + u)·k + (q + v)·W r(i - j), r(d) = (sin d/base^(2n/D), cos …) in turns."""
    H, K, D, L, base = 2, 4, 6, 5, 10_000.0
    scheme, rng = TransformerXL(limit=20, base=base), np.random.default_rng(0)
    shapes = {name: spec.shape for name, spec in scheme.layer_parameters(H, K, D, K).items()}
    params = {name: jnp.asarray(rng.normal(size=shape), jnp.float32) for name, shape in shapes.items()}
    q_1LHK, at = jnp.asarray(rng.normal(size=(1, L, H, K)), jnp.float32), Tokens.at(jnp.arange(L))
    found = scheme.bias(scheme.to_query(q_1LHK, None, params), True, params)(at, at)[0]
    distances = np.arange(L)[:, None] - np.arange(L)
    angles = distances[..., None] / base ** (np.arange(0, D, 2) / D)
    r_LSD = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(L, L, D)
    r_LSHK = (r_LSD @ np.asarray(params["relative"])).reshape(L, L, H, K)
    expected = np.einsum("lhk,lshk->hls", q_1LHK[0] + params["place"], r_LSHK)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("length", [4, 16])
def test_randomized_positions_are_of_the_whole_range(length):
    """The largest of n of N is (N + 1) n / (n + 1) - 1 on average, also where the model has more than n places."""
    config = ModelConfig(
        vocab_size=5, num_layers=1, d_model=4, max_length=16, position=Randomized(Sinusoidal(), longest=400)
    )
    model, drawn = LanguageModel(config, key=jax.random.key(0)), []
    stream_of = model.stream_of
    model.stream_of = lambda x, context, key: drawn.append(context.remap) or stream_of(x, context, key)
    for seed in range(60):
        model(jnp.zeros((1, length), jnp.int32), key=jax.random.key(seed))
    largest = [int(remap(jnp.int32(length - 1))) for remap in drawn]
    assert np.mean(largest) == pytest.approx(401 * length / (length + 1) - 1, rel=0.1)


def test_randomized_positions_in_evaluation_are_those_of_the_scheme_apart():
    """In evaluation, with a cache or without, token i is at i times the range over `max_length`."""
    config = ModelConfig(
        vocab_size=5, num_layers=1, d_model=4, max_length=16, position=Randomized(Sinusoidal(), longest=55)
    )
    both = (config, config.replace(position="sinusoidal"))
    model, plain = (LanguageModel(one, key=jax.random.key(0)) for one in both)
    tokens_BL = jnp.asarray([[1, 2, 3, 4, 0]])
    expected = plain(tokens_BL, positions_BL=3 * jnp.arange(5)[None])
    np.testing.assert_array_equal(model(tokens_BL), expected)
    cache, found = model.start(1, 16), []
    for place in range(5):
        logits, cache = model.extend(tokens_BL[:, place : place + 1], cache)
        found.append(logits[:, 0])
    np.testing.assert_allclose(jnp.stack(found, 1), expected, rtol=1e-5, atol=1e-6)


def test_heads_of_kerple_reach_differently_far():
    """r₁ is drawn up to 2 and r₂ up to 1 (ParallelKerpleLog of the authors' code)."""
    specs = KERPLE().parameters(8, 512, 16)
    for name, most in (("first", 2.0), ("second", 1.0)):
        drawn = jax.nn.softplus(specs[name].initial_value(jax.random.key(0)))
        assert drawn.shape == (512,)
        assert 0.0099 < drawn.min() < 0.05
        assert drawn.max() == pytest.approx(most, rel=0.03)
        assert drawn.mean() == pytest.approx(most / 2, rel=0.1)


def test_fire_trains_a_factor_on_its_threshold():
    """So that a step moves it by a share of itself, whatever its unit."""
    scheme = FIRE(threshold=12.0)
    params = {name: spec.initial_value(jax.random.key(0)) for name, spec in scheme.parameters(8, 4, 16).items()}
    assert params["multiplier"] == 1
    assert scheme.bias(jnp.ones((1, 2, 4, 2)), True, params | {"multiplier": jnp.float32(1.5)}).threshold == 18


def test_xpos_ends_before_its_factors_do():
    fits = ModelConfig(vocab_size=5, d_model=8, max_length=32_768, position=XPos())
    assert fits.position == XPos()
    with pytest.raises(ConfigError, match=r"^xpos: max_length 32769 is more than 32768, 64 times decay_base; use rope"):
        LanguageModel(fits.replace(max_length=32_769), key=jax.random.key(0))
    x_1LHK = jnp.ones((1, 1, 1, 4))
    query, key = (to(x_1LHK, jnp.array([[32_767]]), {}) for to in (XPos().to_query, XPos().to_key))
    np.testing.assert_allclose((query * key).sum(), 4.0, rtol=1e-4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sinusoidal(base=0.0), "sinusoidal.base: 0.0 is not a positive number"),
        (lambda: QueryKeySinusoidal(base=0.0), "query_key_sinusoidal.base: 0.0 is not a positive number"),
        (lambda: Sinusoidal2D(columns=0), "sinusoidal_2d.columns: 0 is not a positive number"),
        (lambda: TransformerXL(base=float("inf")), "transformer_xl.base: inf is not a positive number"),
        (lambda: FIRE(hidden=0), "fire.hidden: 0 is not a positive number"),
        (lambda: RoPE(fraction=float("nan")), "rope.fraction: nan is not a positive number"),
        (lambda: Performer(seed=-1), "performer.seed: -1 is negative"),
        (lambda: CELU(0.0), "celu.alpha: 0.0 is not a positive number"),
        (lambda: Squareplus(0.0), "squareplus.b: 0.0 is not a positive number"),
    ],
)
def test_impossible_numbers(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(("causal", "buckets"), [(True, [1, 0, 0, 0]), (False, [1, 0, 5, 6])])
def test_t5_tells_later_keys_apart_in_an_encoder(causal, buckets):
    table, tokens = {"table": jnp.arange(8.0)[:, None]}, Tokens.first(4)
    bias = T5Bias(num_buckets=8, max_distance=16).bias(jnp.zeros((1, 4, 1, 2)), causal, table)
    np.testing.assert_array_equal(bias(tokens, tokens)[0, 0, 1], buckets)


def test_kerple_by_hand():
    params = {name: jnp.log(jnp.expm1(jnp.array([size]))) for name, size in (("first", 2.0), ("second", 0.5))}
    bias, tokens = KERPLE().bias(jnp.zeros((1, 4, 1, 2)), True, params), Tokens.first(4)
    np.testing.assert_allclose(bias(tokens, tokens)[0, 0, 3, 0], -2 * np.log(1 + 0.5 * 3), rtol=1e-5)
