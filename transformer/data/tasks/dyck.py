"""Brackets of several kinds, each closed by its own kind."""

from dataclasses import dataclass

from transformer.data.tasks.task import RowTask


@dataclass(frozen=True)
class Dyck(RowTask):
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

    def row(self, draw):
        still, opened = draw.randint(1, self.items), list[int]()
        symbols, scored = list[str](), list[bool]()
        while still or opened:
            if still and len(opened) < self.max_depth and (not opened or draw.random() < 0.5):
                still -= 1
                opened.append(draw.randrange(self.kinds))
                symbols.append(f"({opened[-1]}")
                scored.append(False)
            else:
                symbols += [")", str(opened.pop())]
                scored += [False, True]
        return symbols, scored
