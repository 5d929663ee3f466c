"""Data sets of the Hugging Face hub, read as the lines of a file."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformer.core.errors import ConfigError, nearest

PREFIX = "hub:"
AS_TEXT = {"keep_default_na": False, "na_values": [""]}
"""How cells of CSV files are read as they stand there, besides the converters of their columns."""
FORM = "hub:NAME:SPLIT:COLUMN or hub:NAME:CONFIG:SPLIT:COLUMN"


def hub_lines(address: str, empty: bool = False) -> list[str]:
    """A line for each row of `hub:NAME:SPLIT:COLUMN` or `hub:NAME:CONFIG:SPLIT:COLUMN`.

    NAME is a data set of the hub or a local folder in its format. `a,b` are two columns with a tab
    between them, `a.b` is the column of that name, or the field b of column a; numbers of classes are replaced by their
    names. Cells of local CSV files are texts as they stand there, such as 0123.

    Args:
      address: says where the rows are.
      empty: whether empty rows are empty lines, those of CSV files too, which are nothing otherwise.

    Raises:
      ConfigError: the form is wrong, a name is unknown, a cell is empty, without a class, or no text or number, or the
        package `datasets` is missing.
    """
    parts = re.split(r":(?![^\[\]]*\])", address.removeprefix(PREFIX))  # train[:10%] is one
    if len(parts) not in (3, 4) or not all(parts):
        raise ConfigError(f"data: {address!r} is not of the form {FORM}")
    *name, split, columns = parts
    rows, wanted, lines = _load(name, split, columns, address, empty), columns.split(","), []
    for number, row in enumerate(rows, 1):
        if empty and {*wanted} <= row.keys() and all(row[column] in (None, "") for column in wanted):
            lines.append("")
            continue
        cells = [_cell(row, rows.features, column, address, number) for column in wanted]
        if any("\t" in cell for cell in cells[:-1]):
            raise ConfigError(f"data: row {number} of {address} has a tab in a cell, which would be two")
        lines.append("\t".join(cells))
    return lines


def _load(name: list[str], split: str, columns: str, address: str, empty: bool) -> Any:
    try:
        import datasets
    except ImportError:
        raise ConfigError("data: a data set of the hub needs datasets: pip install 'transformer[hub]'") from None
    try:
        own = {"converters": dict.fromkeys(columns.split(","), str), "skip_blank_lines": not empty}
        as_text = AS_TEXT | own if _has_csv(name[0]) else {}
        try:
            return datasets.load_dataset(*name, split=split, **as_text)
        except ValueError as error:
            if not any(f"'{option}'" in str(error) for option in as_text):
                raise
        return datasets.load_dataset(*name, split=split)  # files of other kinds lie beside, and are what is read
    except Exception as error:  # whatever the hub, the network or the data set's files raise
        raise ConfigError(f"data: cannot load {address}: {str(error).splitlines()[0]}") from None


def _has_csv(folder: str) -> bool:
    """Whether a local folder has such files, whose cells would be guessed at."""
    names = [path.relative_to(folder).as_posix() for path in Path(folder).rglob("*")]
    return any(re.search(r"\.(csv|tsv)(\.\w+)?$", name) for name in names if not re.search(r"(^|/)\.", name))


def _cell(row: Mapping[str, Any], features: Mapping[str, Any], column: str, address: str, number: int) -> str:
    value, feature = row, features
    for field in [column] if column in row else column.split("."):
        if not isinstance(value, Mapping):
            raise ConfigError(f"data: row {number} of {address} has no {column!r}")
        if field not in value:
            raise ConfigError(f"data: {address} has no column {column!r}{nearest(field, value)}")
        value, feature = value[field], feature.get(field, {}) if isinstance(feature, Mapping) else {}
    names = getattr(feature, "names", None)
    if names is not None and isinstance(value, int):
        value = names[value] if value >= 0 else None  # -1 where there is no label
    if not isinstance(value, str | int | float):
        what = "nothing" if value is None else f"a {type(value).__name__}"
        raise ConfigError(f"data: row {number} of {address} has {what} in {column!r}, and a text is needed")
    return str(value)
