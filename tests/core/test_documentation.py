"""What a class says of its fields."""

import inspect
import subprocess
import sys
from dataclasses import dataclass

import transformer as T
from transformer.core.changes import Config
from transformer.core.documentation import documented


@dataclass(frozen=True)
class Softly(T.Norm):
    """Divides by a norm.

    Of some kind.
    """

    order: int = 2
    """Which norm:
    of what order."""
    silent: bool = False


@dataclass(frozen=True)
class More(Softly):
    order: int = 3
    extra: int = 1
    """What is added."""


@dataclass(frozen=True)
class Silent(Config):
    """Nothing to say of its field."""

    field: int = 0


def test_help_has_the_text_of_each_field():
    assert inspect.getdoc(Softly) == (
        "Divides by a norm.\n\nOf some kind.\n\nAttributes:\n  order: Which norm: of what order."
    )
    assert inspect.getdoc(Silent) == "Nothing to say of its field."
    assert "\n  eps: Added to the mean square." in inspect.getdoc(T.RMSNorm)
    assert "\n  seeds: Number of seeds per arm" in inspect.getdoc(T.Study)


def test_a_subclass_takes_the_text_of_its_base():
    assert {"order": "Which norm: of what order.", "extra": "What is added."}.items() <= documented(More).items()


def test_a_text_may_be_given_later():
    class Other(T.Norm):
        """Old."""

    Other.__doc__ = "New."
    assert inspect.getdoc(Other) == "New."


def test_a_class_without_source_has_its_text_alone():
    typed = """
from dataclasses import dataclass
import inspect
import transformer as T

@dataclass(frozen=True)
class Typed(T.Norm):
    "Typed."
    order: int = 2
    "Which."

assert inspect.getdoc(Typed) == "Typed.", inspect.getdoc(Typed)
"""
    subprocess.run([sys.executable, "-c", typed], check=True)


def test_no_source_is_read_when_classes_are_made(monkeypatch):
    def read(cls):
        raise AssertionError(cls)

    monkeypatch.setattr("transformer.core.values.with_fields", read)
    dataclass(frozen=True)(type("Made", (T.Norm,), {"__doc__": "Made.", "__annotations__": {"order": int}}))
