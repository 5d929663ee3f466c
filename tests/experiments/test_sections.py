"""Help in sections: what a command shows first is there, documented, and fits a screen and a half."""

import functools
import importlib
import os
import pty
import subprocess
import sys

import pytest

from experiments import cli, command
from experiments.sections import shown
from transformer.core.documentation import documented
from transformer.runs.config import RunConfig
from transformer.runs.optimizer import OptimizerConfig

TASKS = ("train", *(f"train {task}" for task in command.TASKS), "train vision --reconstruct", "train finetune classes")
STUDIES = tuple(f"study {name}" for name in command.STUDIES)
OTHERS = tuple(name for name in command.COMMANDS if name not in ("train", "study"))
ROWS = 60


def said(words: str, monkeypatch, capsys) -> str:
    """What a command line prints, which is help and no error."""
    monkeypatch.setattr(sys, "argv", ["transformer", *words.split()])
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stop:
        command.main()
    assert not stop.value.code
    return capsys.readouterr().out


@pytest.mark.parametrize("words", [*TASKS, *STUDIES])
def test_the_short_help_of_commands_with_many_flags(words, monkeypatch, capsys):
    text = said(f"{words} --help", monkeypatch, capsys)
    lines = text.splitlines()
    assert len(lines) <= ROWS
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith(f"usage: transformer {words.partition(' --')[0]} ".replace(" classes", ""))
    assert "--help-all shows all flags" in text
    assert "\nmodel\n" in text
    assert "\n  --steps " in text
    for heading in (i for i, line in enumerate(lines) if line and i > 4 and line[0] != " " and i < len(lines) - 2):
        assert lines[heading + 1].startswith("  --"), lines[heading]


@pytest.mark.parametrize("words", [*TASKS[:3], STUDIES[0]])
def test_the_whole_help(words, monkeypatch, capsys):
    text = said(f"{words} --help-all", monkeypatch, capsys)
    assert "--optimizer.skip-limit INT" in text
    assert "--help-all" not in text


@pytest.mark.parametrize("words", OTHERS)
def test_other_commands_have_one_help_or_name_the_other(words, monkeypatch, capsys):
    text, whole = (said(f"{words} {flag}", monkeypatch, capsys) for flag in ("--help", "--help-all"))
    assert (text == whole) == ("--help-all shows all flags" not in text)
    assert text.startswith("usage: ")
    assert "A preset may come first: ." not in text
    assert ("--model.norm.eps" in text) == ("--model." in text.replace("--model.norm.eps 1e-6", ""))


def test_the_list_of_studies(monkeypatch, capsys):
    for words in ("study", "study --help", "study --help-all"):
        monkeypatch.setattr(sys, "argv", ["transformer", *words.split()])
        command.main()
        assert "\n  norm_position " in capsys.readouterr().out


@pytest.mark.parametrize("words", [*TASKS, *STUDIES])
def test_every_path_names_a_documented_field(words, monkeypatch):
    """Of every preset, so that none is left out of the help."""
    seen = []

    class Parsed(Exception):
        pass

    def parse(cls, presets, *_, **__):
        seen.append((cls, presets))
        raise Parsed

    monkeypatch.setattr(cli, "parse", parse)
    _, *rest = [*words.split(), "--help"]
    module, rest = command.of_training(rest) if words.startswith("train") else (rest[0], rest[1:])
    monkeypatch.setattr(sys, "argv", ["transformer", *rest])
    with pytest.raises(Parsed):
        importlib.import_module(f"experiments.{module}").main()
    ((cls, presets),) = seen
    for name, preset in presets.items():
        paths = [path for own in cls.sections.values() for path in own]
        assert len(paths) == len(set(paths))
        for path in paths:
            *above, field = path.split(".")
            owner = functools.reduce(getattr, above, preset)
            assert hasattr(owner, field), f"{name}: {path}"
            assert documented(type(owner))[field]


def test_a_preset_and_a_folder_are_what_is_shown(run_folder, monkeypatch, capsys):
    assert "--model.d-model 384 " in said("train nanogpt-gpu --help", monkeypatch, capsys)
    assert "--model.d-model 16 " in said(f"train --resume {run_folder} --help", monkeypatch, capsys)


def test_a_choice_without_a_field_leaves_it_out(monkeypatch, capsys):
    """As where a folder is resumed whose model has no feed-forward layers."""
    from experiments import language_model

    bare = language_model.Command().replace({"model.feed_forward": None})
    monkeypatch.setattr(sys, "argv", ["transformer"])
    with pytest.raises(SystemExit):
        cli.parse(language_model.Command, {"bare": bare}, ["--help"])
    text = capsys.readouterr().out
    assert "--model.feed-forward none" in text
    assert "activation" not in text


def test_the_documentation_of_a_field_is_that_of_its_class_or_a_base():
    assert documented(OptimizerConfig)["learning_rate"] == "Peak learning rate."
    own = documented(importlib.import_module("experiments.vision").Classify)
    assert own["steps"] == documented(RunConfig)["steps"]
    assert own["workdir"] == "Folder of the run."


def test_values_as_flags_take_them():
    assert shown((1e-3, 3e-3)) == "0.001 0.003"
    assert [shown(value) for value in (None, False, (), "char", 2)] == ["none", "", "", "char", "2"]


@pytest.mark.parametrize("no_color", ["1", ""])
def test_no_color_is_obeyed(no_color):
    """On a terminal; an empty text asks for nothing."""
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "experiments.command", "sample", "--help"]
    environment = {**os.environ, "NO_COLOR": no_color, "TERM": "xterm"}
    with subprocess.Popen(words, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        text = b""
        while True:
            try:
                text += os.read(ours, 1 << 16)
            except OSError:  # the end, as Linux says it
                break
    os.close(ours)
    assert process.returncode == 0
    assert b"--decoding" in text
    assert (b"\x1b[" in text) == (not no_color)
