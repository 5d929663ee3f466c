"""Data sets of the Hugging Face hub, read as the lines of a file."""

from collections.abc import Mapping
from typing import Any

from transformer.core.values import ConfigError, nearest

PREFIX = "hub:"
FORM = "hub:NAME:SPLIT:COLUMN or hub:NAME:CONFIG:SPLIT:COLUMN"


def hub_lines(address: str) -> list[str]:
    """A line for each row of `hub:NAME:SPLIT:COLUMN` or `hub:NAME:CONFIG:SPLIT:COLUMN`.

    NAME is a data set of the hub or a local folder in its format. `a,b` are two columns with a tab
    between them, `a.b` is the field b of column a; numbers of classes are replaced by their names.

    Raises:
      ConfigError: the form is wrong, a name is unknown, or the package `datasets` is missing.
    """
    parts = address.removeprefix(PREFIX).split(":")
    if len(parts) not in (3, 4) or not all(parts):
        raise ConfigError(f"data: {address!r} is not of the form {FORM}")
    *name, split, columns = parts
    rows = _load(name, split, address)
    return ["\t".join(_cell(row, rows.features, column, address) for column in columns.split(",")) for row in rows]


def _load(name: list[str], split: str, address: str) -> Any:
    try:
        import datasets
    except ImportError:
        raise ConfigError("data: a data set of the hub needs datasets: pip install 'transformer[hub]'") from None
    try:
        return datasets.load_dataset(*name, split=split)
    except Exception as error:  # whatever the hub, the network or the data set's files raise
        raise ConfigError(f"data: cannot load {address}: {str(error).splitlines()[0]}") from None


def _cell(row: Mapping[str, Any], features: Mapping[str, Any], column: str, address: str) -> str:
    value: Any = row
    for field in column.split("."):
        if not isinstance(value, Mapping) or field not in value:
            known = value if isinstance(value, Mapping) else ()
            raise ConfigError(f"data: {address} has no column {column!r}{nearest(field, known)}")
        value = value[field]
    names = getattr(features.get(column), "names", None)
    return str(value if names is None else names[value])
