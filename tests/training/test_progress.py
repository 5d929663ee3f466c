"""The bar of a run."""

import numpy as np

from transformer.training.progress import Progress


def test_a_title_is_shown_as_it_is(monkeypatch, capsys):
    """With brackets, which rich would take for its own."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Progress("rms [/b]", 10) as progress:
        progress.update(5, np.array([1.0]), 10)
    assert "rms [/b]" in capsys.readouterr().err
