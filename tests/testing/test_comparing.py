"""How arrays are compared, and that what is not a number is never alike."""

import numpy as np
import pytest

from transformer.testing.comparing import CLOSE, ROUNDING, close, close_gradients, differ

SIZE = 100_000
"""So many numbers that the mean does not notice one of them."""


def with_one(value, base=1.0):
    """Many equal numbers, of which one is another."""
    array = np.full(SIZE, base)
    array[SIZE // 3] = value
    return array


@pytest.mark.parametrize("wrong", [1.01, -1.0, np.nan, np.inf])
def test_one_number_is_enough(wrong):
    """Wherever it is; on either side; also of a gradient, among those of other parameters."""
    ones = with_one(1.0)
    for pair in ((with_one(wrong), ones), (ones, with_one(wrong))):
        with pytest.raises(AssertionError, match="the logits: differs by"):
            close(*pair, "the logits")
        with pytest.raises(AssertionError, match=r"another gradient of \['kernel'\]"):
            close_gradients({"bias": ones, "kernel": pair[0]}, {"bias": ones, "kernel": pair[1]}, "twin")
    if np.isfinite(wrong):
        differ(with_one(wrong), ones, "the logits")


@pytest.mark.parametrize("tolerance", [CLOSE, ROUNDING])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_differences_are_relative_to_the_largest_value(tolerance, size):
    left, right = with_one(size, 0.0), with_one(size * (1 + 0.9 * tolerance), 0.0)
    close(left, right, "alike", tolerance)
    with pytest.raises(AssertionError):
        close(left, with_one(size * (1 + 1.1 * tolerance), 0.0), "alike", tolerance)
    close_gradients({"kernel": left}, {"kernel": right}, "alike", tolerance)
    with pytest.raises(AssertionError):
        close_gradients({"kernel": left}, {"kernel": left * (1 + 1.1 * tolerance)}, "alike", tolerance)
    close(with_one(size, 0.5 * tolerance * size), with_one(size, 0.0), "alike", tolerance)


def test_equal_arrays_do_not_differ():
    with pytest.raises(AssertionError, match="two keys: no difference"):
        differ(with_one(3.0), with_one(3.0), "two keys")
    with pytest.raises(AssertionError, match="two keys: no difference"):
        differ(with_one(3.0), with_one(3.0 + 1e-6), "two keys")
