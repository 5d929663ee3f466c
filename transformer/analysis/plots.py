"""Plots of plain arrays. Each returns a figure: a notebook shows it, `figure.savefig(path)` keeps it.

What is no such array raises `ConfigError`, which says what is needed.

from transformer.analysis import plots
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from transformer.core.errors import ConfigError, nearest

Values = Any
"""An array, or what numpy converts to one."""
VERDICTS = {
    "better": "C2",
    "worse": "C3",
    "equivalent": "C0",
    "unresolved": "0.4",
    "fails less often": "C2",
    "fails more often": "C3",
}
"""Colours in a forest plot."""
LETTER = 0.085
"""Inches of a letter of a label."""


def attention_maps(
    pattern_NHLS: Values, labels: Sequence[str] | None = None, *, queries: Sequence[str] | None = None
) -> Figure:
    """A row of maps for each layer, one for each head: queries down, keys across, white 0 to dark 1.

    Args:
      pattern_NHLS: weights of one sequence, `stacked(activations, "blocks.*.attention.pattern")[:, 0]`.
      labels: the text of each key, drawn where there is room.
      queries: the text of each query, where queries are other tokens than the keys.
    """
    queries = labels if queries is None else queries
    pattern = _array(pattern_NHLS, 4, "attention_maps: weights (N, H, L, S) of one sequence")
    num_layers, num_heads, length, span = pattern.shape
    _check_labels(labels, span, "attention_maps: labels")
    _check_labels(queries, length, "attention_maps: queries")
    side = min(max(1.6, 0.22 * span), 4.4) if labels is not None else 1.6
    step = max(1, math.ceil(0.22 * span / side))  # of what is labelled, so that labels do not overlap
    figure, axes = _axes(num_layers, num_heads, (side * num_heads + 0.5, side * num_layers + 0.3))
    for layer, head in np.ndindex(num_layers, num_heads):
        own = axes[layer, head]
        own.imshow(pattern[layer, head], vmin=0, vmax=1, cmap="Blues", interpolation="nearest")
        own.set_title(f"block {layer}, head {head}", fontsize=7)
        own.set(xticks=[], yticks=[])
        if labels is not None:
            own.set_xticks(range(0, span, step), labels[:span:step], fontsize=6, rotation=90)
        if queries is not None and head == 0:
            own.set_yticks(range(0, length, step), queries[-length:][::step], fontsize=6)
    return figure


def loss_curves(
    curves: Mapping[str, tuple[Values, Values]] | tuple[Values, Values],
    *,
    xlabel: str = "step",
    ylabel: str = "loss",
    reference: tuple[str, float] | None = None,
) -> Figure:
    """The mean over replicas, and the band between the lowest and the highest.

    Args:
      curves: steps (S,) and values (R, S) or (S,), by name, or one pair alone, such as `run.curve("loss")`; a replica
        is left out where it is not finite.
      xlabel: the quantity of the x axis, such as the position in the sequence.
      ylabel: the quantity.
      reference: name and value of a dashed line.
    """
    figure, axes = _axes(1, 1, (7, 4))
    own = axes[0, 0]
    named = curves if isinstance(curves, Mapping) else {ylabel: curves}
    for number, (name, curve) in enumerate(named.items()):
        steps, runs = _curve(curve)
        if steps.size:
            own.plot(steps, runs.mean(0), **_style(number), label=_plain(name), linewidth=1.2)
            own.fill_between(steps, runs.min(0), runs.max(0), color=f"C{number}", alpha=0.2, linewidth=0)
    if reference is not None:
        own.axhline(reference[1], color="grey", linestyle="--", linewidth=1, label=_plain(reference[0]))
    own.set(xlabel=xlabel, ylabel=ylabel)
    if len(named) > 1 or reference is not None:
        _legend(figure)
    return figure


def forest(
    estimates: Mapping[str, tuple[float, float, float]],
    *,
    xlabel: str,
    margin: float | None = None,
    verdicts: Mapping[str, str] | None = None,
) -> Figure:
    """A forest plot: a row for each estimate with its interval, and a line at 0.

    Args:
      estimates: (estimate, low, high), by name; a row has no interval where an end is not finite, and no point where
        the estimate is not, as of an arm whose runs all failed.
      xlabel: what is estimated, such as a difference of losses.
      margin: half the width of the band within which a difference does not matter.
      verdicts: keys of `VERDICTS`, by name, for the colour and the label.
    """
    _check_dict(estimates, "forest: (estimate, low, high) by name")
    labels = {name: f"{name}: {verdicts[name]}" if verdicts and name in verdicts else str(name) for name in estimates}
    figure, own, upwards = _rows(labels)
    if margin is not None:
        own.axvspan(-margin, margin, color="0.9")
    own.axvline(0, color="0.5", linewidth=1)
    for y, name in enumerate(upwards):
        estimate, low, high = estimates[name]
        if estimate < low or high < estimate:
            raise ConfigError(f"forest: {name}: {estimate:g} is not in its interval, {low:g} to {high:g}")
        verdict = verdicts.get(name) if verdicts else "equivalent"
        if verdict not in VERDICTS:
            raise ConfigError(f"forest: {name}: no verdict {verdict!r}{nearest(str(verdict), VERDICTS)}")
        color = VERDICTS[verdict]
        if np.isfinite(estimate):
            own.plot(estimate, y, "o", color=color)
        if np.isfinite([estimate, low, high]).all():
            own.errorbar(estimate, y, xerr=[[estimate - low], [high - estimate]], color=color, capsize=3)
    own.set(xlabel=xlabel)
    return figure


def dots(values: Mapping[str, Values], *, xlabel: str) -> Figure:
    """A row for each name with a dot for each of its values, such as seeds, and a line at their mean.

    Args:
      values: (n,) by name; those not finite are left out, and counted in the label.
      xlabel: the quantity.
    """
    _check_dict(values, "dots: numbers by name")
    runs = {name: _array(own, 1, f"dots: {name}: numbers (n,)") for name, own in values.items()}
    missing = {name: int((~np.isfinite(x)).sum()) for name, x in runs.items()}
    figure, own, upwards = _rows({name: f"{name} ({n} failed)" if n else str(name) for name, n in missing.items()})
    for y, name in enumerate(upwards):
        finite = runs[name][np.isfinite(runs[name])]
        own.plot(finite, np.full(finite.size, y), "o", color="C0", alpha=0.5)
        if finite.size:
            own.plot([finite.mean()] * 2, [y - 0.3, y + 0.3], color="0.2", linewidth=1.2)
    own.set(xlabel=xlabel)
    return figure


def heat_map(
    values_YX: Values,
    *,
    rows: Sequence[Any] | None = None,
    columns: Sequence[Any] | None = None,
    label: str = "",
    xlabel: str = "",
    ylabel: str = "",
) -> Figure:
    """Numbers as colours, in two colours around 0 where some are negative.

    Args:
      values_YX: (Y, X) numbers.
      rows: labels of the Y rows.
      columns: labels of the X columns.
      label: name of the quantity, at the colour bar.
      xlabel: name of the columns' axis.
      ylabel: name of the rows' axis.
    """
    values = _array(values_YX, 2, "heat_map: numbers (Y, X)")
    height, width = values.shape
    _check_labels(rows, height, "heat_map: rows")
    _check_labels(columns, width, "heat_map: columns")
    figure, axes = _axes(1, 1, (min(10, 2.5 + 0.3 * width), min(10, 1.5 + 0.3 * height)))
    own, finite = axes[0, 0], values[np.isfinite(values)]
    if not finite.size:
        raise ConfigError(f"heat_map: of the numbers (Y, X) with the shape {values.shape} none is finite")
    largest = float(np.abs(finite).max())
    signed: dict[str, Any] = (
        {"cmap": "RdBu_r", "vmin": -largest, "vmax": largest} if finite.min() < 0 else {"cmap": "Blues"}
    )
    image = own.imshow(values, aspect="auto", interpolation="nearest", **signed)
    own.set(xlabel=xlabel, ylabel=ylabel)
    if columns is not None:
        own.set_xticks(range(width), [str(one) for one in columns], fontsize=7, rotation=90)
    if rows is not None:
        own.set_yticks(range(height), [str(one) for one in rows], fontsize=7)
    figure.colorbar(image, label=label)
    return figure


def position_similarity(vectors_LD: Values) -> Figure:
    """The cosine similarity of the vectors (L, D) of every two positions, as an (L, L) heat map."""
    vectors = _array(vectors_LD, 2, "position_similarity: vectors (L, D)")
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    return heat_map(unit @ unit.T, label="cosine", xlabel="position", ylabel="position")


def learning_rate_curves(losses: Mapping[str, Mapping[float, Values]], *, ylabel: str = "validation loss") -> Figure:
    """The mean loss of each arm against its peak learning rate, and a bar from the lowest run to the highest.

    `losses` holds the losses of the runs by arm and learning rate; a rate without a finite one has no point.
    """
    for given in (losses, *losses.values()) if isinstance(losses, Mapping) else (losses,):
        _check_dict(given, 'learning_rate_curves: losses by name and rate, such as {"mine": run.losses_by_rate},')
    figure, axes = _axes(1, 1, (7, 4))
    for number, (name, by_rate) in enumerate(losses.items()):
        runs = {rate: np.asarray(v, float)[np.isfinite(np.asarray(v, float))] for rate, v in sorted(by_rate.items())}
        if points := {rate: (v.mean(), v.min(), v.max()) for rate, v in runs.items() if v.size}:
            means, lowest, highest = map(np.array, zip(*points.values(), strict=True))
            bars = np.maximum([means - lowest, highest - means], 0)  # the mean of equal numbers may be an ulp off
            axes[0, 0].errorbar(list(points), means, bars, marker="o", **_style(number), label=_plain(name), capsize=3)
    axes[0, 0].set(xlabel="peak learning rate", ylabel=ylabel, xscale="log")
    _legend(figure)
    return figure


def _rows(labels: Mapping[str, str]) -> tuple[Figure, Any, list[str]]:
    """A figure with a row for each label, its axes, and the names of the rows upwards."""
    longest = max(map(len, labels.values()), default=0)
    figure, axes = _axes(1, 1, (4.5 + LETTER * max(longest, 30), 1.2 + 0.45 * len(labels)))
    upwards = list(labels)[::-1]
    axes[0, 0].set_yticks(range(len(upwards)), [_plain(labels[name]) for name in upwards])
    axes[0, 0].set(ylim=(-0.6, len(upwards) - 0.4))
    return figure, axes[0, 0], upwards


def _legend(figure: Figure) -> None:
    """A legend within the axes, or beside them where it is large."""
    (axes,) = figure.axes
    handles, labels = axes.get_legend_handles_labels()
    if sum(map(len, labels)) <= 150:
        axes.legend(handles, labels)
        return
    width, height = figure.get_size_inches()
    figure.set_size_inches(width + 0.6 + LETTER * max(map(len, labels)), max(height, 0.6 + 0.22 * len(labels)))
    figure.legend(handles, labels, loc="outside right upper")


def _style(number: int) -> dict[str, str]:
    """The line of a curve, another one for each of forty."""
    return {"color": f"C{number}", "linestyle": ("-", "--", ":", "-.")[number // 10 % 4]}


def _plain(name: Any) -> str:
    """A name that matplotlib draws as it is: $ would begin a formula, and a legend leaves out what begins with _."""
    text = str(name)
    return " " * text.startswith("_") + text.replace("$", r"\$")


def _check_labels(labels: Sequence[Any] | None, count: int, what: str) -> None:
    if labels is not None and len(labels) < count:
        raise ConfigError(f"{what} are {len(labels)}, and {count} are needed")


def _check_dict(values: Any, wanted: str) -> None:
    if not isinstance(values, Mapping):
        raise ConfigError(f"{wanted} is needed in a dict, and {type(values).__name__} is given")


def _curve(curve: Any) -> tuple[np.ndarray, np.ma.MaskedArray]:
    """Steps (S,) and values (R, S), masked where they are not finite."""
    wanted = 'loss_curves: a pair of steps (S,) and values (R, S), such as run.curve("loss")'
    try:
        steps, values = curve
    except (TypeError, ValueError):
        raise ConfigError(f"{wanted}, is needed, and {type(curve).__name__} is given") from None
    steps, values = _array(steps, 1, wanted), _array(np.atleast_2d(values), 2, wanted)
    if steps.size != values.shape[1]:
        raise ConfigError(f"{wanted}, is needed, and {steps.size} steps with {values.shape[1]} values are given")
    return steps, np.ma.masked_invalid(values)


def _array(values: Any, axes: int, wanted: str) -> np.ndarray:
    """Values as an array of that many axes."""
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise ConfigError(f"{wanted}, are needed, and {type(values).__name__} is given") from None
    if array.ndim != axes:
        raise ConfigError(f"{wanted}, are needed, and the given ones have the shape {array.shape}")
    return array


def _axes(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, Any]:
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    plt.close(figure)  # or a notebook shows it twice
    return figure, axes
