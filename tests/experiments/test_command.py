"""The command `transformer`: which module a word calls, and with which words."""

import ast
import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from experiments import command
from transformer.core.checks import hints
from transformer.core.files import write_sealed
from transformer.core.values import load_room
from transformer.norms.norm import Norm
from transformer.runs.config import RunConfig

ROOT = Path(__file__).parents[2]
WORDS = (
    *(module for module, _ in command.COMMANDS.values() if module),
    *(f"experiments.{name}" for name in (*command.TASKS, *command.STUDIES, "language_model")),
)


@pytest.fixture
def called(monkeypatch):
    """What a command line calls, and with which words."""
    seen = []

    def run(*words: str):
        monkeypatch.setattr(sys, "argv", ["transformer", *words])
        monkeypatch.setattr(command, "call", lambda *given: seen.append(given))
        command.main()
        return seen.pop()

    return run


def defines_main(path: str | None) -> bool:
    body = ast.parse(Path(path or "").read_text()).body
    return any(isinstance(each, ast.FunctionDef) and each.name == "main" for each in body)


def test_every_word_has_a_module_and_every_module_a_word():
    """Which is found without importing it."""
    for module in WORDS:
        spec = importlib.util.find_spec(module)
        assert spec is not None, module
        assert defines_main(spec.origin), module
    commands = {f"experiments.{p.stem}" for p in (ROOT / "experiments").glob("*.py") if defines_main(str(p))}
    assert commands - {*WORDS} == {"experiments.command", "experiments.cli"}


def test_the_package_installs_it():
    place = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["transformer"]
    assert place == f"{command.__name__}:{command.main.__name__}"


def test_help_needs_no_jax():
    code = "import sys; from experiments import command; command.main(); assert 'jax' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for word in command.COMMANDS:
        assert f"\n  {word} " in done.stdout


def test_commands_of_runs_start_without_what_studies_need():
    names = "language_model, classification, labelling, vision, algorithmic, span_corruption, finetune, sample"
    code = f"import sys; from experiments import {names}; assert not {{'scipy', 'matplotlib'}} & {{*sys.modules}}"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


UNTIL_START = """
import sys
from jax._src import xla_bridge
from experiments import command
from transformer.core import runtime

class Started(Exception):
    pass

def start():
    raise Started

runtime.start = start
_, folder, *lines = sys.argv
for line in lines:
    sys.argv = ["transformer", *line.split(), f"--workdir={folder}"]
    try:
        command.main()
    except Started:
        print(line, xla_bridge.backends_are_initialized())
"""


def test_no_command_makes_an_array_before_it_starts_jax(tmp_path):
    """In a process of its own: in this one JAX has begun, with as many devices as a start would ask for."""
    own = {"classification": " --data.examples 50", "labelling": " --data.examples 50"}
    lines = [f"train {task}{own.get(task, '')}" for task in command.TASKS if task != "finetune"]
    lines += ["study norm_position", "study scaling", "exam", "atlas"]
    done = subprocess.run(
        [sys.executable, "-c", UNTIL_START, str(tmp_path), *lines], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [f"{line} False" for line in lines]


def test_the_list_of_studies_says_what_they_ask(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["transformer", "study"])
    command.main()
    said = capsys.readouterr().out
    assert "norm_position      Where should the norm sit?" in said
    assert all(f"\n  {name} " in said for name in command.STUDIES)
    assert len(said.splitlines()) == 2 + len(command.STUDIES)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["trian"], "error: unknown command 'trian'; did you mean 'train'?"),
        (["--import"], "error: --import: it needs a module or a file.py, and a command behind it"),
        (["study", "norm_positon"], "error: unknown study 'norm_positon'; did you mean 'norm_position'?"),
    ],
)
def test_a_wrong_word_is_one_line(monkeypatch, capsys, words, line):
    monkeypatch.setattr(sys, "argv", ["transformer", *words])
    with pytest.raises(SystemExit) as stop:
        command.main()
    assert stop.value.code == 2
    assert capsys.readouterr().err == f"{line}\n"


def test_a_task_is_what_a_wrong_word_after_train_may_mean(monkeypatch, capsys):
    """As a preset is."""
    for word, meant in {"translaton": "translation", "tinny": "tiny"}.items():
        monkeypatch.setattr(sys, "argv", ["transformer", "train", word])
        with pytest.raises(SystemExit):
            command.main()
        assert capsys.readouterr().err == f"error: unknown preset {word!r}; did you mean {meant!r}?\n"


def test_a_shell_completes_the_words(monkeypatch, capsys):
    """As it is told by the line that it evaluates."""
    said = {}
    for shell in ("bash", "zsh", "fish"):
        monkeypatch.setattr(sys, "argv", ["transformer", "--completion", shell])
        command.main()
        said[shell] = capsys.readouterr().out
        assert "train sample evaluate study" in said[shell]
    code = f'{said["bash"]} compgen -o default -W "$(complete -p transformer | cut -d\\\' -f2)" norm_p'
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["norm_position"]
    monkeypatch.setattr(sys, "argv", ["transformer", "--completion", "bsh"])
    with pytest.raises(SystemExit):
        command.main()
    assert capsys.readouterr().err == "error: unknown shell 'bsh'; did you mean 'bash'?\n"


def test_choices_of_ones_own_are_imported_first(called, tmp_path, capsys):
    path = tmp_path / "own_norms.py"
    path.write_text(
        "from dataclasses import dataclass\nfrom transformer.norms.norm import Norm\n"
        "@dataclass(frozen=True)\nclass OwnNorm(Norm):\n    def __call__(self, x_BLD, params):\n        return x_BLD\n"
    )
    given = called("--import", str(path), "train", "tiny", "--model.norm", "ownnorm")
    assert given == ("experiments.language_model", "train", ["tiny", "--model.norm", "ownnorm"])
    assert "ownnorm" in Norm.variants()
    with pytest.raises(SystemExit):
        called("--import", str(tmp_path / "other.py"), "info")
    assert capsys.readouterr().err == f"error: no file {tmp_path / 'other.py'}\n"


def test_words_are_handed_on(called):
    assert called("train", "tiny", "--steps", "3") == ("experiments.language_model", "train", ["tiny", "--steps", "3"])
    assert called("train", "vision", "digits") == ("experiments.vision", "train vision", ["digits"])
    assert called("study", "heads", "full") == ("experiments.heads", "study heads", ["full"])
    assert called("plan", "--help-all")[2] == ["--help-all"]
    assert called("info", "--help-all")[2] == ["--help"]
    assert called("report", "a", "b") == ("transformer.study.__main__", "report", ["a", "b"])


def test_a_folder_says_what_trains_on(called, tmp_path, run_folder):
    assert called("train", "--resume", str(run_folder))[0] == "experiments.language_model"
    assert called("train", "--resume", str(tmp_path))[0] == "experiments.language_model"
    for kind, (task, *more) in command.KINDS.items():
        write_sealed(tmp_path / "config.json", {"run": {"kind": kind}})
        words = ["--resume", str(tmp_path), "--steps", "9"]
        assert called("train", *words) == (f"experiments.{task}", f"train {task}", [*more, *words])
        for words in (["--resume", f"--workdir={tmp_path}"], ["--workdir", str(tmp_path), "--resume"]):
            assert called("train", *words)[0] == f"experiments.{task}"


def test_the_kinds_of_runs_are_those_that_the_modules_train():
    load_room("transformer.data")
    kinds = {cls.__name__: cls for cls in RunConfig.__subclasses__()}
    for kind, (task, *_) in command.KINDS.items():
        module = importlib.import_module(f"experiments.{task}")
        assert getattr(module, kind) is kinds[kind]
        assert hints(kinds[kind])["data"]


def test_a_module_sees_the_words_as_its_own(monkeypatch, capsys):
    """As `python -m` gives them to it; its errors are one line."""
    monkeypatch.setattr(sys, "argv", ["transformer", "catalogue", "rmsnrm"])
    with pytest.raises(SystemExit) as stop:
        command.main()
    assert stop.value.code == 2
    assert capsys.readouterr().err == "error: catalogue: no entry has 'rmsnrm'; did you mean 'rmsnorm'?\n"
    monkeypatch.setattr(sys, "argv", ["transformer", "catalogue", "--help"])
    with pytest.raises(SystemExit):
        command.main()
    assert capsys.readouterr().out.startswith("usage: transformer catalogue [-h]")
