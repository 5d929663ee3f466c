"""Normalizers with numbers of their own."""

import numpy as np

from transformer.mixers.attention.normalizers import Performer


def test_random_directions_favour_none():
    """A rotation of NumPy's leans to minus the axes; from rotations that do, exponentials are off by a tenth."""
    drawn = np.array([Performer(num_features=8, seed=seed).directions(8) for seed in range(4000)])
    assert np.abs(drawn.mean(0)).max() < 5 * 4000**-0.5
    one = drawn[0] / np.linalg.norm(drawn[0], axis=1, keepdims=True)
    np.testing.assert_allclose(one @ one.T, np.eye(8), atol=1e-12)
    assert Performer(num_features=11).directions(8).shape == (11, 8)
