"""Kinds of heads against the formulas of their papers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.core.modules import split
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.heads import DifferentialHeads, DifferentialHeadsV2, LatentHeads, LatentQueryHeads
from transformer.mixers.attention.projections import NoProjections, TiedProjections
from transformer.models.config import ModelConfig
from transformer.models.language_model import LanguageModel
from transformer.norms.norm import rms_norm
from transformer.positions.relative import FIRE, KERPLE, ALiBi, T5Bias
from transformer.positions.rotary import RoPE

LENGTH, D = 6, 8
X = jnp.asarray(np.random.default_rng(0).normal(size=(2, LENGTH, D)), jnp.float32)


def test_latent_heads_are_heads_whose_keys_and_values_come_of_one_vector(attention, run, mixed):
    """The products moved into queries and outputs change nothing; a rotary key is shared by all heads."""
    module = attention(heads=LatentHeads(rank=3, rotary=4), position=RoPE())
    position, params = RoPE(), module.params["heads"]()
    q = module.query(X).reshape(2, LENGTH, 2, 8)
    k, places = module.key(X), jnp.arange(LENGTH)[None]
    latent = rms_norm(k[..., 4:], scale_D=params["norm"])
    keys, values = (jnp.einsum("bsr,hrk->bshk", latent, params[name]) for name in ("keys", "values"))
    shared = position.to_key(k[:, :, None, :4], places, {})[:, :, 0]
    scores = jnp.einsum("blhk,bshk->bhls", q[..., 4:], keys)
    scores += jnp.einsum("blhk,bsk->bhls", position.to_query(q[..., :4], places, {}), shared)
    expected = module.out(mixed(scores / np.sqrt(4 + 4), values))
    np.testing.assert_allclose(run(module)[0], expected, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("query_rank", [None, 3])
def test_queries_of_a_small_vector(query_rank, attention, run, mixed):
    """q = W_up norm(W_down x), and of each projection the last features are rotated."""
    module = attention(heads=LatentQueryHeads(rank=3, rotary=4, query_rank=query_rank), position=RoPE())
    position, params, places = RoPE(), module.params["heads"](), jnp.arange(LENGTH)[None]
    q = module.query(X)
    if query_rank is not None:
        assert module.query.kernel.shape == (D, query_rank)
        q = rms_norm(q, scale_D=params["query_norm"]) @ params["queries"]
    q, k = q.reshape(2, LENGTH, 2, 8), module.key(X)
    latent = rms_norm(k[..., :3], scale_D=params["norm"])
    keys, values = (jnp.einsum("bsr,hrk->bshk", latent, params[name]) for name in ("keys", "values"))
    shared = position.to_key(k[:, :, None, 3:], places, {})[:, :, 0]
    scores = jnp.einsum("blhk,bshk->bhls", q[..., :4], keys)
    scores += jnp.einsum("blhk,bsk->bhls", position.to_query(q[..., 4:], places, {}), shared)
    expected = module.out(mixed(scores / np.sqrt(4 + 4), values))
    np.testing.assert_allclose(run(module)[0], expected, rtol=2e-4, atol=1e-5)


def test_the_latent_vector_is_all_that_is_kept(config):
    """The cache has one head of rank + rotary features and values of rank, whatever the number of heads."""
    model = LanguageModel(config(Attention(num_heads=2, heads=LatentHeads(rank=3, rotary=4))), key=jax.random.key(0))
    layer = model.start(2, LENGTH).layers[0]["attention"]
    assert layer is not None
    assert (layer.keys_XKS.shape, layer.values_XSK.shape) == ((2, 7, LENGTH), (2, LENGTH, 3))


@pytest.mark.parametrize("num_kv_heads", [2, 1])
def test_two_queries_of_a_head_share_its_keys(num_kv_heads, attention, run, mixed):
    """softmax(q₁k)v - σ(xw) softmax(q₂k)v, w of the head, without a norm (Differential Transformer V2)."""
    module = attention(heads=DifferentialHeadsV2(), num_kv_heads=num_kv_heads)
    q = module.query(X).reshape(2, LENGTH, 2, 2, 4)
    k, v = (
        np.repeat(np.asarray(layer(X)).reshape(2, LENGTH, num_kv_heads, 4), 2 // num_kv_heads, 2)
        for layer in (module.key, module.value)
    )
    maps = (mixed(jnp.einsum("blhk,bshk->bhls", q[..., i, :], k) / 2, v).reshape(2, LENGTH, 2, 4) for i in (0, 1))
    first, second = map(np.asarray, maps)
    factor = 1 / (1 + np.exp(-np.asarray(X) @ np.asarray(module.params["heads"].factors[...])))
    found = (first - factor[..., None] * second).reshape(2, LENGTH, D)
    np.testing.assert_allclose(run(module)[0], module.out(found), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("projection", [TiedProjections(), NoProjections()], ids=str)
def test_heads_of_two_queries_have_projections_of_their_own(projection, config):
    with pytest.raises(ConfigError, match=r"mixer.projection: differential_v2 needs layers of other widths"):
        config(Attention(num_heads=2, heads=DifferentialHeadsV2(), projection=projection))


@pytest.mark.parametrize("num_kv_heads", [None, 1])
@pytest.mark.parametrize("position", [T5Bias(), T5Bias(shared=False), KERPLE(), FIRE(), ALiBi()], ids=str)
def test_each_map_of_differential_heads_has_its_own_bias(position, num_kv_heads, config):
    """A bias of a number for each of two maps a head, all of them trained; and later tokens have no say."""
    mixer = Attention(num_heads=2, heads=DifferentialHeads(), num_kv_heads=num_kv_heads)
    params, apply = split(LanguageModel(config(mixer, position=position, num_layers=1), key=jax.random.key(0)))
    tokens = jnp.asarray([[3, 1, 4, 1, 5, 9]])
    gradients = jax.grad(lambda params: (apply(params, tokens) ** 2).sum())(params)
    own = [g for path, g in jax.tree.leaves_with_path(gradients) if "'position'" in jax.tree_util.keystr(path)]
    numbers = [np.abs(g).reshape(-1, g.shape[-1]).max(0) for g in own if g.shape and g.shape != (FIRE().hidden,)]
    assert all(number.shape == (4,) and number.all() for number in numbers)
    changed = apply(params, tokens.at[0, -1].set(2))
    np.testing.assert_allclose(changed[:, :-1], apply(params, tokens)[:, :-1], atol=1e-5)


def test_the_difference_of_two_maps(attention, run, mixed):
    """norm((A₁ - λA₂)V) · (1 - λ_init), λ = exp(λq₁·λk₁) - exp(λq₂·λk₂) + λ_init (Ye et al. 2024, equations 1 to 3)."""
    module = attention(heads=DifferentialHeads(initial=0.6))
    q, k = (layer(X).reshape(2, LENGTH, 2, 2, 2) for layer in (module.query, module.key))
    v = module.value(X).reshape(2, LENGTH, 2, 4)
    scores = jnp.einsum("blhik,bshik->ibhls", q, k) / np.sqrt(2)
    first, second = (mixed(one, v).reshape(2, LENGTH, 2, 4) for one in scores)
    p = module.params["heads"]()
    factor = jnp.exp(p["query_1"] @ p["key_1"]) - jnp.exp(p["query_2"] @ p["key_2"]) + 0.6
    found = 0.4 * rms_norm(first - factor * second, scale_D=p["scale"])
    np.testing.assert_allclose(run(module)[0], module.out(found.reshape(2, LENGTH, D)), rtol=1e-4, atol=1e-5)


def test_matrices_of_latent_heads_begin_by_the_size_of_the_vector():
    """Each head has its own, of deviation 1/√rank, however many there are."""
    mixer = Attention(num_heads=2, head_dim=32, heads=LatentHeads(rank=64, rotary=4))
    params = mixer.build(ModelConfig(d_model=8, mixer=mixer, position=None), key=jax.random.key(0)).params["heads"]()
    for name in ("keys", "values"):
        np.testing.assert_allclose(params[name].std(), 64**-0.5, rtol=0.05)
