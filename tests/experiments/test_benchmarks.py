"""Tables of measurements: one file, and documents made from it."""

import json
from pathlib import Path

import pytest

from experiments.benchmarks import record
from experiments.benchmarks.record import Table

ROOT = Path(__file__).parents[2]
TABLE = Table("Steps", ("", "ms", "share"), (0, 1, 2), (("ours", [3.0, 1.0, 2.0], [0.5]), ("a | b", "none", [1234.5])))


@pytest.fixture
def records(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "FILE", tmp_path / "benchmarks.json")
    record.keep({"older": TABLE}, "python a", 3, {})
    record.keep({"steps": TABLE}, "python b", 3, {"jax": "0.1"})
    return json.loads(record.FILE.read_text())


def test_a_table_says_once_where_and_when(records):
    """Median, lowest and highest of the rounds; a bar ends no cell; other tables stay in the file."""
    caption, _, *lines = record.markdown(records["steps"]).splitlines()
    assert caption.startswith("**Steps**: median (lowest–highest) of the rounds, 3 in turn; ")
    assert caption.endswith(f", jax 0.1, {records['steps']['date']} (`python b`)")
    assert lines == [
        "|  | ms | share |",
        "|---|---|---|",
        "| ours | 2.0 (1.0–3.0) | 0.50 |",
        r"| a \| b | none | 1,234.50 |",
    ]
    assert records["older"]["command"] == "python a"


def test_a_document_is_written_between_its_marks(records):
    document = "before\n<!-- benchmark: steps -->\nold\n<!-- end -->\nafter\n"
    once = record.written(document, records)
    assert once.splitlines()[2] == record.markdown(records["steps"]).splitlines()[0]
    assert (once.startswith("before\n"), once.endswith("<!-- end -->\nafter\n")) == (True, True)
    assert record.written(once, records) == once
    with pytest.raises(KeyError, match="unknown"):
        record.written(document.replace("steps", "unknown"), records)


def test_the_page_of_benchmarks_has_what_was_measured():
    """`python -m experiments.benchmarks.record docs/benchmarks.md` writes it anew."""
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    found = json.loads(record.FILE.read_text())
    assert record.BLOCK.search(text)
    assert record.written(text, found) == text
