"""Is it better? Choices that you name, each an arm, against the model that the other flags make.

    transformer study compare --choices model.norm=rmsnorm model.position=rope
    transformer study compare --choices model.norm=rmsnorm model.position=rope --design factorial
    transformer study compare nanogpt-cpu --choices 'narrow: model.d_model=32 model.num_layers=4' --data.path input.txt

The base is `laptop`, `full`, or a preset of `transformer train`.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from experiments import cli
from experiments.sections import STUDY, Sections
from experiments.study_command import StudyCommand, budgets, run_parsed
from transformer.core.errors import ConfigError
from transformer.runs.config import RunConfig
from transformer.runs.presets import PRESETS

BASE = "base"
WORKDIR = Path("results/compare")


@dataclass(frozen=True, kw_only=True)
class Command(StudyCommand):
    sections: ClassVar[Sections] = {**STUDY, "study": ("choices", *STUDY["study"])}
    choices: tuple[str, ...] = ()
    """The arms, such as model.norm=rmsnorm. Several FIELD=VALUE of one have spaces between, and NAME: before them is
    what the report calls it."""


def arms(command: Command) -> dict[str, dict[str, Any]]:
    """The changes of each arm by its name; the first is the base.

    Raises:
      ConfigError: there is no choice, or one is not of its form, names no field, or has the name of another one.
    """
    if not command.choices:
        raise ConfigError("choices: none is given; --choices model.norm=rmsnorm compares that with the base")
    found: dict[str, dict[str, Any]] = {BASE: {}}
    run = cli.fields_of(command, RunConfig)
    for choice in command.choices:
        name, changes = read_choice(choice, "choices")
        if name in found:
            raise ConfigError(f"choices: two are called {name!r}")
        found[name] = {path: cli.value_at(run, path, text) for path, text in changes.items()}
    return found


def read_choice(choice: str, where: str) -> tuple[str, dict[str, str]]:
    """The name of a choice, and its values in text form by path; errors name the option `where`."""
    name, colon, rest = choice.partition(":")
    if "=" in name or not colon:
        name, rest = choice, choice
    try:
        words = shlex.shlex(rest, posix=True, punctuation_chars=False)
        words.whitespace_split, words.commenters, words.escape = True, "", ""
        pairs = [word.partition("=") for word in words]
    except ValueError:
        pairs = []
    if not pairs or not all(path and equals and text for path, equals, text in pairs):
        raise ConfigError(f"{where}: {choice!r} is not of the form FIELD=VALUE or NAME: FIELD=VALUE FIELD=VALUE")
    paths = [path.replace("-", "_") for path, _, _ in pairs]
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise ConfigError(f"{where}: {choice!r} gives {twice} twice")
    return name.strip(), {path: text for path, (_, _, text) in zip(paths, pairs, strict=True)}


def main() -> None:
    runs = {name: cli.extend(preset, StudyCommand, workdir=WORKDIR) for name, preset in PRESETS.items()}
    presets = {name: cli.extend(preset, Command) for name, preset in (budgets(WORKDIR.name) | runs).items()}
    command = cli.parse(Command, presets, description=__doc__)
    run_parsed("compare", arms(command), command)


if __name__ == "__main__":
    cli.main(main)
