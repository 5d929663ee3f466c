"""What long.txt lists is there, and which tests are run of it."""

from pathlib import Path
from types import SimpleNamespace

import pytest

HERE = Path(__file__).parent


@pytest.fixture
def conftest(request):
    """The settings of these tests, which pytest has loaded."""
    return request.config.pluginmanager.get_plugin(str(HERE / "conftest.py"))


def test_every_name_is_that_of_a_test(conftest):
    for name in conftest.LONG:
        path, _, test = name.removesuffix("[*]").partition("::")
        assert f"def {test}(" in (HERE.parent / path).read_text(), name


def item(nodeid, *markers):
    choice = {"callspec": None} if "[" in nodeid else {}
    return SimpleNamespace(nodeid=nodeid, get_closest_marker=lambda name: name in markers, **choice)


def test_the_first_choice_stands_for_all_of_a_long_test(conftest, monkeypatch):
    monkeypatch.setattr(conftest, "LONG", {"a::many", "a::one", "a::slow[*]"})
    items = [item("a::one"), item("a::many[x]"), item("a::many[y]"), item("a::quick[x]"), item("a::quick[y]")]
    items += [item("a::slow[x]"), item("a::slow[y]")]
    items.append(item("b::killed", "release"))
    named = {kind: [i.nodeid for i in getattr(conftest, kind)(items)] for kind in ("short", "long")}
    assert named["short"] == ["a::many[x]", "a::quick[x]", "a::quick[y]", "b::killed"]
    assert named["long"] == ["a::one", "a::many[x]", "a::many[y]", "a::slow[x]", "a::slow[y]", "b::killed"]
