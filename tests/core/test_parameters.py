"""Laws of initial values, and which parameters decay."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.parameters import ONES, ZEROS, FanIn, Normal, Parameter, Xavier

KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("initializer", "mean", "deviation"),
    [(Normal(0.02), 0.0, 0.02), (FanIn(), 0.0, 0.1), (ZEROS, 0.0, 0.0), (ONES, 1.0, 0.0)],
    ids=str,
)
def test_initial_values(initializer, mean, deviation):
    """float32 with the mean and standard deviation of the law; 1/√fan-in for the first axis."""
    values = initializer(KEY, (100, 50))
    assert values.dtype == jnp.float32
    np.testing.assert_allclose([values.mean(), values.std()], [mean, deviation], atol=0.05 * deviation + 1e-7)


def test_decay_is_for_matrices():
    """Unless it says otherwise, a parameter decays from two axes up."""
    decayed = [Parameter(shape).decayed for shape in ((), (3,), (3, 3), (2, 3, 3))]
    assert decayed == [False, False, True, True]
    assert Parameter((3,), decay=True).decayed
    assert not Parameter((3, 3), decay=False).decayed


def test_the_gain_of_stacked_arrays():
    once, twice = (Parameter((3, 4, 4), Normal(1.0), gain=g, stacked=True).initial_value(KEY) for g in (1.0, 2.0))
    np.testing.assert_allclose(twice, 2 * once)


@pytest.mark.parametrize("shape", [(40, 160), (160, 40)])
@pytest.mark.parametrize("count", [None, 4])
def test_xavier_values_are_of_both_sizes(shape, count):
    """Variance 2 / (fan-in + fan-out), uniform, of each of several arrays too."""
    stacked = {} if count is None else {"stacked": True}
    values = Parameter(shape if count is None else (count, *shape), Xavier(), **stacked).initial_value(KEY)
    np.testing.assert_allclose(values.var(), 2 / 200, rtol=0.05)
    np.testing.assert_allclose(abs(values).max(), (6 / 200) ** 0.5, rtol=0.01)
