"""The order of rows that a seed gives."""

import numpy as np
import pytest

from transformer.data.dataset import FEW, Shuffled, divisible


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


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 6])
def test_devices_share_a_batch_without_changing_what_it_holds(parts):
    rows = {"tokens": np.arange(1, 41).reshape(5, 4, 2), "weights": np.ones((5, 4, 1))}
    shared = divisible(rows, parts)
    size = shared["tokens"].shape[1]
    assert size % parts == 0
    np.testing.assert_array_equal(shared["tokens"][:, :4], rows["tokens"])
    assert not any(array[:, 4:].any() for array in shared.values())


def test_more_devices_than_rows_share_several_batches():
    rows = {"tokens": np.arange(1, 41).reshape(5, 4, 2), "weights": np.ones((5, 4, 1))}
    shared = divisible(rows, 9)
    assert {name: array.shape for name, array in shared.items()} == {"tokens": (3, 9, 2), "weights": (3, 9, 1)}
    assert shared["weights"].sum() == 20
    np.testing.assert_array_equal(shared["tokens"][shared["weights"][..., 0] > 0], rows["tokens"].reshape(20, 2))
    in_order = divisible(rows, 9, in_order=True)["tokens"]
    assert in_order.shape == (5, 9, 2)
    np.testing.assert_array_equal(in_order[:, :4], rows["tokens"])
