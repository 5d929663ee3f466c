"""Texts with labels."""

from transformer.config.variant import ConfigError
from transformer.data.text import load_text


def parse_labelled(path: str) -> list[tuple[str, str]]:
    """(label, text) of each line `label<TAB>text` of a UTF-8 file; the text may hold further tabs.

    Raises:
      ConfigError: the file is missing, empty, or not UTF-8; a line has no tab, or nothing before or after it.
    """
    lines = load_text(path).content.removesuffix("\n").split("\n")
    return [_pair(line, number, path) for number, line in enumerate(lines, 1)]


def _pair(line: str, number: int, path: str) -> tuple[str, str]:
    label, tab, text = line.partition("\t")
    if not (label.strip() and tab and text.strip()):
        raise ConfigError(f"data.path: line {number} of {path} is not label<TAB>text")
    return label, text
