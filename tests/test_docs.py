"""The README and the pages of `docs`: their snippets run, their links lead somewhere, and the README stays one page.

A snippet that begins with ```python runs, after those above it on its page. One that begins with ```python no-run
needs what a test has not (files, a hub, several devices); the text beside it says what, and it is compiled.
"""

import ast
import functools
import linecache
import re
import sys
import types
from pathlib import Path

import matplotlib
import pytest

from transformer.runs.config import RunConfig

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("SECURITY.md", "experiments/ENGINES.md", "tests/CAMPAIGN.md")),
]
SNIPPET = re.compile(r"^```python( no-run)?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(r'\]\(([^)\s]+)\)|src="([^"]+)"')
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


def snippets(page: Path) -> list[tuple[bool, str]]:
    """(whether it is run, the code) of each Python snippet of a page, moved to its own lines of the page."""
    text = page.read_text(encoding="utf-8")
    return [(not m[1], "\n" * text.count("\n", 0, m.start(2)) + m[2]) for m in SNIPPET.finditer(text)]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [p for p in PAGES if any(run for run, _ in snippets(p))], ids=name_of)
def test_snippets_run(page, tmp_path, monkeypatch):
    """As pasted one after the other into an empty folder."""
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    module = types.ModuleType("pasted")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for run, code in snippets(page):
        if run:
            linecache.cache[str(page)] = (len(code), None, code.splitlines(keepends=True), str(page))
            exec(compile(code, page, "exec"), module.__dict__)


@pytest.mark.parametrize("page", [p for p in PAGES if snippets(p)], ids=name_of)
def test_snippets_are_python(page):
    for _, code in snippets(page):
        ast.parse(code, name_of(page))


def anchor(heading: str) -> str:
    """The anchor of a heading: its words in lower case, with dashes between them."""
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", plain.lower()).strip())


def anchors(page: Path) -> set[str]:
    return {anchor(heading) for heading in HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8")))}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    """Files and headings of this repository; addresses elsewhere are not asked."""
    text = CODE.sub("", FENCE.sub("", page.read_text(encoding="utf-8")))
    for link in (m[1] or m[2] for m in LINK.finditer(text)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)}: no {path}"
        assert not heading or heading in anchors(target), f"{name_of(page)}: no heading #{heading} in {path}"


def test_the_readme_is_one_page():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert len(text.split()) <= 1200


def test_bold_options_are_the_defaults():
    config, page = RunConfig(), (ROOT / "docs/options.md").read_text()
    rows = re.findall(r"^\| (`[a-z_.]+`(?: `[a-z_.]+`)?).* \| (.*\*\*.*) \|$", page, re.MULTILINE)
    assert len(rows) > 10
    for row in rows:
        paths, names = re.findall(r"`(.*?)`", row[0]), re.findall(r"\*\*`(\w+)", row[1])
        values = [functools.reduce(getattr, path.split("."), config) for path in paths if path != "model.pooling"]
        assert [value.name for value in values] == names[: len(values)], row[0]
