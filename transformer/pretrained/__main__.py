"""Counts the lines of code of each architecture: its config and its table of names."""

import argparse
import importlib
import inspect
import io
import pkgutil
import statistics
import tokenize

from rich.console import Console
from rich.table import Table

from transformer import pretrained
from transformer.pretrained.architecture import Architecture

SILENT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def lines_of_code(source: str) -> int:
    """Number of lines with code, without comments and docstrings."""
    lines: set[int] = set()
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        docstring = token.type == tokenize.STRING and before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
        if token.type not in SILENT and not docstring:
            lines |= set(range(token.start[0], token.end[0] + 1))
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            before = token.type
    return len(lines)


def sizes() -> dict[str, tuple[list[str], int]]:
    """Classes and lines of code, by file."""
    by_file: dict[str, tuple[list[str], int]] = {}
    for found in pkgutil.iter_modules(pretrained.__path__):
        if found.name in ("__main__", "architectures"):
            continue
        module = importlib.import_module(f"{pretrained.__name__}.{found.name}")
        classes = [value.names[0] for value in vars(module).values() if isinstance(value, Architecture)]
        if classes:
            by_file[found.name] = (classes, lines_of_code(inspect.getsource(module)))
    return by_file


def main() -> None:
    argparse.ArgumentParser(prog="python -m transformer.pretrained", description=__doc__).parse_args()
    table = Table("file", "classes", "lines")
    for name, (classes, lines) in sizes().items():
        table.add_row(f"{name}.py", ", ".join(classes), str(lines))
    Console().print(table)
    print(f"median {statistics.median(lines for _, lines in sizes().values()):g} lines")


if __name__ == "__main__":
    main()
