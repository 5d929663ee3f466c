"""Where JAX has types of 64 bits, numbers have the same types as elsewhere, and none is promoted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import transformer as T
from transformer.core.errors import ConfigError
from transformer.models.config import ModelConfig
from transformer.testing.elsewhere import decoding, gradient
from transformer.testing.options import FAMILIES
from transformer.testing.subject import small

SMALL = {"mixer": T.DeltaNet(chunk=5), "feed_forward": T.TopKExperts(d_ff=24)}
SCORES = {"mixer.backend": T.Chunked(block=3), "mixer.normalizer": T.SoftmaxOne(), "residual": T.HyperConnections()}


def types(config: ModelConfig) -> set[str]:
    """Those of a gradient and of a step of decoding."""
    with jax.enable_x64(True):
        found = [jax.eval_shape(*_called(gradient(config)))]
        if config.causal:
            found.append(jax.eval_shape(*_called(decoding(config))))
    return {str(array.dtype) for array in jax.tree.leaves(found)}


def _called(program):
    function, arguments = program
    return function, *arguments


@pytest.mark.parametrize("changes", [SMALL, SCORES])
def test_types_are_those_of_32_bits(changes):
    assert types(small(causal=True).replace(changes)) <= {"float32", "int32", "bool"}


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_types_of_an_option_are_those_of_32_bits(family, causal):
    wide, checked = {}, 0
    for option in FAMILIES[family]:
        try:
            config = small(causal=causal).replace(dict(option))
        except ConfigError:
            continue
        checked += 1
        if others := types(config) - {"float32", "int32", "bool"}:
            wide[str(option)] = others
    assert wide == {}
    assert checked > 5


MODEL = T.ModelConfig(vocab_size=11, num_layers=1, d_model=16, max_length=16, mixer=T.Attention(num_heads=2))


@pytest.mark.parametrize("strategy", [T.Greedy(), T.Sample(top_k=3, top_p=0.9, min_p=0.1), T.Beam(size=2)])
def test_the_same_is_decoded(strategy):
    params, (_, apply) = T.initial_params(MODEL, jax.random.key(0)), T.pure_model(MODEL)

    def decoded():
        found = T.generate(apply, params, np.ones((2, 4), np.int32), num_tokens=3, strategy=strategy, key=KEY)
        assert found.log_probability_B.dtype == jnp.float32
        return found.tokens_BT

    expected = decoded()
    with jax.enable_x64(True):
        np.testing.assert_array_equal(decoded(), expected)


KEY = jax.random.key(1)


@pytest.mark.parametrize("objective", [T.NextToken(), T.PrefixToken(), T.MaskedToken()])
def test_a_step_has_the_same_types(objective):
    config = MODEL.replace(causal=objective.causal)
    params, (_, apply) = T.initial_params(config, jax.random.key(0)), T.pure_model(config)
    optimizer = T.make_optimizer(T.OptimizerConfig(), 20, T.specs(T.build(config, key=jax.random.key(0))))
    numbers = T.Numbers(*map(jnp.float32, (1e-3, 0.1, 5.0)))
    state, step = T.create_train_state(params, optimizer, numbers, KEY), T.make_train_step(apply, objective, optimizer)
    with jax.enable_x64(True):
        found = jax.eval_shape(step, state, {"tokens": np.ones((2, 9), np.int32)})
    assert {str(array.dtype) for array in jax.tree.leaves(found)} <= {"float32", "int32", "key<fry>"}
