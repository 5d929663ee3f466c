"""The order in which a run reads the rows of its data, which its seed determines."""

import functools
from collections.abc import Callable

import numpy as np
from grain.experimental import index_shuffle

ORDER = 2
"""Version of the order of rows that a seed gives; a run is not continued in another one."""
FEW = 2**16
"""Rows up to which their order is kept as an array, of which the cipher is slow."""
ROUNDS = 12
"""Rounds of the cipher; with 4, as in grain's own shuffle, batches of some sizes are far from random."""


class Shuffled:
    """Numbers below `count` at random, in batches without end; each is used once before any is used again.

    A pure function of seed and step. No epoch has the order of another one, of this seed or of others.
    """

    def __init__(self, count: int, batch_size: int, seed: int):
        self._count, self._batch_size, self._seed = count, batch_size, seed
        self._order_of = functools.lru_cache(maxsize=2)(self._order)

    def __getitem__(self, step: int) -> np.ndarray:
        """(B,) int64, the batch of that step."""
        first = int(step) * self._batch_size
        places = (divmod(place, self._count) for place in range(first, first + self._batch_size))
        return np.array([self._order_of(epoch)(index) for epoch, index in places])

    def _order(self, epoch: int) -> Callable[[int], int]:
        """The number at each place of an epoch: a permutation of few, a cipher of many, which needs no memory."""
        seed = np.random.SeedSequence([self._seed, epoch])
        if self._count <= FEW:
            return np.random.default_rng(seed).permutation(self._count).__getitem__
        last = self._count - 1
        # With a power of 4 as the last number, index_shuffle gives one number twice and another one never (grain 0.2).
        last += last.bit_count() == 1
        cipher = functools.partial(index_shuffle, max_index=last, seed=int(seed.generate_state(1)[0]), rounds=ROUNDS)
        return lambda index: number if (number := cipher(index)) < self._count else cipher(number)
