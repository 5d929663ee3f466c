"""Combinations of options in which every pair from two families occurs."""

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
    """Rows of options, one from each family, that hold every pair except those that are refused."""

    rows: tuple[dict[str, int], ...]
    pairs: int
    """Number of pairs that some row holds."""
    refused: dict[tuple[Option, Option], str]
    """Why a pair is possible neither in a decoder nor in an encoder."""


def cover(families: Mapping[str, Sequence[Changes]]) -> Covering:
    """A covering array of strength 2, made greedily: each row is the one of twelve drawn rows with most new pairs.

    A row begins with a new pair of the option that has most of them, and is filled from the largest family on.
    """
    rng = np.random.default_rng(0)
    options = [(name, i) for name, values in families.items() for i in range(len(values))]
    sizes = [len(values) for values in families.values()]
    places = np.stack([np.cumsum([0, *sizes[:-1]]), np.cumsum(sizes)], 1)[np.argsort(sizes)[::-1]]
    refused, possible = {}, np.zeros((len(options), len(options)), bool)
    for (i, left), (j, right) in itertools.combinations(enumerate(options), 2):
        if left[0] == right[0]:
            continue
        if reason := refusal(merged(families, dict([left, right]))):
            refused[left, right] = reason
        else:
            possible[i, j] = possible[j, i] = True
    still, rows = possible.copy(), []
    while still.any():
        new = still.sum(1)
        most = int(new.argmax())
        start = [most, int(np.where(still[most], new, 0).argmax())]
        drawn = [_row(places, start, still, possible, rng) for _ in range(12)]
        drawn.sort(key=lambda row: -still[np.ix_(row, row)].sum())
        fitting = (row for row in drawn if not refusal(merged(families, dict(options[i] for i in row))))
        best = next(fitting, start)  # no combination was found in which this pair is possible: the pair alone
        still[np.ix_(best, best)] = False
        rows.append(dict(options[i] for i in best))
    return Covering(tuple(rows), int(possible.sum()) // 2, refused)


def refusal(choices: Changes) -> str | None:
    """Why a model with these choices can be neither a decoder nor an encoder; None if it can."""
    reasons = refusals(choices)
    return reasons["encoder"] if len(reasons) == 2 else None


def _row(places, start, still, possible, rng) -> list[int]:
    """A row that holds a pair, filled family by family by what options cover; as numbers of options."""
    row = list(start)
    gains, fits = still[row].sum(0), possible[row].all(0)
    for first, end in places:
        own = first + np.flatnonzero(fits[first:end])
        if own.size:
            best = int(rng.choice(own[gains[own] == gains[own].max()]))
            row.append(best)
            gains, fits = gains + still[best], fits & possible[best]
    return row


def merged(families: Mapping[str, Sequence[Changes]], row: Mapping[str, int]) -> dict[str, Any]:
    """The changes of all options of a row together; a value of a whole field comes before changes inside of it.

    Where two options set one field, patterns are joined, and of other values the last one counts.
    """
    changes: dict[str, Any] = {}
    for name, i in row.items():
        for field, value in families[name][i].items():
            changes[field] = (*changes[field], *value) if field == "pattern" and field in changes else value
    return changes
