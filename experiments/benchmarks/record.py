"""What a benchmark found: tables in one file, `benchmarks.json`, from which documents are written.

    python -m experiments.benchmarks.record docs/benchmarks.md

writes every table anew between `<!-- benchmark: NAME -->` and `<!-- end -->`.
"""

import argparse
import dataclasses
import datetime
import importlib.metadata
import json
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table as Shown

from transformer.core.files import write_durably
from transformer.training.environment import cores, processor

FILE = Path(__file__).with_name("benchmarks.json")
LIBRARIES = ("jax", "flax", "torch", "transformers", "x-transformers", "keras")

Cell = str | Sequence[float]
"""Text, or a number in each round."""


@dataclass(frozen=True)
class Table:
    """Rows of cells, the first of which is the row's name."""

    title: str
    columns: tuple[str, ...]
    """Names of the cells, with the unit."""
    digits: tuple[int, ...]
    """Digits behind the point, for each cell."""
    rows: tuple[tuple[Cell, ...], ...]
    how: str = "median (lowest–highest) of the rounds"
    """What a cell holds."""

    def text(self) -> list[list[str]]:
        return [
            [
                cell if isinstance(cell, str) else spread(cell, digits)
                for cell, digits in zip(row, self.digits, strict=True)
            ]
            for row in self.rows
        ]

    def show(self) -> None:
        shown = Shown(*self.columns, title=self.title)
        for row in self.text():
            shown.add_row(*row)
        Console().print(shown)


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Median and, in brackets, lowest and highest; a single number alone."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return (
        f"{middle:,.{digits}f}" if len(values) == 1 else f"{middle:,.{digits}f} ({low:,.{digits}f}–{high:,.{digits}f})"
    )


def keep(tables: Mapping[str, Table], command: str, rounds: int, versions: Mapping[str, str]) -> None:
    """Put tables in the file, by name, with where and when they were measured; others stay."""
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    origin = {
        "command": command,
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "versions": dict(versions),
        "rounds": rounds,
    }
    found |= {name: origin | dataclasses.asdict(table) for name, table in tables.items()}
    write_durably(FILE, json.dumps(dict(sorted(found.items())), indent=1, ensure_ascii=False) + "\n")


def machine() -> str:
    """Number and name of the cores."""
    return f"{len(cores())} cores of {processor() or 'an unknown processor'}"


def versions() -> dict[str, str]:
    """Versions of the libraries compared that are installed here."""
    installed = {d.metadata["Name"].lower() for d in importlib.metadata.distributions()}
    return {name: importlib.metadata.version(name).split("+")[0] for name in LIBRARIES if name in installed}


def markdown(record: Mapping) -> str:
    """A caption, which says once where and when, and the table."""
    table = Table(record["title"], *(tuple(record[name]) for name in ("columns", "digits", "rows")), record["how"])
    libraries = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    caption = (
        f"**{record['title']}**: {record['how']}{f', {rounds} in turn' if (rounds := record['rounds']) else ''}; "
        f"{record['machine']}, {libraries}, {record['date']} (`{record['command']}`)"
    )
    lines = ["| " + " | ".join(["", *record["columns"][1:]]) + " |", "|---" * len(record["columns"]) + "|"]
    rows = ([cell.replace("|", r"\|") for cell in row] for row in table.text())
    return "\n".join([caption, "", *lines, *("| " + " | ".join(row) + " |" for row in rows)])


BLOCK = re.compile(r"(<!-- benchmark: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def written(document: str, records: Mapping[str, Mapping]) -> str:
    """The document with every table as the records have it.

    Raises:
      KeyError: it asks for a table that was not measured.
    """
    return BLOCK.sub(lambda m: f"{m[1]}{markdown(records[m[2]])}\n{m[3]}", document)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", nargs="+", type=Path)
    for path in parser.parse_args().documents:
        path.write_text(written(path.read_text(), json.loads(FILE.read_text())))


if __name__ == "__main__":
    main()
