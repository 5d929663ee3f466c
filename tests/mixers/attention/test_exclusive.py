"""Heads without what they found of a token's own value."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.exclusive import XSA
from transformer.mixers.attention.heads import LatentHeads
from transformer.mixers.attention.sharing import SharedKeyValues, ValueResidual
from transformer.mixers.mixer import Shared
from transformer.models.pattern import Alternate
from transformer.norms.norm import rms_norm

LENGTH, D = 6, 8
X = jnp.asarray(np.random.default_rng(0).normal(size=(2, LENGTH, D)), jnp.float32)


def exclusive(y, v):
    """y - (y·v / |v|²) v."""
    y, v = np.asarray(y, np.float64), np.asarray(v, np.float64)
    return y - (y * v).sum(-1, keepdims=True) / (v * v).sum(-1, keepdims=True) * v


@pytest.mark.parametrize("num_kv_heads", [2, 1])
def test_the_share_of_the_own_value_is_taken_out(num_kv_heads, attention, run, heads, mixed):
    """The output of a head has no component along the token's value of its group; the first token's is 0."""
    module = attention(parts=(XSA(),), num_kv_heads=num_kv_heads)
    k, v = (np.repeat(np.asarray(layer(X)).reshape(2, LENGTH, num_kv_heads, 4), 2 // num_kv_heads, 2)
            for layer in (module.key, module.value))  # fmt: skip
    scores = jnp.einsum("blhk,bshk->bhls", heads(module.query(X)), k) / 2
    found = exclusive(heads(mixed(scores, v)), v)
    np.testing.assert_allclose((found * v).sum(-1), 0, atol=1e-5)
    out = run(module)[0]
    np.testing.assert_allclose(out, found.reshape(2, LENGTH, D) @ module.out.kernel[...], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(out[:, 0], 0, atol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_rounding_leaves_nothing_of_a_token_that_sees_itself_only(dtype):
    """Exactly 0, and gradients are finite; a small part of another value stays."""
    own = jnp.asarray(np.random.default_rng(1).normal(size=(1, 3, 2, 16)), dtype)
    other = jnp.flip(own, -1)
    np.testing.assert_array_equal(XSA().mix(0.7 * own, own, X, {}), 0 * own)
    assert (jnp.abs(XSA().mix(own + 0.1 * other, own, X, {})) > 0).all()
    gradients = jax.grad(lambda out: XSA().mix(out, own, X, {}).astype(jnp.float32).sum())(0.7 * own)
    assert np.isfinite(np.asarray(gradients, np.float32)).all()


def test_the_own_value_is_the_one_that_is_attended_to(attention, run, heads, mixed):
    """With values of the first layer mixed in, the mixture."""
    module, first = attention(parts=(XSA(),), sharing=ValueResidual()), jnp.ones((2, LENGTH, 2, 4))
    v = 0.5 * heads(module.value(X)) + 0.5
    scores = jnp.einsum("blhk,bshk->bhls", heads(module.query(X)), heads(module.key(X))) / 2
    found = exclusive(heads(mixed(scores, v)), v).reshape(2, LENGTH, D)
    out, _ = run(module, shared=Shared(values=first), first=False)
    np.testing.assert_allclose(out, found @ module.out.kernel[...], rtol=1e-4, atol=1e-5)


def test_a_latent_vector_is_taken_out_as_the_value_of_each_head(attention, run, heads):
    module = attention(parts=(XSA(),), heads=LatentHeads(rank=3, rotary=4))
    plain, params = attention(heads=LatentHeads(rank=3, rotary=4)), module.params["heads"]()
    plain.out.kernel[...] = module.out.kernel[...] = jnp.eye(D)
    latent = rms_norm(module.key(X)[..., 4:], scale_D=params["norm"])
    v = jnp.einsum("bsr,hrv->bshv", latent, params["values"])
    found = exclusive(heads(run(plain)[0]), v).reshape(2, LENGTH, D)
    np.testing.assert_allclose(run(module)[0], found, rtol=1e-4, atol=1e-5)


def test_a_value_of_zero_takes_nothing_out(attention, run):
    """And has finite gradients."""
    module, plain = attention(parts=(XSA(),)), attention()
    for one in (module, plain):
        one.value.kernel[...] = jnp.zeros((D, D))
    np.testing.assert_array_equal(run(module)[0], run(plain)[0])

    out, zero = jnp.ones((1, 1, 2, 4)), jnp.zeros((1, 1, 2, 4))
    gradients = jax.grad(lambda out, own: (XSA().mix(out, own, X, {}) ** 2).sum(), (0, 1))(out, zero)
    assert all(np.isfinite(one).all() for one in gradients)


def test_a_layer_without_values_of_its_own_is_refused(config):
    mixer = Attention(num_heads=2, parts=(XSA(),))
    with pytest.raises(ConfigError, match="without values of their own have none for xsa"):
        config(mixer, pattern=(Alternate("mixer.sharing", (None, SharedKeyValues())),))
