"""The short `--help` of a command: what is changed first, by section, each flag with its default and a line."""

import functools
import shutil
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformer.core.documentation import documented
from transformer.core.values import to_text

Sections = dict[str, tuple[str, ...]]
"""Dotted paths of the fields that a command shows, by the title of a section."""
MODEL = (
    "model.d_model", "model.num_layers", "model.max_length", "model.mixer", "model.norm", "model.residual",
    "model.position", "model.feed_forward", "model.feed_forward.activation", "model.dropout",
)  # fmt: skip
OPTIMIZER = (
    "optimizer.rule", "optimizer.weight_decay", "optimizer.warmup_steps", "optimizer.schedule", "optimizer.clip_norm",
)  # fmt: skip
RUN: Sections = {
    "run": (
        "steps", "batch_size", "seed", "replicas", "workdir", "resume", "overwrite", "dry_run", "evaluate_every",
        "checkpoint_every", "log",
    ),
    "model": MODEL,
    "optimizer": ("optimizer.learning_rate", "learning_rates", *OPTIMIZER),
    "data": (),  # each task has its own
    "devices": ("model.dtype", "mesh.data", "mesh.model"),
}  # fmt: skip
STUDY: Sections = {
    "study": (
        "arms", "seeds", "learning_rates", "metric", "margin", "design", "match", "max_seeds", "minutes", "confirm",
        "workdir", "resume", "overwrite", "dry_run", "log",
    ),
    "each run": ("steps", "batch_size", "seed"),
    "model": MODEL,
    "optimizer": OPTIMIZER,
    "data": ("data.path", "data.tokenizer"),
    "devices": ("engine", "model.dtype", "mesh.data"),
}  # fmt: skip
WORDS = 46
"""Widest column of flags with their defaults."""


def short_help(name: str, default: Any, sections: Sections, presets: Mapping[str, Any], description: str) -> str:
    """The text of `--help`, with lines as wide as the terminal.

    Args:
      name: the command, as it is called.
      default: the command that flags change, whose values are shown.
      sections: what is shown; a field of a choice that the default does not have is left out.
      presets: words that may come first.
      description: the first paragraph is shown.
    """
    width = max(shutil.get_terminal_size().columns, 80)
    rows = {title: _rows(default, paths) for title, paths in sections.items()}
    column = max(len(flag) for found in rows.values() for flag, _ in found) + 4
    asked = textwrap.wrap(description.strip().partition("\n\n")[0], width)
    lines = [f"usage: {name} {'[PRESET] ' * (len(presets) > 1)}[FLAGS]", "", *asked]
    if len(presets) > 1:
        lines += textwrap.wrap(f"Presets: {', '.join(presets)}.", width, subsequent_indent="  ")
    for title, found in rows.items():
        lines += ["", title, *(f"  {flag:{column - 2}}{_fitting(text, width - column)}" for flag, text in found)]
    end = "--help-all shows all flags and the names of all choices. Flags reach into a choice: --model.norm.eps 1e-6."
    return "\n".join([*lines, "", *textwrap.wrap(end, width)])


def _rows(default: Any, paths: tuple[str, ...]) -> list[tuple[str, str]]:
    """The flag with its default, and the first sentence of the documentation, of each field."""
    rows = []
    for path in paths:
        *above, name = path.split(".")
        owner = functools.reduce(lambda value, part: getattr(value, part, None), above, default)
        if owner is None or not hasattr(owner, name):
            continue
        flag = f"--{path.rstrip('_').replace('_', '-')}"
        words = f"{flag} {shown(getattr(owner, name))}"
        words = words if len(words) <= WORDS else f"{words[: WORDS - 1]}…"
        rows.append((words, documented(type(owner))[name].partition(". ")[0].rstrip(".")))
    return rows


def _fitting(text: str, width: int) -> str:
    """A text, its first clause, or as much of that as fits."""
    return text if len(text) <= width else textwrap.shorten(text.partition(";")[0], width, placeholder=" …")


def shown(value: Any) -> str:
    """A value as its flag takes it; a switch that is off and an empty list are no word."""
    if isinstance(value, tuple):
        return " ".join(map(shown, value))
    return "" if value is False else str(value) if isinstance(value, str | Path) else to_text(value)
