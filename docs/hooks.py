"""What mkdocs adds to the pages of this folder.

Pages link to files of the repository as they lie there, so that the links work without a site; here pages made of
other texts and files that are linked to are added, links are turned to them, the API gets a page for each room, and
formulas become MathML, which browsers draw by themselves. The word `no-run` behind ```python is for the tests alone.
"""

import ast
import html
import logging
import posixpath
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.structure.files import File

from transformer.names import NAMES

ROOT = Path(__file__).parents[1]
TEXTS = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "experiments/ENGINES.md": "engines.md",
    "tests/CAMPAIGN.md": "campaign.md",
    "transformer/CATALOGUE.md": "catalogue.md",
}
"""Pages made of texts outside this folder."""
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)#\s]+)")
"""The path of a relative link."""
MATH = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_config(config):
    """The pages of the API are part of the navigation, in the section that other pages of reference are in."""
    section = next(entry["Reference"] for entry in config.nav if "Reference" in entry)
    section.append({"API": [{room: f"api/{room}.md"} for room in rooms()]})
    return config


def on_files(files, config):
    """Add the pages of other texts, the pages of the API, and whatever else pages link to."""
    for text, page in TEXTS.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / text)))
    for room, modules in rooms().items():
        files.append(File.generated(config, f"api/{room}.md", content=page_of(room, modules)))
    for linked in {target for file in files.documentation_pages() for target in targets(file)}:
        if (ROOT / linked).is_file() and not linked.startswith("docs/") and linked not in TEXTS:
            files.append(File.generated(config, f"files/{linked}", abs_src_path=str(ROOT / linked)))
    return files


def on_page_markdown(markdown, page, **_):
    """Turn links to files of the repository to where the site has them."""
    return LINK.sub(lambda link: in_site(page.file, link[1]), markdown.replace("```python no-run\n", "```python\n"))


def on_page_content(content, page, **_):
    """Formulas as MathML; a warning where a block of code was not taken for one."""
    if "```" in content:
        logging.getLogger("mkdocs.hooks").warning(f"Doc file '{page.file.src_uri}' has a fence that opens no block.")

    def drawn(found):
        return convert(html.unescape(found[2]).strip(), display="block" if found[1] == "div" else "inline")

    return MATH.sub(drawn, content)


def home(file):
    """The path in the repository of a page's text."""
    texts = {page: text for text, page in TEXTS.items()}
    return texts.get(file.src_uri, f"docs/{file.src_uri}")


def targets(file):
    """The paths in the repository of what a page links to."""
    folder = posixpath.dirname(home(file))
    return [posixpath.normpath(posixpath.join(folder, link)) for link in LINK.findall(file.content_string)]


def in_site(file, link):
    """A relative link of a page, as it is in the site."""
    linked = posixpath.normpath(posixpath.join(posixpath.dirname(home(file)), link))
    there = linked.removeprefix("docs/") if linked.startswith("docs/") else TEXTS.get(linked, f"files/{linked}")
    return posixpath.relpath(there, posixpath.dirname(file.src_uri) or ".")


def rooms():
    """The public names of the modules of each room."""
    found = {}
    for module, names in NAMES.items():
        found.setdefault(module.partition(".")[0], {})[module] = names.split()
    tables = {"pretrained": listed("pretrained"), "testing": listed("testing")}
    return dict(sorted((found | tables).items()))


def listed(room):
    """The names that a room imports from its modules."""
    tree = ast.parse((ROOT / "transformer" / room / "__init__.py").read_text(encoding="utf-8"))
    return {
        node.module.removeprefix("transformer."): [name.name for name in node.names]
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module
    }


def page_of(room, modules):
    """The page of a room: each module with its public names."""
    parts = [f"# {room}\n"]
    for module, names in modules.items():
        members = "".join(f"\n        - {name}" for name in names)
        parts.append(f"::: transformer.{module}\n    options:\n      members:{members}\n")
    return "\n".join(parts)
