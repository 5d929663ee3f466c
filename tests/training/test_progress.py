"""Throughput as the bar measures it."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from transformer.training.progress import Progress, counted


def test_the_throughput_is_that_after_the_first_dispatch(monkeypatch):
    """Whose tokens and time are those of the compilation too."""
    clock = iter([0.0, 10.0, 12.0, 16.0])
    monkeypatch.setattr("transformer.training.progress.time", SimpleNamespace(monotonic=lambda: next(clock)))
    with Progress("run", 15) as progress:
        progress.update(0)
        for step, tokens, expected in ((5, 500, math.nan), (10, 60, 60 / 2), (15, 20, 80 / 6)):
            progress.update(step, np.ones(2), tokens)
            assert progress.tokens_per_second == pytest.approx(expected, nan_ok=True)


def test_where_there_is_no_terminal_a_line_a_minute(monkeypatch, capsys):
    """The first after ten seconds, twice as long to the next, at most; never one of a number that there is not."""
    clock = iter([0.0, 9.0, 11.0, 21.0, 71.0, 171.0, 8171.0, 8240.0])
    monkeypatch.setattr("transformer.training.progress.time", SimpleNamespace(monotonic=lambda: next(clock)))
    with Progress("rms [/b]", 1600) as progress:
        progress.update(0)
        for step, loss in ((5, 4.0), (10, 3.0), (20, 2.0), (36, 1.5), (80, 1.0), (200, np.nan), (1580, 0.5)):
            progress.update(step, np.array([loss, np.nan]), 100)
    assert capsys.readouterr().err.splitlines() == [
        "rms [/b]: step 10 of 1,600, loss 3.000, 50 tokens/s, 11 min left",
        "rms [/b]: step 36 of 1,600, loss 1.500, 5 tokens/s, 52 min left",
        "rms [/b]: step 80 of 1,600, loss 1.000, 2 tokens/s, 55 min left",
        "rms [/b]: step 200 of 1,600, diverged, 0 tokens/s, 16 h left",
        "rms [/b]: step 1,580 of 1,600, loss 0.500, 0 tokens/s, 105 s left",
    ]


def test_a_single_update_has_no_throughput_and_no_time_left(monkeypatch, capsys):
    clock = iter([0.0, 90.0])
    monkeypatch.setattr("transformer.training.progress.time", SimpleNamespace(monotonic=lambda: next(clock)))
    with Progress("run", 15) as progress:
        progress.update(5, np.array([1.0]), 100)
    assert capsys.readouterr().err == "run: step 5 of 15, loss 1.000\n"
    clock = iter([0.0, 90.0])
    with Progress("run", 15, quiet=True) as progress:
        progress.update(5, np.array([1.0]), 100)
    assert capsys.readouterr().err == ""


def test_a_title_is_shown_as_it_is(monkeypatch, capsys):
    """With brackets, which rich would take for its own."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Progress("rms [/b]", 10) as progress:
        progress.update(5, np.array([1.0]), 10)
    assert "rms [/b]" in capsys.readouterr().err


def test_no_colour_where_none_is_wanted(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr("transformer.training.progress.FIRST", -1.0)
    for wanted in ("", "1"):
        monkeypatch.setenv("NO_COLOR", wanted)
        with Progress("run", 10) as progress:
            progress.update(5, np.array([1.0]), 10)
        said = capsys.readouterr().err
        assert "loss 1.000" in said
        assert "nan" not in said
        assert "step 5 of" not in said, "a terminal has the bar alone"
        assert ("\x1b[38" in said or "\x1b[3" in said) == (not wanted)


def test_other_work_is_counted_without_a_terminal(monkeypatch, capsys):
    clock = iter([0.0, 0.0, 9.0, 12.0, 13.0, 80.0])
    monkeypatch.setattr("transformer.training.progress.time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert list(counted("abcd", "letters [/b]", 4)) == [*"abcd"]
    assert capsys.readouterr().err == "letters [/b]: 2 of 4, 12 s left\nletters [/b]: 4 of 4, 0 s left\n"


def test_the_loss_is_the_mean_of_the_healthy_replicas(monkeypatch, capsys):
    clock = iter([0.0, 90.0])
    monkeypatch.setattr("transformer.training.progress.time", SimpleNamespace(monotonic=lambda: next(clock)))
    with Progress("run", 15) as progress:
        progress.update(5, np.array([1.0, np.nan, 2.0]), 100)
    assert capsys.readouterr().err == "run: step 5 of 15, loss 1.500\n"
