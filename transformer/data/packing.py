"""Documents packed into rows of one length."""

from collections.abc import Iterator, Sequence

import numpy as np

from transformer.core.errors import ConfigError


def pack(documents: Sequence[np.ndarray], length: int) -> dict[str, np.ndarray]:
    """Rows of whole documents, each of which goes into the first row with room for it.

    A document longer than `length` is cut into pieces of `length` tokens, the last one shorter, and
    each piece is a separate segment; empty documents are dropped.

    Args:
      documents: token arrays, each (L,).
      length: tokens per row.

    Returns:
      (N, length) arrays: `tokens` int32, 0 for padding; `segments` int32, from 1 in each row, 0 for
      padding; `positions` int32, from 0 in each segment; `valid` bool, False for padding.

    Raises:
      ConfigError: `length` is not positive.
    """
    if length < 1:
        raise ConfigError(f"length: {length} is not a positive number")
    pieces = [document[i : i + length] for document in documents for i in range(0, len(document), length)]
    starts = list(_first_fit([len(piece) for piece in pieces], length))
    shape = (max(starts, default=-1) // length + 1, length)
    tokens, positions = np.zeros(shape, np.int32), np.full(shape, -1, np.int32)
    for start, piece in zip(starts, pieces, strict=True):
        tokens.reshape(-1)[start : start + len(piece)] = piece
        positions.reshape(-1)[start : start + len(piece)] = np.arange(len(piece))
    valid = positions >= 0
    segments = np.cumsum(positions == 0, axis=1, dtype=np.int32) * valid
    return {"tokens": tokens, "segments": segments, "positions": positions * valid, "valid": valid}


def _first_fit(sizes: Sequence[int], length: int) -> Iterator[int]:
    """The start of each piece in the rows laid end to end.

    The rows, all empty at first and as many as pieces, are the leaves of a binary tree whose nodes
    hold the largest room below them, so that one walk from the root finds the first row with enough room.
    """
    leaves = 1 << max(len(sizes) - 1, 0).bit_length()
    room = [length] * (2 * leaves)
    for size in sizes:
        node = 1
        while node < leaves:
            node = 2 * node + (room[2 * node] < size)
        yield (node - leaves + 1) * length - room[node]
        room[node] -= size
        while node := node // 2:
            room[node] = max(room[2 * node], room[2 * node + 1])
