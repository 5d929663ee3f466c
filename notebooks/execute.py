"""notebooks/*.ipynb from the texts beside them, executed: `make notebooks`.

A notebook whose code is that of its last execution keeps its outputs, so changed words cost no execution.

    python notebooks/execute.py          those whose code has changed
    python notebooks/execute.py 03 10    these, again
"""

import argparse
import hashlib
import os
import re
import tempfile
from pathlib import Path

import jupytext
import nbformat

HERE = Path(__file__).parent
SIZE = 300_000
"""Most bytes of a notebook."""
PICTURES = "figure.dpi: 72\nfigure.max_open_warning: 0\n"
"""What matplotlib is told, so that a picture has some kilobytes."""
EXECUTED = "executed"
"""The field of a notebook's metadata with the hash of the code whose outputs it has."""
ADDRESS = re.compile(" at 0x[0-9a-f]+>")
"""Where an object that a cell shows is in memory."""
SECONDS = 1800
"""Most seconds of a cell."""


def texts() -> list[Path]:
    """The sources of all notebooks."""
    return sorted(HERE.glob("[0-9]*.py"))


def code_hash(notebook: nbformat.NotebookNode) -> str:
    """sha256 of the code cells."""
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256("\n# %%\n".join(code).encode()).hexdigest()


def with_outputs(text: nbformat.NotebookNode, executed: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The cells of a text with the outputs of an execution of the same code, and nothing that changes by itself."""
    outputs = iter([cell for cell in executed.cells if cell.cell_type == "code"])
    for number, cell in enumerate(text.cells):
        cell.id, cell.metadata = f"cell-{number}", {}
        if cell.cell_type == "code":
            done = next(outputs)
            cell.outputs, cell.execution_count = done.outputs, done.execution_count
            for output in cell.outputs:
                output.pop("metadata", None) if output.output_type == "stream" else output.update(metadata={})
    text.metadata = {"kernelspec": text.metadata.kernelspec, EXECUTED: code_hash(text)}
    return text


def execute(text: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """A copy that was run from top to bottom, in an empty folder."""
    from nbclient import NotebookClient

    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "matplotlibrc"
        settings.write_text(PICTURES)
        os.environ["MATPLOTLIBRC"] = str(settings)
        copy = nbformat.from_dict(text)
        client = NotebookClient(copy, timeout=SECONDS, record_timing=False, coalesce_streams=True)
        return client.execute(cwd=folder)


def update(path: Path, again: bool = False) -> str:
    """Write the notebook of a text; what was done, in a word."""
    text, target = jupytext.read(path), path.with_suffix(".ipynb")
    before = nbformat.read(target, as_version=4) if target.exists() else nbformat.v4.new_notebook()
    fresh = not again and before.metadata.get(EXECUTED) == code_hash(text)
    written = ADDRESS.sub(">", nbformat.writes(with_outputs(text, before if fresh else execute(text)))) + "\n"
    if len(written) > SIZE:
        raise SystemExit(f"{target.name}: {len(written):,} bytes are more than {SIZE:,}: smaller pictures, or fewer")
    target.write_text(written)
    return "kept" if fresh else "executed"


def main() -> None:
    """Notebooks one after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="beginnings of names, such as 03; none: those whose code has changed")
    names = tuple(parser.parse_args().names)
    for path in texts():
        if not names or path.name.startswith(names):
            print(f"{path.stem}: {update(path, again=bool(names))}", flush=True)


if __name__ == "__main__":
    main()
