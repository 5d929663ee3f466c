"""Sliding windows of published models: one for all layers, or for some of them, which may have other positions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transformer.core.errors import ConfigError, nearest
from transformer.mixers.attention.sparsity import SlidingWindow
from transformer.positions.rotary import RoPE
from transformer.pretrained.fields import Field, Json, by_layer, layer_values, of_layers
from transformer.pretrained.rotary_fields import read_rope, write_rope

KINDS: tuple[str, str] = ("full_attention", "sliding_attention")
"""Words for a layer without a window, and with one."""
Usual = Callable[[Json], Sequence[bool]]
"""Which layers have a window where a file lists none; the layers may repeat it."""


def window(*, default: int | None = None) -> Field:
    """The window of all layers, or none."""

    def read(fields):
        size = fields.get("sliding_window", default)
        return {"mixer.sparsity": None if size is None else SlidingWindow(size)}

    return Field(("sliding_window",), read, lambda c: {"sliding_window": getattr(c.mixer.sparsity, "size", None)})


def windows(*theirs: str, usual: Usual, size: int) -> Field:
    """The layers with a window of one size; `usual` reads the fields `theirs`."""

    def read(fields):
        return by_layer({"mixer.sparsity": read_windows(fields, usual, size)})

    return Field(("sliding_window", "layer_types", *theirs), read, lambda config: write_windows(config, size))


def read_windows(fields: Json, usual: Usual, size: int) -> list[SlidingWindow | None]:
    """The window of each layer, as the file lists them, or else as `usual` says."""
    kinds = layer_values("layer_types", fields) or [KINDS[slides] for slides in usual(fields)]
    if unknown := next((kind for kind in kinds if kind not in KINDS), None):
        raise ConfigError(f"layer_types: no {unknown!r}{nearest(str(unknown), KINDS)}")
    return [SlidingWindow(fields.get("sliding_window", size)) if kind == KINDS[1] else None for kind in kinds]


def write_windows(config: Any, size: int) -> dict[str, Any]:
    """The fields of `read_windows`."""
    windows = of_layers(config, "mixer.sparsity")
    sizes = [window.size for window in windows if isinstance(window, SlidingWindow)]
    kinds = [KINDS[isinstance(window, SlidingWindow)] for window in windows]
    return {"sliding_window": max(sizes, default=size), "layer_types": kinds}


def read_ropes(kinds: Mapping[str, Json | None], windows: Sequence[Any], *, whole: float, local: float) -> list[RoPE]:
    """The rotary positions of each layer, from the values of both kinds of layers; the floats are the usual bases."""
    if unknown := sorted(kinds.keys() - set(KINDS)):
        raise ConfigError(f"rope_parameters: {', '.join(unknown)} of no kind of layer, {' or '.join(KINDS)}")
    without, within = (
        read_rope(kinds.get(kind) or {}, base=base) for kind, base in zip(KINDS, (whole, local), strict=True)
    )
    return [without if window is None else within for window in windows]


def write_ropes(config: Any, kinds: Sequence[str]) -> dict[str, Any]:
    """The field `rope_parameters` of layers of these kinds."""
    ropes = zip(kinds, of_layers(config, "position"), strict=True)
    return {"rope_parameters": {kind: write_rope(position) for kind, position in ropes}}
