"""The parts of our parameters that each stored tensor holds: the rows of an architecture, expanded for a config."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from transformer.core.modules import Params
from transformer.core.values import ConfigError
from transformer.mixers.recurrent.linear import ProjectedRecurrence
from transformer.models.config import ModelConfig
from transformer.pretrained.architecture import Architecture, Row
from transformer.pretrained.layouts import Sizes, stored_shape

Path = tuple[str, ...]
Leaves = Mapping[Path, Any]
"""Arrays, or their shapes, by path."""


class Place(NamedTuple):
    """A parameter, or the slice of it that belongs to one layer or expert."""

    path: Path
    index: tuple[int, ...]


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
        rows, *others = stored_shape(self.shapes, self.row.layout, self.sizes)
        return (rows + self.row.skip, *others)


def entries(architecture: Architecture, config: ModelConfig, leaves: Leaves) -> list[Entry]:
    """The tensors that hold all parameters.

    Raises:
      ConfigError: no tensor of the architecture holds one of the parameters.
    """
    side = getattr(config, "patch_size", 1)
    sizes = {"Y": side, "X": side}
    if attended := [kind for kind in config.kinds if kind.attention is not None]:
        attention = attended[0].attention
        assert attention is not None
        heads = attention.sizes(attended[0])
        sizes |= {"H": heads.num_heads, "G": heads.num_kv_heads, "K": heads.head_dim}
    for mixer in (mixer for kind in config.kinds for mixer in kind.mixers):
        if isinstance(mixer, ProjectedRecurrence):
            sizes["M"] = mixer.key_heads
    made = [entry for row in architecture.rows if row.when(config) for entry in _written_out(row, sizes, leaves)]
    held = {place.path for entry in made for place in entry.places}
    if homeless := sorted("/".join(path) for path in leaves if path not in held):
        raise ConfigError(f"{architecture.names[0]}: no tensor holds {', '.join(homeless)}")
    return made


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
