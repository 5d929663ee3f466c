"""Rows of similar length put into groups, so that batches of one group hold little padding."""

from collections.abc import Callable

import numpy as np


def least_padded(lengths: np.ndarray, buckets: int, batch_size: Callable[[int], int]) -> list[np.ndarray]:
    """The numbers of the rows of each group, the shortest first: the cut into groups with the fewest padded places.

    A dynamic program over the distinct lengths. A group smaller than a batch would repeat its rows in every one of
    them, so there is none, unless all rows are fewer.

    Args:
      lengths: of the rows, (N,).
      buckets: the largest number of groups.
      batch_size: the rows of a batch in which the longest is of that length.
    """
    distinct, counts = np.unique(lengths, return_counts=True)
    before = np.append(0, counts.cumsum())
    rows = before[1:] - before[:-1, None]  # of the lengths from i up to and with j; none where j < i
    large_enough = rows >= np.array([batch_size(int(length)) for length in distinct])
    large_enough[0, -1] = True
    places = np.where(large_enough, rows * distinct, np.inf)
    fewest, firsts = [np.append(0, np.full(len(distinct), np.inf))], []
    for _ in range(min(buckets, len(distinct))):
        total = fewest[-1][:-1, None] + places
        firsts.append(total.argmin(0))
        fewest.append(np.append(np.inf, total.min(0)))
    best = min(range(1, len(fewest)), key=lambda groups: fewest[groups][-1])
    end, cuts = len(distinct), []
    for first in reversed(firsts[:best]):
        end = int(first[end - 1])
        cuts.append(before[end])
    return np.split(np.argsort(lengths, kind="stable"), sorted(cuts)[1:])
