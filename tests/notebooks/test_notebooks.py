"""Every notebook runs from top to bottom without a word on stderr, and is the text beside it."""

import os
import subprocess
import sys
from pathlib import Path

import jupytext
import pytest

ROOT = Path(__file__).parents[2]
TEXTS = sorted(ROOT.glob("notebooks/[0-9]*.py"))
each = pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)


@pytest.mark.release
@each
def test_it_runs(path, tmp_path):
    environment = os.environ | {"MPLBACKEND": "Agg", "PYTHONPATH": str(ROOT)}
    environment.pop("XLA_FLAGS", None)  # as a reader runs it: it trains for longer than it compiles
    command = [sys.executable, "-W", "error", str(path)]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stderr == ""
    assert not list(tmp_path.iterdir())


@each
def test_the_notebook_is_the_text(path):
    text, notebook = jupytext.read(path), jupytext.read(path.with_suffix(".ipynb"))
    kinds = [[(cell.cell_type, cell.source) for cell in one.cells] for one in (text, notebook)]
    assert kinds[0] == kinds[1], f"make notebooks writes {path.stem}.ipynb"
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)


@each
def test_it_says_what_it_is_for_and_no_cell_is_long(path):
    cells = jupytext.read(path).cells
    assert "At the end you will be able to" in cells[0].source
    assert max(len(cell.source.splitlines()) for cell in cells if cell.cell_type == "code") <= 25
