"""Entries of the catalogue by a word."""

import sys
from pathlib import Path

import pytest

from experiments import catalogue
from transformer.core.errors import ConfigError


@pytest.fixture
def said(monkeypatch, capsys):
    def run(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["catalogue", *words])
        catalogue.main()
        return capsys.readouterr().out

    return run


def test_entries_with_all_words(said):
    """In their name or in what is said of them."""
    assert said("yarn").startswith("position=rope(")
    assert "mixer.sparsity=sliding_window(" in said("window")
    assert said("sliding window") == said("sliding", "window")
    assert said("window", "SINKS").count("works with") < said("window").count("works with")
    assert said("window", "SINKS").startswith("mixer.sparsity=sliding_window(size=3, sinks=2)")
    assert "parameters -160, operations +0.0%; works with causal" in said("rmsnorm")


def test_a_bar_in_an_entry_is_no_column(monkeypatch, tmp_path):
    """Markdown writes it \\|."""
    (tmp_path / "CATALOGUE.md").write_text("## Family\n\n| `a` | \\|x\\| | +1 | +2% | causal |\n| not | five |\n")
    monkeypatch.setattr(catalogue.transformer, "__file__", str(tmp_path / "__init__.py"))
    assert list(catalogue.entries()) == [("Family", "`a`", "|x|", "+1", "+2%", "causal")]


def test_every_row_is_an_entry(said):
    page = Path(catalogue.transformer.__file__).with_name("CATALOGUE.md").read_text().splitlines()
    rows = [line for line in page if line.startswith("| ") and not line.startswith("| option")]
    assert len(said().splitlines()) == len(list(catalogue.entries())) == len(rows)
    with pytest.raises(ConfigError, match="no entry has 'qqqqqq'; without a word all are listed"):
        said("qqqqqq")
