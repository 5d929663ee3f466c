"""The parts of our parameters that each stored tensor holds: the rows of an architecture, expanded for a config."""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from einops import EinopsError

from transformer.core.errors import ConfigError
from transformer.core.modules import Params
from transformer.mixers.recurrent.linear import ProjectedRecurrence
from transformer.models.config import ModelConfig
from transformer.pretrained.architecture import Architecture, Row
from transformer.pretrained.layouts import Sizes, stored_shape, to_ours

LOOKED_UP = ("table", "types")
"""Names of matrices that all store alike: row by row, one for each token, position or type."""
MOST_LISTED = 8
"""Names in one line of text."""
LAYOUTS = "'F D -> D F' (stored transposed) or 'D F -> D F' (as it is)"

Path = tuple[str, ...]
Leaves = Mapping[Path, Any]
"""Arrays, or their shapes, by path."""


class Place(NamedTuple):
    """A parameter, or the slice of it that belongs to one layer or expert."""

    path: Path
    indices: tuple[int, ...]


class Entry(NamedTuple):
    """One stored tensor."""

    name: str
    row: Row
    places: tuple[Place, ...]
    shapes: tuple[tuple[int, ...], ...]
    """Shapes of the places."""
    sizes: Sizes

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the stored tensor."""
        shape = stored_shape(self.shapes, self.row.layout, self.sizes)
        return tuple(size + self.row.skip * (axis == 0) for axis, size in enumerate(shape))


def entries(architecture: Architecture, config: ModelConfig, leaves: Leaves) -> list[Entry]:
    """The tensors that hold all parameters.

    Raises:
      ConfigError: no tensor of the architecture holds one of the parameters, or a layout does not fit.
    """
    side = getattr(config, "patch_size", 1)
    sizes = {"Y": side, "X": side}
    if attended := [kind for kind in config.kinds if kind.attention is not None]:
        attention = attended[0].attention
        assert attention is not None
        heads = attention.sizes(attended[0])
        sizes |= {"H": heads.num_heads, "G": heads.num_kv_heads, "K": heads.head_dim}
    if networks := [kind for kind in config.kinds if kind.feed_forward is not None]:
        assert networks[0].feed_forward is not None
        sizes["N"] = networks[0].feed_forward.width(networks[0])
    for mixer in (mixer for kind in config.kinds for mixer in kind.mixers):
        if isinstance(mixer, ProjectedRecurrence):
            sizes["M"] = mixer.key_heads
    made = [entry for row in architecture.rows if row.when(config) for entry in _written_out(row, sizes, leaves)]
    held = {place.path for entry in made for place in entry.places}
    if homeless := sorted("/".join(path) for path in leaves if path not in held):
        raise ConfigError(f"{architecture.names[0]}: no tensor holds {listed(homeless)}")
    for entry in {(entry.row, entry.shapes): entry for entry in made}.values():
        _check_layout(entry)
    return made


def listed(names: Iterable[str]) -> str:
    """A list of names for one line of text: many that differ in numbers alone are one pattern, and the rest a count."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(re.sub(r"(?<=[./])\d+(?=[./])", "*", name), []).append(name)
    said = []
    for pattern, own in alike.items():
        said += own if len(own) <= MOST_LISTED // 2 else [f"{pattern} ({len(own)})"]
    return ", ".join(said if len(said) <= MOST_LISTED else [*said[:MOST_LISTED], f"and {len(said) - MOST_LISTED} more"])


def _check_layout(entry: Entry) -> None:
    """Raise `ConfigError` where the layout of a row is missing or cannot be that of its parameters."""
    row, ours = entry.row, ", ".join("/".join(place.path) for place in entry.places)
    shapes = " and ".join(str(list(shape)) for shape in entry.shapes)
    first, *more = entry.shapes
    if not row.layout and (more or (len(first) > 1 and entry.places[0].path[-1] not in LOOKED_UP)):
        raise ConfigError(f"{row.theirs}: no layout says how it holds {ours}, {shapes}; one such as {LAYOUTS}")
    try:
        whole = np.broadcast_to(np.int8(0), stored_shape(entry.shapes, row.layout, entry.sizes))
        back = [part.shape for part in to_ours(whole, row.layout, entry.shapes, entry.sizes)]
    except (EinopsError, ValueError, IndexError, KeyError):
        back = None
    if back != list(entry.shapes):
        raise ConfigError(f"{row.theirs}: layout {row.layout!r} does not fit {ours}, {shapes}; one such as {LAYOUTS}")


def _written_out(row: Row, sizes: Sizes, leaves: Leaves) -> Iterator[Entry]:
    """The entries of a row, one for each layer and expert; none where the config lacks these parameters."""
    ours = [tuple(path.split("/")) for path in ((row.ours,) if isinstance(row.ours, str) else row.ours)]
    rows_of_kinds = _rows_of_kinds(ours[0], leaves) if "{layer}" in row.theirs else []
    for layer in range(sum(rows_of_kinds) or 1):
        number, kind = divmod(layer, len(rows_of_kinds) or 1)
        paths = [_in_kind(path, kind) if rows_of_kinds else path for path in ours]
        if any(path not in leaves for path in paths):
            continue
        of_layer = (number,) if rows_of_kinds else ()
        experts = leaves[paths[0]].shape[len(of_layer)] if "{expert}" in row.theirs else 1
        for expert in range(experts):
            index = (*of_layer, expert) if "{expert}" in row.theirs else of_layer
            shapes = tuple(tuple(leaves[path].shape[len(index) :]) for path in paths)
            places = tuple(Place(path, index) for path in paths)
            yield Entry(row.theirs.format(layer=layer, expert=expert), row, places, shapes, sizes)


def _rows_of_kinds(path: Path, leaves: Leaves) -> list[int]:
    """Number of layers of each kind in the stack that a path belongs to."""
    stack = (*path[: path.index("blocks") + 1], "kinds")
    rows = {p[len(stack)]: leaf.shape[0] for p, leaf in leaves.items() if p[: len(stack)] == stack}
    return [rows[kind] for kind in sorted(rows, key=int)]


def _in_kind(path: Path, kind: int) -> Path:
    at = path.index("blocks") + 1
    return (*path[:at], "kinds", str(kind), *path[at:])


def flat(params: Params, path: Path = ()) -> dict[Path, Any]:
    """The leaves of a tree by path."""
    if not isinstance(params, dict):
        return {path: params}
    return dict(itertools.chain.from_iterable(flat(below, (*path, name)).items() for name, below in params.items()))
