"""Layouts: patterns that convert a stored tensor to one or more of our parameters, and back.

    "F D -> D F"                     a transposed matrix
    "D [F] -> D F"                   several matrices concatenated along F
    "(H [n] K) D -> D (H n K)"       several matrices interleaved within every head
    "E (N [Z]) -> E (N Z)"           two whose numbers take turns along N, the width of a network
    "[X] 1 ~W -> W X"                weights along W, stored in the opposite order

On the left are the axes of the stored tensor, on the right those of each of our parameters. The axis in
brackets is the one along which several of ours are concatenated, each with its own size.
"""

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
from einops import rearrange

Sizes = Mapping[str, int]
"""Sizes of axes by letter, where they do not follow from shapes."""


def to_ours(stored: np.ndarray, layout: str, shapes: Sequence[tuple[int, ...]], sizes: Sizes) -> list[np.ndarray]:
    """The parameters, with these shapes, that a stored tensor holds."""
    if not layout:
        return [stored]
    left, right, axes, joined = _parse(layout)
    stored = np.flip(stored, _reversed(layout))
    whole = rearrange(stored, f"{left} -> {' '.join(axes)}", **_known(left, sizes))
    if joined is None:
        return [rearrange(whole, f"{' '.join(axes)} -> {right}")]
    others = math.prod(size for axis, size in enumerate(whole.shape) if axis != joined)
    shares = [math.prod(shape) // others for shape in shapes]
    parts = np.split(whole, np.cumsum(shares)[:-1], joined)
    return [rearrange(part, f"{' '.join(axes)} -> {right}") for part in parts]


def to_stored(ours: Sequence[np.ndarray], layout: str, sizes: Sizes) -> np.ndarray:
    """The inverse of `to_ours`."""
    if not layout:
        return ours[0]
    left, right, axes, joined = _parse(layout)
    parts = [rearrange(part, f"{right} -> {' '.join(axes)}", **_known(right, sizes)) for part in ours]
    whole = parts[0] if joined is None else np.concatenate(parts, joined)
    return np.flip(rearrange(whole, f"{' '.join(axes)} -> {left}"), _reversed(layout))


def stored_shape(shapes: Sequence[tuple[int, ...]], layout: str, sizes: Sizes) -> tuple[int, ...]:
    """The shape of the tensor that holds parameters of these shapes, without creating it."""
    if not layout:
        return tuple(shapes[0])
    left, right, axes, joined = _parse(layout)
    known = _known(right, sizes)
    parts = [rearrange(_shape_alone(shape), f"{right} -> {' '.join(axes)}", **known).shape for shape in shapes]
    whole = list(parts[0])
    if joined is not None:
        whole[joined] = sum(part[joined] for part in parts)
    return rearrange(_shape_alone(whole), f"{' '.join(axes)} -> {left}").shape


def _shape_alone(shape: Sequence[int]) -> np.ndarray:
    """An array of that shape that stores a single number."""
    return np.broadcast_to(np.int8(0), shape)


def _parse(layout: str) -> tuple[str, str, list[str], int | None]:
    """(left side and right side for einops, single axes, index of the bracketed axis)."""
    left, right = (side.strip() for side in layout.split("->"))
    axes = re.findall(r"\w+", left)
    bracketed = re.search(r"\[(\w+)\]", left)
    return re.sub(r"[\[\]~]", "", left), right, axes, axes.index(bracketed[1]) if bracketed else None


def _reversed(layout: str) -> tuple[int, ...]:
    """The axes of the stored tensor that run in the opposite order."""
    axes = re.findall(r"~?\w+|\([^)]*\)", re.sub(r"[\[\]]", "", layout.partition("->")[0]))
    return tuple(i for i, axis in enumerate(axes) if axis.startswith("~"))


def _known(side: str, sizes: Sizes) -> dict[str, int]:
    """Sizes of the axes that are joined to others on this side."""
    grouped = re.findall(r"\w+", " ".join(re.findall(r"\(([^)]*)\)", side)))
    return {axis: sizes[axis] for axis in grouped if axis in sizes}
