"""Throughput as the bar measures it."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from transformer.training.progress import Progress


def test_the_throughput_is_that_after_the_first_dispatch(monkeypatch):
    """Whose tokens and time are those of the compilation too."""
    clock = iter([10.0, 12.0, 16.0])
    monkeypatch.setattr("transformer.training.progress.time", SimpleNamespace(monotonic=lambda: next(clock)))
    with Progress("run", 15) as progress:
        progress.update(0)
        for step, tokens, expected in ((5, 500, math.nan), (10, 60, 60 / 2), (15, 20, 80 / 6)):
            progress.update(step, np.ones(2), tokens)
            assert progress.tokens_per_second == pytest.approx(expected, nan_ok=True)


def test_a_title_is_shown_as_it_is(monkeypatch, capsys):
    """With brackets, which rich would take for its own."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Progress("rms [/b]", 10) as progress:
        progress.update(5, np.array([1.0]), 10)
    assert "rms [/b]" in capsys.readouterr().err
