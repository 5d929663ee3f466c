"""Combinations of options in which every pair from two families meets."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from transformer.testing.check import refusals

Changes = Mapping[str, Any]
Option = tuple[str, int]
"""A family and the number of one of its options."""


@dataclass(frozen=True)
class Covering:
    """Rows of options, one of each family, that hold every pair but those that are refused."""

    rows: tuple[dict[str, int], ...]
    pairs: int
    """Pairs that some row holds."""
    refused: dict[tuple[Option, Option], str]
    """Why a pair cannot be, neither in a decoder nor in an encoder."""


def cover(families: Mapping[str, Sequence[Changes]], seed: int = 0, tries: int = 12) -> Covering:
    """A covering array of strength 2, greedy: each row takes of several drawn ones that with most new pairs."""
    rng = np.random.default_rng(seed)
    options = [(name, i) for name, values in families.items() for i in range(len(values))]
    refused, open_pairs = {}, set()
    for left, right in itertools.combinations(options, 2):
        if left[0] == right[0]:
            continue
        reasons = refusals(merged(families, dict([left, right])))
        if len(reasons) == 2:
            refused[left, right] = reasons["encoder"]
        else:
            open_pairs.add((left, right))
    total, rows = len(open_pairs), []
    while open_pairs:
        start = min(open_pairs)
        drawn = [_row(families, start, open_pairs, refused, rng) for _ in range(tries)]
        valid = [row for row in drawn if len(refusals(merged(families, row))) < 2]
        if not valid:  # no company was found in which this pair can be: the pair by itself
            valid = [dict(start)]
        best = max(valid, key=lambda row: len(open_pairs & pairs_of(row)))
        open_pairs -= pairs_of(best)
        rows.append(best)
    return Covering(tuple(rows), total, refused)


def _row(families, start, open_pairs, refused, rng) -> dict[str, int]:
    """A row that holds a pair, the other families one by one by what they cover."""
    row = dict(start)
    for name in map(str, rng.permutation([name for name in families if name not in row])):
        fitting = [
            i
            for i in range(len(families[name]))
            if not any(((o, (name, i)) in refused or ((name, i), o) in refused) for o in row.items())
        ]
        if fitting:
            gains = {i: _gain(row, (name, i), open_pairs) for i in fitting}
            most = max(gains.values())
            row[name] = int(rng.choice([i for i, gain in gains.items() if gain == most]))
    return row


def _gain(row: dict[str, int], option: Option, open_pairs) -> int:
    return sum(((other, option) in open_pairs) or ((option, other) in open_pairs) for other in row.items())


def pairs_of(row: Mapping[str, int]) -> set[tuple[Option, Option]]:
    """All pairs of a row, in both orders."""
    return set(itertools.permutations(row.items(), 2))


def merged(families: Mapping[str, Sequence[Changes]], row: Mapping[str, int]) -> dict[str, Any]:
    """The changes that the options of a row make together; patterns of different choices are one pattern."""
    changes: dict[str, Any] = {}
    for name, i in row.items():
        for field, value in families[name][i].items():
            changes[field] = value | changes[field] if field == "pattern" and field in changes else value
    return changes
