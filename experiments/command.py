"""The command `transformer`: a word for each thing to do, whose own command line says the rest.

    transformer train tiny --model.norm rmsnorm
    transformer sample results/language_model "ROMEO:" --num 3
    transformer study norm_position --seeds 8
    transformer study compare --choices model.norm=rmsnorm model.position=rope --design factorial
    transformer --import my_norms.py train tiny --model.norm powernorm

Every word calls the `main` of one module, which is imported then: `python -m` with that module does the same.
"""

import ast
import importlib
import importlib.metadata
import json
import sys
from pathlib import Path

from transformer.core.errors import nearest

COMMANDS = {
    "train": ("", "train a language model, or one of: {tasks}; `--resume FOLDER` goes on"),
    "sample": ("experiments.sample", "continue a text with the model in a run's folder"),
    "evaluate": ("experiments.evaluate", "ask the model in a folder standard benchmarks, through lm-eval"),
    "study": ("", "compare arms as an experiment; alone, the list of studies"),
    "report": ("transformer.study.__main__", "print and write the report of a study's folder again"),
    "exam": ("experiments.exam", "ask mixers and options the same skills"),
    "atlas": ("experiments.atlas", "reproduce published effects, or refute them"),
    "plan": ("experiments.plan", "predict memory and time of a run on devices that are not there yet"),
    "check": ("experiments.check", "check a choice of your own, MODULE:CLASS, in every context"),
    "catalogue": ("experiments.catalogue", "print the entries of the catalogue that have a word"),
    "info": ("experiments.info", "versions and devices, or the config, state and metrics of a run's folder"),
}
"""The module that does it, and what it does."""
KINDS = {
    "AlgorithmicRun": ("algorithmic",),
    "ClassificationRun": ("classification",),
    "TaggingRun": ("labelling",),
    "TranslationRun": ("translation",),
    "SpanRun": ("span_corruption",),
    "VisionRun": ("vision",),
    "ReconstructionRun": ("vision", "--reconstruct"),
}
"""The words after `train` by the kind of run, which its folder names; a plain `RunConfig` has none, and is text."""
TEXT = "language_model"
"""What is trained where no word says another."""
TASKS = (*dict.fromkeys(words[0] for words in KINDS.values()), "finetune")
STUDIES = (
    "activation", "attention", "compare", "gpt_to_llama", "heads", "mup", "norm_method", "norm_position", "position",
    "precision", "scaling", "scaling_by_sqrt_d", "structure",
)  # fmt: skip
HELP = ("-h", "--help", "--help-all")
"""The last one is longer where a command has more flags than a page holds."""
FEW_FLAGS = ("report", "check", "catalogue", "info")
"""Commands that have one page of them."""

OVERVIEW = """usage: transformer [--import MODULE] COMMAND …

Every choice is a value, every comparison an experiment.

{}

`transformer COMMAND --help` says what a command takes first, and `--help-all` all that it takes; `transformer
--completion SHELL` (bash, zsh or fish) prints the line that makes the shell complete the words. `--import` is a module
or a file.py with choices of your own, which are then known by their names.

Exit codes: 0 done, 1 some arms of a study failed, every replica diverged or a check failed, 2 a wrong choice, 74 the
disk is full, 75 interrupted and saved, 76 another process was lost."""


def main() -> None:
    """Do what the first word says with the words after it."""
    words = sys.argv[1:]
    if words == ["--import"]:
        fail("--import: it needs a module or a file.py, and a command behind it")
    if words[:1] == ["--import"]:
        import_own(words[1])
        words = words[2:]
    word, *words = words or ["--help"]
    if word in HELP:
        print(overview())
    elif word == "--completion":
        print(completion(*words[:1]))
    elif word == "--version":
        print(importlib.metadata.version("transformer"))
    elif word not in COMMANDS:
        fail(f"unknown command {word!r}{nearest(word, COMMANDS)}")
    elif word == "train":
        task, words = of_training(words)
        call(f"experiments.{task}", word if task == TEXT else f"{word} {task}", words)
    elif word != "study":
        short = {"--help-all": "--help"} if word in FEW_FLAGS else {}
        call(COMMANDS[word][0], word, [short.get(each, each) for each in words])
    elif not words or words[0] in HELP:
        print("transformer study NAME [laptop|full] --help\n\n" + listed({name: first_line(name) for name in STUDIES}))
    elif words[0] not in STUDIES:
        fail(f"unknown study {words[0]!r}{nearest(words[0], STUDIES)}")
    else:
        call(f"experiments.{words[0]}", f"{word} {words[0]}", words[1:])


def import_own(where: str) -> None:
    """Import a module, or a file.py, of choices of one's own."""
    from experiments.check import cli, loaded  # late, as in `call`

    def load() -> None:
        loaded(where)

    cli.main(load)


def call(module: str, name: str, words: list[str]) -> None:
    """The `main` of a module with these words as its command line."""
    from experiments import cli  # loaded late, as the module: JAX takes seconds, and `--help` needs none of it

    sys.argv = [f"transformer {name}", *words]
    cli.main(importlib.import_module(module).main)


def of_training(words: list[str]) -> tuple[str, list[str]]:
    """The module that trains, and its words: as the first word says, or the folder that is resumed."""
    if words[:1] and words[0] in (*TASKS, TEXT):
        return words[0], words[1:]
    if any(word.partition("=")[0] == "--resume" for word in words):
        from experiments import cli  # loaded late, as in `call`

        folder = cli.folder_of(cli.with_folder(words), default=Path())
        try:
            stored = json.loads((folder / "config.json").read_bytes())
            task, *more = KINDS[stored["run"]["kind"]]
        except (OSError, ValueError, TypeError, LookupError):  # whatever is wrong is said where it is read in full
            pass
        else:
            return task, [*more, *words]
    return TEXT, words


def way_on(folder: Path, kind: str) -> str:
    """How a run of a kind goes on: by a command, or from Python where none trains it."""
    if kind in (*KINDS, "RunConfig"):
        return f"`transformer train --resume {folder}` goes on"
    return "T.train(…, when_not_empty='resume') goes on"


def overview() -> str:
    """The text of `transformer --help`."""
    return OVERVIEW.format(listed({name: what.format(tasks=", ".join(TASKS)) for name, (_, what) in COMMANDS.items()}))


def completion(shell: str = "") -> str:
    """The line with which a shell completes commands, tasks and studies, and names of files."""
    names = " ".join([*COMMANDS, TEXT, *TASKS, *STUDIES])
    bash = f"complete -o default -W '{names}' transformer"
    known = {
        "bash": bash,
        "zsh": f"autoload -U +X bashcompinit && bashcompinit && {bash}",
        "fish": f"complete -c transformer -a '{names}'",
    }
    if shell not in known:
        fail(f"unknown shell {shell!r}{nearest(shell, known)}")
    return known[shell]


def listed(lines: dict[str, str]) -> str:
    """Names with a line each."""
    width = max(map(len, lines))
    return "\n".join(f"  {name:{width}}  {line}" for name, line in lines.items())


def first_line(study: str) -> str:
    """What a study asks: the first line of its module, which is not imported."""
    text = (Path(__file__).parent / f"{study}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]


def fail(message: str) -> None:
    """End with a line and exit code 2."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
