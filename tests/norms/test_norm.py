"""Normalizations: numpy, invariances, and float32 statistics."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.core.parameters import Normal
from transformer.embeddings.embedding import Embedding
from transformer.mixers.attention.attention import Attention
from transformer.models.config import ModelConfig
from transformer.models.encoder import Encoder
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.models.language_model import LanguageModel
from transformer.norms.group_norm import group_norm
from transformer.norms.norm import LayerNorm, Norm, NormLayer, RMSNorm, layer_norm, norm_layer, rms_norm
from transformer.norms.scale_norm import ScaleNorm, unit_norm
from transformer.norms.without_statistics import Derf, DyT


def normal(seed, *shape, dtype=jnp.float32):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape) * 2 + 1, dtype)


X, SCALE, BIAS = normal(0, 2, 3, 8), normal(1, 8), normal(2, 8)


@pytest.mark.parametrize("eps", [1e-5, 0.5])
@pytest.mark.parametrize(("scale", "bias"), [(None, None), (SCALE, None), (None, BIAS), (SCALE, BIAS)])
def test_layer_norm_equals_numpy(scale, bias, eps):
    """Mean and biased variance over the features; epsilon inside the root."""
    x = np.asarray(X, np.float64)
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
    expected = expected * (1.0 if scale is None else np.asarray(scale)) + (0.0 if bias is None else np.asarray(bias))
    out = layer_norm(X, scale_D=scale, bias_D=bias, eps=eps)
    chex.assert_trees_all_close(out, expected.astype(np.float32), atol=1e-5)


@pytest.mark.parametrize("eps", [1e-6, 0.5])
@pytest.mark.parametrize("scale", [None, SCALE])
def test_rms_norm_equals_numpy(scale, eps):
    """The root of the mean square over the features; epsilon inside the root."""
    x = np.asarray(X, np.float64)
    expected = x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * (1.0 if scale is None else np.asarray(scale))
    chex.assert_trees_all_close(rms_norm(X, scale_D=scale, eps=eps), expected.astype(np.float32), atol=1e-5)


def test_invariances():
    """Both ignore the scale of a token, layer norm its mean too; rms norm does not."""
    for norm in (layer_norm, rms_norm):
        chex.assert_trees_all_close(norm(4 * X, eps=0.0), norm(X, eps=0.0), atol=1e-5)
    chex.assert_trees_all_close(layer_norm(X + 3), layer_norm(X), atol=1e-4)
    assert np.abs(rms_norm(X + 3) - rms_norm(X)).max() > 0.1


@pytest.mark.parametrize("norm", [layer_norm, rms_norm])
def test_statistics_are_float32(norm):
    """A bfloat16 token is normalized in float32 and rounded once, even far from zero."""
    x = (100 + normal(3, 4, 64)).astype(jnp.bfloat16)
    out = norm(x, scale_D=jnp.ones(64))
    assert out.dtype == jnp.bfloat16
    chex.assert_trees_all_equal(out, norm(x.astype(jnp.float32), scale_D=jnp.ones(64)).astype(jnp.bfloat16))
    exact = np.asarray(x, np.float64)
    exact = exact - exact.mean(-1, keepdims=True) if norm is layer_norm else exact
    exact /= np.sqrt((exact**2).mean(-1, keepdims=True) + 1e-6)
    chex.assert_trees_all_close(out.astype(jnp.float32), exact.astype(np.float32), atol=1e-5, rtol=2**-8)


@pytest.mark.parametrize("norm", [layer_norm, rms_norm])
def test_a_constant_token_is_finite(norm):
    """A token of zeros stays zero and its gradient is finite."""
    out, pull_back = jax.vjp(norm, jnp.zeros((1, 8)))
    assert not out.any()
    chex.assert_tree_all_finite(pull_back(normal(4, 1, 8)))


@pytest.mark.parametrize("norm", [layer_norm, rms_norm])
def test_gradients(norm):
    """The derivative along a direction is that of finite differences, for input and scale."""
    x, scale = normal(5, 2, 8), normal(6, 8)
    directions = normal(7, 2, 8), normal(8, 8)

    @jax.jit
    def run(x, scale):
        return (norm(x, scale_D=scale) ** 3).sum()

    slope = sum((g * d).sum() for g, d in zip(jax.grad(run, argnums=(0, 1))(x, scale), directions, strict=True))
    ahead, behind = (run(x + s * directions[0], scale + s * directions[1]) for s in (1e-2, -1e-2))
    np.testing.assert_allclose(slope, (ahead - behind) / 2e-2, rtol=2e-2)


def test_epsilon_outside_the_root():
    """x / (√variance + ε), finite where a token is constant, and so is its gradient."""
    x = np.asarray(X, np.float64)
    centred = x - x.mean(-1, keepdims=True)
    expected = centred / (x.std(-1, keepdims=True) + 0.5)
    chex.assert_trees_all_close(layer_norm(X, eps=0.5, eps_outside=True), expected.astype(np.float32), atol=1e-5)
    expected = x / (np.sqrt((x**2).mean(-1, keepdims=True)) + 0.5)
    chex.assert_trees_all_close(rms_norm(X, eps=0.5, eps_outside=True), expected.astype(np.float32), atol=1e-5)
    for norm in (layer_norm, rms_norm):
        gradient = jax.grad(lambda x, norm=norm: norm(x, eps_outside=True).sum())(jnp.zeros((1, 4)))
        assert np.isfinite(gradient).all()


def test_the_first_features_alone():
    """pRMSNorm: the mean of x² over a share of the features."""
    x = np.asarray(X, np.float64)
    expected = x / np.sqrt((x[..., :2] ** 2).mean(-1, keepdims=True) + 1e-6)
    for fraction in (0.25, 0.15):  # 1.2 of eight, which is rounded up
        chex.assert_trees_all_close(rms_norm(X, fraction=fraction), expected.astype(np.float32), atol=1e-4)
    assert np.isfinite(rms_norm(X, fraction=1e-12)).all()


def test_groups_and_lengths():
    """Each group of features by itself; the length of a token alone."""
    parts = [layer_norm(X[..., i : i + 4]) for i in (0, 4)]
    chex.assert_trees_all_close(group_norm(X, 2), jnp.concatenate(parts, -1), atol=1e-6)
    expected = 3 * np.asarray(X) / np.linalg.norm(X, axis=-1, keepdims=True)
    chex.assert_trees_all_close(unit_norm(X, scale=jnp.float32(3)), expected, atol=1e-5)


def test_rounding_before_the_gain():
    """In bfloat16 the order is seen; in float32 there is none."""
    x = normal(5, 4, 64, dtype=jnp.bfloat16)
    gain = jnp.asarray(1 + normal(6, 64) / 7)
    for norm in (layer_norm, rms_norm):
        first, last = (norm(x, scale_D=gain, cast_first=c) for c in (True, False))
        assert (first != last).any()
        expected = (norm(x).astype(jnp.float32) * gain).astype(jnp.bfloat16)
        chex.assert_trees_all_equal(first, expected)


KEY = jax.random.key(0)
L, D = 6, 8
x_LD = np.random.default_rng(0).normal(size=(L, D)).astype(np.float32)


def shipped(family):
    return [cls() for cls in family.variants().values() if cls.__module__.startswith("transformer.")]


def config(**choices):
    """A small config without positions, with choices by dotted path."""
    laws = {"initializer": Normal(0.5), "embedding": Embedding(initializer=Normal(0.5)), "scale_residual_init": False}
    sizes = {"vocab_size": 9, "max_length": 8, "num_layers": 2, "d_model": 8, "mixer": Attention(num_heads=2)}
    return ModelConfig(**sizes | laws, position=None).replace(choices)


def encoder(**choices):
    return Encoder(config(causal=False, **choices), key=KEY)


def test_norm_layer_is_its_norm():
    """The module applies the config's function to its own parameters."""
    for norm in (LayerNorm(), LayerNorm(bias=False, eps=0.1), RMSNorm()):
        layer = NormLayer(norm, 8, "norm", key=KEY)
        params = {name: jnp.full(spec.shape, 3.0) for name, spec in norm.parameters(8).items()}
        for name, value in params.items():
            getattr(layer.params, name)[...] = value
        chex.assert_trees_all_equal(layer(X), norm(X, params))
    assert norm_layer(None, 8, "norm", key=KEY) is None


@pytest.mark.parametrize("norm", [None, *shipped(Norm)], ids=str)
def test_norms_say_whether_they_mix_tokens(norm):
    """Exactly those whose output at a token depends on other tokens, and these are refused in causal models."""
    model, mixes = encoder(norm=norm), norm is not None and norm.mixes_tokens
    changed = np.where(np.arange(L)[:, None] == 5, 2 * x_LD, x_LD)
    first, second = (model.states_of(jnp.asarray(x)[None], None)[0, 2] for x in (x_LD, changed))
    assert (np.abs(first - second).max() > 1e-6) == mixes
    if mixes:
        for kind in (ModelConfig, EncoderDecoderConfig):
            with pytest.raises(ConfigError, match=rf"model.norm: the statistics of {norm} .*use layernorm, or an enc"):
                kind(norm=norm)


@pytest.mark.parametrize("norm", [None, *shipped(Norm)], ids=str)
def test_packed_documents_do_not_see_each_other_by_any_norm(norm):
    """An encoder of two packed documents is the encoder of each alone, or the norm is refused."""
    model = LanguageModel(config(norm=norm, causal=False, num_layers=1), key=KEY)
    segments, positions = jnp.array([[1, 1, 1, 2, 2]]), jnp.array([[0, 1, 2, 0, 1]])
    try:
        packed = model(jnp.array([[5, 6, 7, 1, 2]]), segments_BL=segments, positions_BL=positions)
    except ConfigError:
        assert norm.mixes_tokens
        return
    chex.assert_trees_all_close(packed[:, :3], model(jnp.array([[5, 6, 7]])), rtol=1e-5, atol=1e-5)
    chex.assert_trees_all_close(packed[:, 3:], model(jnp.array([[1, 2]])), rtol=1e-5, atol=1e-5)


def test_functions_in_place_of_norms_by_hand():
    x = jnp.array([-1.0, 0.5, 2.0])
    numbers = {"alpha": 0.5, "scale": 2.0, "bias": 3.0, "shift": 0.7}
    params = {name: jnp.float32(number) for name, number in numbers.items()}
    np.testing.assert_allclose(DyT()(x, params), 2 * np.tanh(0.5 * x) + 3, rtol=1e-5)
    np.testing.assert_allclose(Derf()(x, params), 2 * jax.lax.erf(0.5 * x + 0.7) + 3, rtol=1e-5)


def test_scale_norm_begins_at_the_root_of_the_width():
    assert ScaleNorm().parameters(16)["scale"].initial_value(KEY) == 4
