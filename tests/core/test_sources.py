"""The source of variants of one's own, by which their runs are known."""

import importlib.util

import pytest

from transformer.core.sources import sources

CLASS = """
from dataclasses import dataclass

import transformer as T


@dataclass(frozen=True)
class {name}(T.Activation):
    slope: float = 2.0

    def __call__(self, x):
        {body}
"""


@pytest.fixture
def defined(tmp_path):
    """A class of one's own in a file of its own, with such a body of its function."""

    def make(body, name="Soft"):
        number = len(list(tmp_path.iterdir()))
        path = tmp_path / f"own_{number}.py"
        path.write_text(CLASS.format(name=f"{name}{number}", body=body))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return getattr(module, f"{name}{number}")

    return make


@pytest.mark.parametrize(
    "same",
    [
        "return self.slope * x + 1  # a comment",
        "# a comment\n        return self.slope * x + 1",
        '"""What it is."""\n        return self.slope * x + 1',
        "return (\n            self.slope * x\n            + 1\n        )",
        "\n        return self.slope*x+1",
    ],
)
def test_comments_docstrings_and_layout_are_no_part_of_a_source(defined, same):
    plain = defined("return self.slope * x + 1")
    assert plain._source == defined(same)._source
    assert "slope * x + 1" in plain._source


@pytest.mark.parametrize("other", ["return self.slope * x + 2", "return self.slope * (x + 1)", "return x"])
def test_an_edit_is_another_source(defined, other):
    plain, edited = defined("return self.slope * x + 1"), defined(other)
    assert plain._source != edited._source
    assert {*sources([plain()]).values()} != {*sources([edited()]).values()}


def test_classes_of_one_name_are_all_in_the_sources(defined):
    one, other, edited = (defined(f"return self.slope * x + {i}") for i in range(3))
    for cls in (one, other, edited):
        cls.__qualname__ = "Soft"
    assert sources([one(), other()]) != sources([edited(), other()])
    assert sources([other(), one()]) != sources([other(), edited()])
    assert sources([one(), one(slope=1.0)]) == sources([one()])
