"""Paths and orders in random graphs (Allen-Zhu 2025, "Physics of Language Models: Part 4.1", Depo and Brevo)."""

import abc
import random
from collections.abc import Iterable
from dataclasses import dataclass

from transformer.core.errors import ConfigError
from transformer.data.tasks.task import Row, RowTask, answered

Name = tuple[int, ...]
"""The numbers of the symbols of the name of a node."""


@dataclass(frozen=True)
class _Graph(RowTask):
    """A graph whose nodes have random names of one or several symbols, other ones in each example.

    The last symbol of a name (`7`) is not among those that go on (`7-`), so it is known where a name ends.
    """

    nodes: int = 16
    """Largest number N of nodes, at least 3; n of them have a probability ∝ 1 / (n + √N)."""
    exact: bool = False
    """Whether all examples are as hard as possible, for tests: of `nodes` nodes (and of `hops` hops)."""
    letters: int = 50
    """Number of different symbols at each place of a name."""
    shortest: int = 1
    """Symbols of the shortest names; lengths are drawn equally often, and names that are taken drawn again."""
    longest: int = 1
    """Symbols of the longest names."""

    def __post_init__(self):
        self.at_least(nodes=3, letters=1, shortest=1, longest=self.shortest)
        names = sum(self.letters**size for size in range(self.shortest, self.longest + 1))
        if names < self.nodes:
            raise ConfigError(f"{self.name}.letters: {self.letters} make {names} names, fewer than {self.nodes} nodes")

    @property
    def _letters(self) -> tuple[str, ...]:
        """The symbols of names; letter i at the end of a name is number i, before the end number `letters` + i."""
        return (
            *(str(i) for i in range(self.letters)),
            *(f"{i}-" for i in range(self.letters) if self.longest > 1),
        )

    def row(self, draw):
        sizes = range(3, self.nodes + 1)
        weights = [1 / (n + self.nodes**0.5) for n in sizes]
        size = self.nodes if self.exact else draw.choices(sizes, weights)[0]
        return self._row(draw, self._names(draw, size))

    def _names(self, draw: random.Random, count: int) -> list[Name]:
        """Different names, in random order."""
        names: dict[Name, None] = {}
        while len(names) < count:
            *begin, end = draw.choices(range(self.letters), k=draw.randint(self.shortest, self.longest))
            names[(*(self.letters + letter for letter in begin), end)] = None
        # Short names are rare among the last ones, because most of them are taken.
        return draw.sample(list(names), count)

    @abc.abstractmethod
    def _row(self, draw: random.Random, names: list[Name]) -> Row:
        """An example with these nodes."""

    def _written(self, names: Iterable[Name]) -> list[str]:
        """The symbols of names one after the other."""
        letters = self._letters
        return [letters[number] for name in names for number in name]


@dataclass(frozen=True)
class Depo(_Graph):
    """`2 3 3 1 1 2 ?2 3 = 2 ?1 2 = 3`: the node that is k steps after another one in a cycle of all nodes.

    The pairs of neighbours come in random order, then the questions: `?k`, a node, `=` and the answer. Depo1 of the
    paper is `depo(nodes=375, hops=8, longest=2)`, Depo2 `depo(nodes=125, hops=16, letters=3, shortest=5, longest=7)`.
    """

    hops: int = 4
    """Largest number k of steps; all are equally probable."""
    questions: int = 10
    """Number of questions, about different nodes: of all nodes if there are fewer."""

    def __post_init__(self):
        super().__post_init__()
        self.at_least(hops=1, questions=1)

    @property
    def symbols(self):
        return (*self._letters, "=", *(f"?{k}" for k in range(1, self.hops + 1)))

    @property
    def length(self):
        return 2 * self.nodes * self.longest + min(self.nodes, self.questions) * 2 * (1 + self.longest)

    def _row(self, draw, names):
        n = len(names)
        row = self._written((*names[i], *names[(i + 1) % n]) for i in draw.sample(range(n), n))
        scored = [False] * len(row)
        for i in draw.sample(range(n), min(n, self.questions)):
            k = self.hops if self.exact else draw.randint(1, self.hops)
            node, answer = self._written([names[i]]), self._written([names[(i + k) % n]])
            question = [f"?{k}", *node, "="]
            row += [*question, *answer]
            scored += [False] * len(question) + [True] * len(answer)
        return row, scored


_DEGREE = 4
"""Largest number of nodes that a node depends on, and of nodes that depend on it."""


@dataclass(frozen=True)
class Brevo(_Graph):
    """`1 3 1 2 3 2 1 4 ? 2 = 1 3 2 </s>`: all that a node depends on, each node after those that it depends on.

    A pair x y says that y depends on x, and no node depends on itself through others. Brevo1 of the paper is
    `brevo(nodes=110, letters=110)`, Brevo2 `brevo(nodes=50, letters=4, shortest=2, longest=4)`.
    """

    unique: bool = True
    """Whether of the nodes that may come next the one with the smallest name does: the answer is determined. If not,
    one of them is drawn; the paper does so, and it accepts any order that is possible."""

    @property
    def symbols(self):
        return (*self._letters, "?", "=")

    @property
    def length(self):
        edges = sum(min(i, _DEGREE) for i in range(self.nodes))
        return self.longest * (2 * edges + 1 + self.nodes) + 3

    def _row(self, draw, names):
        needs = dependencies(draw, len(names))
        edges = [(x, y) for y, xs in enumerate(needs) for x in xs]
        draw.shuffle(edges)
        question = [*self._written((*names[x], *names[y]) for x, y in edges), "?", *self._written(names[-1:]), "="]
        return answered(question, [*self._written(names[i] for i in self._order(draw, names, needs)), "</s>"])

    def _order(self, draw: random.Random, names: list[Name], needs: list[list[int]]) -> list[int]:
        """The last node and all that it depends on, in the order of the answer."""
        wanted, stack = set[int](), [len(needs) - 1]
        while stack:
            node = stack.pop()
            if node not in wanted:
                wanted.add(node)
                stack += needs[node]
        order, rest = dict[int, None](), sorted(wanted, key=names.__getitem__)
        while rest:
            ready = [node for node in rest if all(other in order for other in needs[node])]
            node = ready[0] if self.unique else draw.choice(ready)
            order[node] = None
            rest.remove(node)
        return list(order)


def dependencies(draw: random.Random, count: int) -> list[list[int]]:
    """For each node, the nodes before it that it depends on, 1 to 4; none for the first ones, up to a quarter of all.

    As many as 4 nodes depend on a node.
    """
    needs, dependents, free = [list[int]() for _ in range(count)], [0] * count, list[int]()
    leaves = draw.randint(1, (count - 1) // 4 + 1)
    for node in range(count):
        if node >= leaves:
            needs[node] = draw.sample(free, draw.randint(1, min(len(free), _DEGREE)))
            for other in needs[node]:
                dependents[other] += 1
                if dependents[other] == _DEGREE:
                    free.remove(other)
        free.append(node)
    return needs
