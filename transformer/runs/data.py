"""What a run trains on, and how a text becomes tokens."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

from transformer.core.changes import Config
from transformer.core.checks import check_fields
from transformer.core.errors import ConfigError
from transformer.runs.tokenizers import Char, Tokenization


@dataclass(frozen=True, kw_only=True)
class DataConfig(Config):
    """What a run trains on; a subclass for each kind of data."""

    def __post_init__(self):
        check_fields(self, "data.")

    @property
    def continuous(self) -> bool:
        """Whether a batch can continue where the previous one ended."""
        return False

    @property
    def example_length(self) -> int | None:
        """Tokens of the longest example, with its answer; None: a text, which goes on."""
        return None


@dataclass(frozen=True, kw_only=True)
class TextConfig(DataConfig):
    """A text and how it becomes tokens."""

    path: str | None = None
    """A UTF-8 text file; None: a text that comes with Python."""
    embedded: Literal["topics", "sources"] = "topics"
    """Without a path: the prose of Python's documentation (pydoc_data.topics), or the standard library's sources."""
    tokenizer: Tokenization = Char()
    """The tokenizer, which defines what a token is."""
    document_separator: str | None = None
    """Text between documents, which are then packed into rows and do not see each other; None: one text."""
    validation_fraction: float = 0.1
    """Share of the text, at its end, that is held out; in (0, 1)."""
    consecutive: bool = False
    """Each row of a batch continues that of the batch before, as a model with segment memory always reads; else rows
    begin anywhere, in random order."""

    @property
    def continuous(self):
        return self.document_separator is None

    def __post_init__(self):
        super().__post_init__()
        check_fraction("validation_fraction", self.validation_fraction)
        if self.path is not None:
            check_default(self, "embedded", "data.path is given")
        if self.consecutive and self.document_separator is not None:
            raise ConfigError("data.consecutive: rows of packed documents do not follow each other; leave one of them")
        if self.document_separator == "":
            raise ConfigError("data.document_separator: an empty text separates nothing")


def check_at_least(config: DataConfig, least: int, *names: str) -> None:
    """Raise `ConfigError` where one of the fields is less, infinite or NaN; None is none."""
    for name in names:
        if (value := getattr(config, name)) is not None and not least <= value < math.inf:
            raise ConfigError(f"data.{name}: {value} is not a number from {least} on")


def check_default(config: DataConfig, name: str, why: str) -> None:
    """Raise `ConfigError` where a field is set that changes nothing beside others."""
    default = next(field.default for field in dataclasses.fields(config) if field.name == name)
    if (value := getattr(config, name)) != default:
        raise ConfigError(f"data.{name}: {value} would change nothing: {why}")


def count_held_out(count: int, fraction: float) -> int:
    """How many of so many examples are held out, at least one."""
    return max(1, round(count * fraction))


def check_fraction(name: str, value: float) -> None:
    """Raise `ConfigError` where it is not between 0 and 1."""
    if not 0 < value < 1:
        raise ConfigError(f"data.{name}: {value} is not between 0 and 1")
