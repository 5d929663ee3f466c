"""Groups of similar length with the least padding."""

import itertools

import numpy as np
import pytest

from transformer.data.buckets import least_padded


def padded(lengths, groups):
    return sum(len(rows) * lengths[rows].max() for rows in groups)


def fewest_places(lengths, buckets, size):
    """By all cuts of the sorted rows between different lengths."""
    found, in_order = [], np.sort(lengths)
    places = np.flatnonzero(np.diff(in_order)) + 1
    for count in range(min(buckets, len(lengths))):
        for cuts in itertools.combinations(places, count):
            groups = np.split(in_order, cuts)
            if count == 0 or all(len(group) >= size(group.max()) for group in groups):
                found.append(sum(len(group) * group.max() for group in groups))
    return min(found)


def tokens_10(length):
    return max(1, 10 // int(length))


@pytest.mark.parametrize("buckets", [1, 2, 3, 20])
@pytest.mark.parametrize("size", [lambda _: 1, lambda _: 3, lambda _: 100, tokens_10])
@pytest.mark.parametrize("seed", range(5))
def test_no_cut_has_less_padding(buckets, size, seed):
    """Every row is in one group, and all of a length are in the same."""
    lengths = np.random.default_rng(seed).geometric(0.2, 10)
    groups = least_padded(lengths, buckets, size)
    assert sorted(np.concatenate(groups)) == list(range(10))
    assert 1 <= len(groups) <= buckets
    assert padded(lengths, groups) == fewest_places(lengths, buckets, size)
    for one, next_one in itertools.pairwise(groups):
        assert lengths[one].max() < lengths[next_one].min()


def test_a_group_holds_a_batch():
    """One long row alone would be all rows of its batches."""
    lengths = np.array([5, 6, 100, 5, 6, 6])
    assert [rows.tolist() for rows in least_padded(lengths, 3, lambda _: 1)] == [[0, 3], [1, 4, 5], [2]]
    assert [rows.tolist() for rows in least_padded(lengths, 3, lambda _: 2)] == [[0, 3], [1, 4, 5, 2]]
