"""Print the entries of the catalogue that have a word in their name or in what is said of them.

    transformer catalogue rmsnorm
    transformer catalogue "sliding window"
    transformer catalogue               every entry by its name

Parameters and operations are those that the entry adds to a small plain decoder. The whole page is
`transformer/CATALOGUE.md`.
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import transformer
from experiments import cli
from transformer.core.errors import ConfigError, nearest


class Entry(NamedTuple):
    """A row of the catalogue."""

    family: str
    option: str
    what: str
    parameters: str
    operations: str
    works: str

    def __str__(self) -> str:
        told = f"\n    {self.what}" if self.what else ""
        cost = f"parameters {self.parameters}, operations {self.operations}; works with {self.works}"
        return f"{self.option}   ({self.family})".replace("`", "") + f"{told}\n    {cost}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("word", nargs="*", help="as in the catalogue, in capitals or not; several: with all of them")
    words, every = " ".join(parser.parse_args().word).lower().split(), list(entries())
    if not words:
        print("\n".join(f"{entry.family}: {entry.option}".replace("`", "") for entry in every))
    elif found := [entry for entry in every if all(word in " ".join(entry).lower() for word in words)]:
        print("\n\n".join(map(str, found)))
    else:
        known = {name for entry in every for name in re.findall(r"\w+", entry.option)}
        raise ConfigError(f"catalogue: no entry has {' '.join(words)!r}{closest(words[-1], known)}")


def entries() -> Iterator[Entry]:
    """The rows of the catalogue that comes with the package."""
    family = ""
    for line in (Path(transformer.__file__).parent / "CATALOGUE.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            family = line.removeprefix("## ")
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 5 and cells[0].startswith(("`", "(")):
            yield Entry(family, *cells)


def closest(word: str, known: set[str]) -> str:
    """The nearest name where there is one; the list of all would be long."""
    near = nearest(word, known)
    return near if near.startswith("; did") else "; without a word all are listed"


if __name__ == "__main__":
    cli.main(main)
