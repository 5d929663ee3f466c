"""The bars of a study."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from transformer.study.view import View, step_reached
from transformer.training.metrics import METRICS, line_of


def test_the_names_of_arms_are_shown_as_they_are(monkeypatch, capsys, tmp_path):
    """With brackets, which rich would take for its own."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    (tmp_path / METRICS).write_text(line_of({"step": 4, "replica": 0}))
    cell = cast(Any, SimpleNamespace(folder=tmp_path, title="rms [/b]", config=SimpleNamespace(steps=10)))
    with View([cell]) as view:
        view.wait()
        view.wait()  # until it is drawn
        view.end(cell)
    assert "rms [/b]" in capsys.readouterr().err


@pytest.mark.parametrize("last", ["", '{"step": 6', json.dumps({"step": 6}) + "\n", "5\n"])
def test_a_line_that_is_not_whole_does_not_count(tmp_path, last):
    """A line is being written, or is damaged: the bar waits for the next."""
    (tmp_path / METRICS).write_text(line_of({"step": 2}) + line_of({"step": 4}) + last)
    assert step_reached(tmp_path) in (0, 4)
    assert step_reached(tmp_path / "missing") == 0
