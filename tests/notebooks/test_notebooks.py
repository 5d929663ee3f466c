"""Every notebook runs from top to bottom with nothing but progress on stderr, and shows what its text makes."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import jupytext
import nbformat
import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("execute", ROOT / "notebooks" / "execute.py")
execute = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(execute)
TEXTS = sorted(ROOT.glob("notebooks/[0-9]*.py"))
each = pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
SILENT = {"append", "assert_allclose", "start"}
"""Functions without a result, with which a cell may end."""
PROGRESS = re.compile(r": step [\d,]+ of [\d,]+, (loss |diverged)")
"""A line of what a run writes each minute where there is no terminal."""
OF_ONE_MACHINE = re.compile(r"/tmp/|/root|/home/|\.venv|0x[0-9a-f]{6}")

TEXT = """# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# Words

# %%
print(1 + 1)
"""


def shows(source: str) -> bool:
    """Whether a cell prints, or ends with a value."""
    tree = ast.parse(source)
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    last = tree.body[-1].value if isinstance(tree.body[-1], ast.Expr) else None
    silent = isinstance(last, ast.Call) and isinstance(last.func, ast.Attribute) and last.func.attr in SILENT
    return any(isinstance(call, ast.Name) and call.id == "print" for call in calls) or (last is not None and not silent)


@pytest.mark.release
@each
def test_it_runs(path, tmp_path):
    environment = os.environ | {"MPLBACKEND": "Agg", "PYTHONPATH": str(ROOT)}
    environment.pop("XLA_FLAGS", None)  # as a reader runs it: it trains for longer than it compiles
    command = [sys.executable, "-W", "error", str(path)]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stderr[-3000:]
    assert not [line for line in run.stderr.splitlines() if not PROGRESS.search(line)]
    assert not list(tmp_path.iterdir())


@each
def test_the_notebook_is_the_text_and_its_outputs_are_of_this_code(path):
    text, notebook = jupytext.read(path), nbformat.read(path.with_suffix(".ipynb"), as_version=4)
    kinds = [[(cell.cell_type, cell.source) for cell in one.cells] for one in (text, notebook)]
    assert kinds[0] == kinds[1], f"make notebooks writes {path.stem}.ipynb"
    assert notebook.metadata.get("executed") == execute.code_hash(text), f"make notebooks executes {path.stem}.ipynb"


@each
def test_every_cell_that_shows_something_has_its_output(path):
    notebook = nbformat.read(path.with_suffix(".ipynb"), as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs or not shows(cell.source), cell.source
            for output in cell.outputs:
                assert not {output.output_type, output.get("name")} & {"error", "stderr"}, output
                words = output.get("text", "") + "".join(
                    "".join(data) for kind, data in output.get("data", {}).items() if kind.startswith("text/")
                )
                assert not (found := OF_ONE_MACHINE.search(words)), words[max(found.start() - 50, 0) : found.end() + 50]
    assert path.with_suffix(".ipynb").stat().st_size <= execute.SIZE


@each
def test_it_says_what_it_is_for_and_how_to_install_and_no_cell_is_long(path):
    cells = jupytext.read(path).cells
    code = [cell.source for cell in cells if cell.cell_type == "code"]
    assert "At the end you will be able to" in cells[0].source
    assert code[0].startswith("# In a hosted notebook, first: %pip install ")
    assert max(len(source.splitlines()) for source in code) <= 25


def executed(text: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """What an execution makes of `TEXT`, with all that differs between two of them."""
    copy = nbformat.from_dict(text)
    shown = {"text/plain": "<two at 0x7f2d40e6f9>"}
    output = nbformat.v4.new_output("execute_result", shown, metadata={"at": "noon"}, execution_count=1)
    copy.cells[1] |= {"outputs": [output], "execution_count": 1, "metadata": {"execution": {"started": "noon"}}}
    copy.metadata.language_info = {"version": "3.11.7"}
    return copy


@pytest.fixture
def written(tmp_path, monkeypatch):
    """The text, whose notebook was written, and the texts that were executed for it."""
    runs, path = [], tmp_path / "01_some.py"
    monkeypatch.setattr(execute, "execute", lambda text: runs.append(text) or executed(text))
    path.write_text(TEXT)
    assert execute.update(path) == "executed"
    return path, runs


def test_two_executions_write_the_same_bytes(written):
    path, _ = written
    first = path.with_suffix(".ipynb").read_text()
    assert not re.search(r"noon|3\.11\.7|0x7f", first)
    execute.update(path, again=True)
    assert path.with_suffix(".ipynb").read_text() == first


def test_other_words_keep_the_outputs_and_other_code_does_not(written):
    path, runs = written
    path.write_text(TEXT.replace("Words", "Other words"))
    assert execute.update(path) == "kept"
    notebook = nbformat.read(path.with_suffix(".ipynb"), as_version=4)
    assert notebook.cells[0].source == "Other words"
    assert notebook.cells[1].outputs[0].data == {"text/plain": "<two>"}
    path.write_text(TEXT.replace("1 + 1", "1 + 2"))
    assert execute.update(path) == "executed"
    assert len(runs) == 2


def test_a_large_notebook_is_refused(written, monkeypatch):
    monkeypatch.setattr(execute, "SIZE", 100)
    with pytest.raises(SystemExit, match=r"01_some.ipynb: [\d,]+ bytes are more than 100"):
        execute.update(written[0], again=True)


def test_what_a_cell_shows():
    assert all(map(shows, ["x = 1\nprint(x)", "x = 1\nx", "for i in [1]:\n    print(i)"]))
    assert not any(map(shows, ["x = 1", "assert 1 + 1 == 2", "np.testing.assert_allclose(1, 1)"]))
