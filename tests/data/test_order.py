"""The order of rows that a seed gives."""

import numpy as np
import pytest

from transformer.data.order import FEW, Shuffled


@pytest.mark.parametrize(("count", "batch_size"), [(7, 4), (FEW, 64), (FEW + 1, 64)])
def test_every_row_is_used_once_before_any_is_used_again(count, batch_size):
    rows = Shuffled(count, batch_size, seed=3)
    drawn = np.concatenate([rows[step] for step in range(-(-2 * count // batch_size))])
    for epoch in range(2):
        np.testing.assert_array_equal(np.sort(drawn[epoch * count :][:count]), np.arange(count))


@pytest.mark.parametrize(("count", "batch_size"), [(55_000, 16), (1_003_790, 12), (16_000_000, 16)])
def test_batches_are_as_those_of_chance(count, batch_size):
    """Sizes of which grain's own shuffle has means with .35, 1.6 and 3.2 times the variance, or correlated by -.5."""
    rows, steps = Shuffled(count, batch_size, seed=0), 2000
    means = np.array([rows[step].mean() for step in range(steps)]) / count - 0.5
    spread = means.var() * 12 * batch_size
    assert abs(spread - 1) < 5 * (2 / steps) ** 0.5
    assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < 5 * steps**-0.5


@pytest.mark.parametrize("count", [300, FEW + 300])
def test_no_epoch_has_the_order_of_another_one_of_any_seed(count):
    starts = {tuple(Shuffled(count, count, seed)[epoch][:20]) for seed in range(4) for epoch in range(4)}
    assert len(starts) == 16
