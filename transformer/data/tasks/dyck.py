"""Brackets of several kinds, each closed by its own kind."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from transformer.data.tasks.task import AlgorithmicTask, padded
from transformer.runs.tokenizers import SPECIAL


@dataclass(frozen=True)
class Dyck(AlgorithmicTask):
    """`(0 (1 ) 1 ) 0`: nested brackets; the kind of each closing bracket is an answer (Yao et al. 2021, Dyck-(k, D)).

    Whether a bracket opens or closes is random where both are possible, with probability 1/2, and no task. So `)`
    says that the bracket that was opened last closes, and the answer after it is the kind of that bracket.
    """

    kinds: int = 2
    """k, number of kinds of brackets."""
    max_depth: int = 4
    """D, largest number of brackets that are open at the same time."""
    items: int = 16
    """Largest number of pairs of brackets; all numbers of them are equally probable."""

    def __post_init__(self):
        self.at_least(kinds=1, max_depth=1, items=1)

    @property
    def symbols(self):
        return (*(f"({kind}" for kind in range(self.kinds)), *map(str, range(self.kinds)), ")")

    @property
    def length(self):
        return 3 * self.items

    def examples(self, rng, count):
        draw = random.Random(int(rng.integers(2**63)))
        rows = [list(self._brackets(draw, draw.randint(1, self.items))) for _ in range(count)]
        return padded(
            [([len(SPECIAL) + number for number, _ in row], [scored for _, scored in row]) for row in rows], self.length
        )

    def _brackets(self, draw: random.Random, pairs: int) -> Iterator[tuple[int, bool]]:
        """The numbers of the symbols, and whether they are answers."""
        still, opened = pairs, list[int]()
        while still or opened:
            opens = still and len(opened) < self.max_depth and (not opened or draw.random() < 0.5)
            if opens:
                still -= 1
                opened.append(draw.randrange(self.kinds))
                yield opened[-1], False
            else:
                yield 2 * self.kinds, False
                yield self.kinds + opened.pop(), True
