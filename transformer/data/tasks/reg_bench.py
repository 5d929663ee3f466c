"""Strings of a language that every example has for itself."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from transformer.data.tasks.task import AlgorithmicTask, Examples, joined
from transformer.runs.tokenizers import SPECIAL


@dataclass(frozen=True)
class RegBench(AlgorithmicTask):
    """`a d a | a d c d | …`: strings of a random automaton (Akyürek et al. 2024, "In-Context Language Learning").

    An example has an automaton of its own. It has `edges` + 1 to `states` states, and so many to `alphabet`
    of the symbols; from a state go 1 to `edges` edges with different symbols to different other states. A
    string begins in the first state and takes every edge of a state with the same probability. There are
    `strings` / 2, rounded up, to `strings` of them, of 1 to `string_length` symbols. All these numbers are
    uniform. The code of the paper (seq_icl) draws one string and one symbol less at most.

    The paper trains on all symbols but the separators, and counts a prediction as right if the automaton
    allows it. Here a prediction is right only if it is the symbol that follows, which is the same where the
    automaton allows a single one: train with `scored` `all`, test with `certain`.
    """

    name = "reg_bench"
    states: int = 12
    """Largest number of states."""
    alphabet: int = 18
    """Number of different symbols; the paper's 20 include the separator and padding."""
    edges: int = 3
    """Largest number of edges from a state."""
    strings: int = 20
    """Largest number of strings, at least 2."""
    string_length: int = 50
    """Largest number of symbols of a string."""
    scored: Literal["all", "certain"] = "all"
    """Symbols that are answers: all after the first of an example, or those where the automaton allows no other.
    An example without any is drawn again."""

    def __post_init__(self):
        self.at_least(edges=1, strings=2, string_length=1, states=self.edges + 1, alphabet=self.edges + 1)

    @property
    def symbols(self):
        return (*(f"s{i}" for i in range(self.alphabet)), "|")

    @property
    def length(self):
        return self.strings * (self.string_length + 1) - 1

    def examples(self, rng, count):
        tokens, scored = self._draw(rng, count)
        while len(empty := np.flatnonzero(~scored.any(1))):
            tokens[empty], scored[empty] = self._draw(rng, len(empty))
        return tokens, scored

    def _draw(self, rng: np.random.Generator, count: int) -> Examples:
        symbols, certain = self._strings(rng, count)
        sizes = rng.integers(1, self.string_length + 1, (count, self.strings, 1))
        numbers = rng.integers((self.strings + 1) // 2, self.strings + 1, (count, 1, 1))
        place, string = np.arange(self.string_length + 1), np.arange(self.strings)[:, None]
        separator = (place == sizes) & (string < numbers - 1)
        symbols[separator] = self.alphabet
        used = (string < numbers) & (place < sizes) | separator
        answers = used & ~separator & (certain | (self.scored == "all"))
        answers[:, 0, 0] = False
        used = joined(used)
        rows, columns = np.nonzero(used)[0], (used.cumsum(1) - 1)[used]
        tokens, scored = np.zeros((count, self.length), np.int32), np.zeros((count, self.length), bool)
        tokens[rows, columns] = joined(symbols)[used] + len(SPECIAL)
        scored[rows, columns] = joined(answers)[used]
        return tokens, scored

    def _strings(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Symbols, and whether each is the only one allowed, (count, `strings`, `string_length` + 1)."""
        degrees, symbols, targets = self._automata(rng, count)
        shape = count, self.strings, self.string_length + 1
        drawn, certain = np.empty(shape, np.int64), np.empty(shape, bool)
        state, rows = np.zeros(shape[:2], np.int64), np.arange(count)[:, None]
        for i in range(shape[2]):
            certain[:, :, i] = degrees[rows, state] == 1
            edge = rng.integers(degrees[rows, state])
            drawn[:, :, i] = symbols[rows, state, edge]
            state = targets[rows, state, edge]
        return drawn, certain

    def _automata(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Numbers of edges (count, `states`), their symbols and their targets (count, `states`, `edges`)."""
        # Of random numbers, the smallest are a draw without replacement; one that may not be drawn is greater by 2.
        sizes = rng.integers(self.edges + 1, self.alphabet + 1, (count, 1))
        others = rng.permuted(2.0 * (np.arange(self.alphabet) >= sizes), axis=1)[:, None]
        symbols = (rng.random((count, self.states, self.alphabet)) + others).argsort(2)[..., : self.edges]
        sizes = rng.integers(self.edges + 1, self.states + 1, (count, 1, 1))
        others = 2.0 * (np.arange(self.states) >= sizes) + 2 * np.eye(self.states)
        targets = (rng.random(others.shape) + others).argsort(2)[..., : self.edges]
        return rng.integers(1, self.edges + 1, (count, self.states)), symbols, targets
