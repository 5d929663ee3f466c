"""Normalizers with numbers of their own."""

import jax.numpy as jnp
import numpy as np

from transformer.mixers.attention.normalizers import Performer, Retention


def test_random_directions_favour_none():
    """A rotation of NumPy's leans to minus the axes; from rotations that do, exponentials are off by a tenth."""
    drawn = np.array([Performer(num_features=8, seed=seed).directions(8) for seed in range(4000)])
    assert np.abs(drawn.mean(0)).max() < 5 * 4000**-0.5
    one = drawn[0] / np.linalg.norm(drawn[0], axis=1, keepdims=True)
    np.testing.assert_allclose(one @ one.T, np.eye(8), atol=1e-12)
    assert Performer(num_features=11).directions(8).shape == (11, 8)


def test_retention_fades_by_one_less_a_power_of_two():
    np.testing.assert_allclose(Retention()(4, {}).gamma_H, 1 - 2.0 ** -np.arange(5, 9), rtol=1e-6)


def test_features_of_performer_stand_for_exponentials_of_scaled_products():
    q, k = jnp.asarray(np.random.default_rng(0).normal(size=(2, 1, 5, 1, 4)), jnp.float32)
    features = Performer(num_features=8192).features
    found = jnp.einsum("blhf,bshf->ls", features(q), features(k))
    np.testing.assert_allclose(found, jnp.exp(jnp.einsum("blhk,bshk->ls", q, k) / 2), rtol=0.15)
