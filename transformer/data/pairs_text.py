"""Parallel texts: a line and its translation."""

from transformer.core.errors import ConfigError
from transformer.data.text import load_lines


def load_parallel(source: str, target: str | None, part: str = "data.") -> tuple[list[str], list[str]]:
    """The lines of two UTF-8 files, or without `target` the two columns of one file of tab-separated values.

    Either may be packed, or a data set of the hub, as in `load_lines`. Empty lines count like any other. Errors name
    the fields `part` + source and `part` + target.

    Raises:
      ConfigError: a file is missing, unreadable, empty, or not UTF-8; one is longer than the other; a
        line of the single file has not exactly one tab.
    """
    if target is None:
        lines = enumerate(load_lines(source, f"{part}source"), 1)
        pairs = [_columns(line, number, source, f"{part}source") for number, line in lines]
        return [s for s, _ in pairs], [t for _, t in pairs]
    sources, targets = load_lines(source, f"{part}source"), load_lines(target, f"{part}target")
    if len(sources) != len(targets):
        counts = f"{len(sources)} lines in {source}, {len(targets)} in {target}"
        raise ConfigError(f"{part}target: {counts}: line {min(len(sources), len(targets)) + 1} has no counterpart")
    return sources, targets


def _columns(line: str, number: int, path: str, where: str) -> tuple[str, str]:
    columns = line.split("\t")
    if len(columns) != 2:
        raise ConfigError(f"{where}: line {number} of {path} has {len(columns)} columns, not source<TAB>target")
    return columns[0], columns[1]
