"""Packing: every token once and in order, no row overfull, the first row with room."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.core.errors import ConfigError
from transformer.data.packing import pack

SIZES = st.lists(st.integers(0, 20), max_size=30)
LENGTHS = st.integers(1, 9)


def documents_of(sizes):
    """Every token of all documents is another number, from 1."""
    ends = np.cumsum(sizes)
    return [np.arange(end - size + 1, end + 1) for size, end in zip(sizes, ends, strict=True)]


def segments_of(packed):
    """(tokens, positions) of every segment, in the order of its first token."""
    found = [
        (row["tokens"][row["segments"] == s], row["positions"][row["segments"] == s])
        for row in (dict(zip(packed, values, strict=True)) for values in zip(*packed.values(), strict=True))
        for s in range(1, row["segments"].max() + 1)
    ]
    return sorted(found, key=lambda segment: segment[0][0])


def first_fit(sizes, length):
    """The row of each piece, by looking at every row."""
    room, rows = [], []
    for size in sizes:
        row = next((i for i, free in enumerate(room) if free >= size), len(room))
        room[row:] = room[row:] or [length]
        room[row] -= size
        rows.append(row)
    return rows


@given(SIZES, LENGTHS)
def test_every_token_is_there_once_in_order_and_in_its_piece(sizes, length):
    documents = documents_of(sizes)
    packed = pack(documents, length)
    pieces = [d[i : i + length] for d in documents for i in range(0, len(d), length)]
    segments = segments_of(packed)
    assert len(segments) == len(pieces)
    for (tokens, positions), piece in zip(segments, pieces, strict=True):
        np.testing.assert_array_equal(tokens, piece)
        np.testing.assert_array_equal(positions, np.arange(len(piece)))
    assert packed["valid"].sum() == sum(sizes)


@given(SIZES, LENGTHS)
def test_rows_are_filled_from_the_left_and_hold_zeros_after(sizes, length):
    packed = pack(documents_of(sizes), length)
    valid = packed["valid"]
    assert {name: a.dtype.name for name, a in packed.items()} == {
        "tokens": "int32",
        "segments": "int32",
        "positions": "int32",
        "valid": "bool",
    }
    assert all(a.shape == valid.shape and a.shape[1] == length for a in packed.values())
    np.testing.assert_array_equal(valid, np.arange(length) < valid.sum(axis=1, keepdims=True))
    np.testing.assert_array_equal(packed["segments"] > 0, valid)
    for name in ("tokens", "positions"):
        assert not packed[name][~valid].any()
    assert valid.any(axis=1).all()
    assert (np.diff(packed["segments"], axis=1)[valid[:, 1:]] >= 0).all()


@given(st.lists(st.integers(1, 9), max_size=40))
def test_each_piece_is_in_the_first_row_with_room(sizes):
    packed = pack(documents_of(sizes), 9)
    rows = [int(np.argwhere(packed["tokens"] == d[0])[0, 0]) for d in documents_of(sizes)]
    assert rows == first_fit(sizes, 9)


def test_example():
    packed = pack([np.array([5, 6, 7]), np.array([8, 9]), np.array([1])], 4)
    assert packed["tokens"].tolist() == [[5, 6, 7, 1], [8, 9, 0, 0]]
    assert packed["segments"].tolist() == [[1, 1, 1, 2], [1, 1, 0, 0]]
    assert packed["positions"].tolist() == [[0, 1, 2, 0], [0, 1, 0, 0]]
    assert packed["valid"].tolist() == [[True] * 4, [True, True, False, False]]


def test_nothing_packs_to_no_rows():
    assert pack([], 4)["tokens"].shape == (0, 4)
    assert pack([np.zeros(0, np.int32)], 4)["valid"].shape == (0, 4)


def test_a_length_of_zero_is_refused():
    with pytest.raises(ConfigError, match="length: 0 is not a positive number"):
        pack([np.array([1])], 0)


def test_a_hundred_thousand_documents():
    """A search that looks at every open row would take minutes."""
    sizes = np.random.default_rng(0).integers(33, 65, 100_000)
    packed = pack([np.ones(size, np.int32) for size in sizes], 64)
    assert packed["valid"].sum() == sizes.sum()
