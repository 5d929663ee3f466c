"""Command lines for frozen dataclasses: variants in their text form, errors as one line with exit code 2.

A flag names a field by its dotted path, also below a variant: `--model.mixer 'attention(num_heads=8)'` is
`--model.mixer.num-heads 8` where the mixer is an attention already. What is not there is `none`.
"""

import contextlib
import dataclasses
import difflib
import functools
import io
import itertools
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tyro

from experiments.command import HELP
from experiments.flags import REGISTRY
from experiments.sections import Sections, short_help
from transformer.core.changes import replace
from transformer.core.checks import hints, item_of, variant_of
from transformer.core.errors import ConfigError, nearest
from transformer.core.files import EXIT_UNWRITABLE, WriteError
from transformer.core.folders import file_names
from transformer.core.text import field_from_text
from transformer.core.values import to_text
from transformer.training.checkpoint import CheckpointError
from transformer.training.signals import EXIT_INTERRUPTED, Interrupted

T = TypeVar("T")
HELP_ALL = "--help-all"


def parse(
    cls: type[T],
    presets: Mapping[str, T],
    arguments: Sequence[str] | None = None,
    description: str | None = None,
    others: Sequence[str] = (),
) -> T:
    """The command line as a value of `cls`; its first word may name a preset to start from.

    `others` are words that may stand there and are read elsewhere, which a wrong one may have been meant to be.

    `--resume FOLDER` is `--workdir FOLDER --resume`. Without a preset, the run in that folder is what flags change.
    `--help` shows the fields that the class names in `sections`, where it has these, and `--help-all` all of them.

    Raises:
      ConfigError: whatever is wrong with it, in one line.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if "resume" in hints(cls) and (named := with_folder(arguments)) != arguments:
        if not file_names(folder := folder_of(named, default=Path())):
            raise ConfigError(f"resume: {folder} holds nothing that could be continued")
        arguments = named
    default = next(iter(presets.values()))
    if arguments and not arguments[0].startswith("-"):
        name = arguments.pop(0)
        if not any(presets):
            raise ConfigError(f"{name}: there is no option for it; --help shows those that there are")
        if name not in presets:
            raise ConfigError(f"unknown preset {name!r}{nearest(name, (*presets, *others))}")
        default = presets[name]
    elif "--resume" in arguments and hasattr(cls, "continued"):
        default = cls.continued(folder_of(arguments, default.workdir), default)  # pyright: ignore[reportAttributeAccessIssue]
    if "preset" in hints(cls):
        default = dataclasses.replace(default, preset=default)  # pyright: ignore[reportArgumentType]
    if {*HELP} & {*arguments}:
        sections: Sections | None = getattr(cls, "sections", None)
        if HELP_ALL not in arguments and sections is not None:
            print(short_help(Path(sys.argv[0]).name, default, sections, presets, description or ""))
            sys.exit(0)
        if os.environ.get("NO_COLOR"):
            os.environ["TERM"] = "dumb"  # the one word about colours that tyro knows
        arguments = ["--help"]
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(
                cls,
                args=_fold(arguments, default),
                default=default,
                description=f"{description or ''}{_said_of(presets, default)}",
                registry=REGISTRY,
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        message = _one_line(said.getvalue()).removeprefix(f"Error parsing {cls.__name__}: ")
        message = re.sub(r"^Error parsing [\w.]+: (?=[\w.]+: )", "", message)  # errors of ours name the field
        raise ConfigError(_refusal(message, default, presets)) from None


def _refusal(message: str, default: Any, presets: Mapping[str, Any]) -> str:
    """The message of tyro; an option that there is not is named with the one that has its name, or the nearest, and so
    is a value of several."""
    if found := re.match(r"invalid choice '(.*)' for argument '--(\S+)'\. Expected one of \((.*)\)\.", message):
        word, flag, known = found[1], found[2].replace("-", "_"), found[3].replace("'", "").split(", ")
        return f"{flag}: unknown value {word!r}{nearest(word, known)}"
    if found := re.match(r"Error parsing --(\S+): (?:.* int\(\) with base 10|.* string to (float)): (.*)", message):
        return f"{found[1].replace('-', '_')}: {found[3]} is not {'a' if found[2] else 'a whole'} number"
    if found := re.match(r"Error parsing --(\S+): ([\w.]+): (.*)", message):  # some name the family, not the field
        flag = found[1].replace("-", "_")
        return f"{found[2] if found[2].startswith(flag) else flag}: {found[3]}"
    found = re.match(r"Unrecognized options: ([^\s,]+)", message)
    if not found:
        return message
    word = found[1]
    if not word.startswith("--"):
        return f"{word}: {'a preset comes before all options' if word in presets else 'there is no option for it'}"
    by_name: dict[str, str] = {}
    for path in sorted(_paths(default), key=lambda path: (path.count("."), path)):
        by_name.setdefault(path.rpartition(".")[2], path)
    name = word.strip("-").replace("-", "_").rpartition(".")[2]
    close = difflib.get_close_matches(name, by_name, n=1)
    hint = f"did you mean --{by_name[close[0]].replace('_', '-')}?" if close else "--help shows those that there are"
    return f"{word}: there is no such option; {hint}"


def _paths(value: Any, prefix: str = "") -> Iterator[str]:
    """The dotted paths of all fields of a config, and of the choices in it."""
    for field in dataclasses.fields(value) if dataclasses.is_dataclass(value) else ():
        yield f"{prefix}{field.name}"
        yield from _paths(getattr(value, field.name), f"{prefix}{field.name}.")


def _said_of(presets: Mapping[str, Any], default: Any) -> str:
    """What the help says of presets and of flags that go into a choice, where there are any."""
    said = [f"A preset may come first: {', '.join(presets)}."] if any(presets) else []
    said += ["Flags also reach into a choice: --model.norm.eps 1e-6."] if hasattr(default, "model") else []
    return "\n\n" * bool(said) + " ".join(said)


def with_folder(arguments: list[str]) -> list[str]:
    """The command line with `--resume FOLDER`, or `--resume=FOLDER`, as `--resume --workdir FOLDER`."""
    if "--resume=" in arguments:
        raise ConfigError("resume: no folder is given")
    split = [part.split("=", 1) if part.startswith("--resume=") else [part] for part in arguments]
    arguments = list(itertools.chain.from_iterable(split))
    at = arguments.index("--resume") if "--resume" in arguments[:-1] else None
    if at is None or arguments[at + 1].startswith("-"):
        return arguments
    return [*arguments[: at + 1], "--workdir", *arguments[at + 1 :]]


def folder_of(arguments: Sequence[str], default: Path) -> Path:
    """The folder that a command line names by `--workdir`."""
    return default if (named := value_of(arguments, "--workdir")) is None else Path(named)


def value_of(arguments: Sequence[str], flag: str) -> str | None:
    """The last value that a command line gives a flag, in either form, `--flag VALUE` or `--flag=VALUE`."""
    found = None
    for word, following in itertools.pairwise([*arguments, None]):
        name, equals, text = (word or "").partition("=")
        if name == flag:
            found = text if equals else following
    return found


def _fold(arguments: Sequence[str], default: Any) -> list[str]:
    """The command line with one flag for each variant, which has the values of all flags that go below it.

    tyro cannot know them: which fields there are depends on the variant. `default` is the config to start from.

    Raises:
      ConfigError: such a flag has no value, or a dotted path names no field.
    """
    rest, words = [], list(arguments)
    texts: dict[str, dict[str, str]] = {}
    while words:
        word = words.pop(0)
        flag, equals, text = word.partition("=")
        path = flag[2:].replace("-", "_") if flag.startswith("--") else ""
        starts = itertools.accumulate(path.split("."), "{}.{}".format)
        root = next((start for start in starts if _holds_variants(_declared(default, start))), None)
        if root is None or (root == path and item_of(_declared(default, root))):
            if "." in path and _declared(default, path.replace(".no_", ".")) is None:
                replace(default, {path: None})  # refuses it, with the nearest name
            rest.append(word)
            continue
        if not equals and (not words or words[0].startswith("--")):
            raise ConfigError(f"{path}: no value is given")
        texts.setdefault(root, {})[path] = text if equals else words.pop(0)
    return rest + [word for root, own in texts.items() for word in (f"--{root}", to_text(_chosen(default, root, own)))]


def _chosen(default: Any, root: str, texts: Mapping[str, str]) -> Any:
    """The default's value at the path `root` with changes by path in text form; what is above is made first."""
    names, declared = root.split("."), _declared(default, root)
    held = functools.reduce(getattr, names, default)
    for name in reversed(names):  # alone: the rest of the config may not fit it yet
        held = dataclasses.make_dataclass("Flags", [(name, declared)])(held)
        declared = type(held)
    for depth in sorted({path.count(".") for path in texts}):
        own = {path: text for path, text in texts.items() if path.count(".") == depth}
        held = replace(held, {path: value_at(held, path, text) for path, text in own.items()})
    return functools.reduce(getattr, names, held)


def value_at(config: Any, path: str, text: str) -> Any:
    """The value of the field that a dotted path names, from what is written on a command line.

    Raises:
      ConfigError: there is no such field, or it takes no such value.
    """
    if (declared := _declared(config, path)) is None:
        replace(config, {path: None})  # refuses it, with the nearest name
    return field_from_text(text, declared, path)


def _declared(config: Any, path: str) -> Any:
    """The type of the field that a dotted path names; None: there is none."""
    head, _, rest = path.partition(".")
    if not dataclasses.is_dataclass(config) or head not in {f.name for f in dataclasses.fields(config)}:
        return None
    return _declared(getattr(config, head), rest) if rest else hints(type(config))[head]


def _holds_variants(declared: Any) -> bool:
    return variant_of(declared) is not None or item_of(declared) is not None


def _one_line(box: str) -> str:
    """The message in the box that tyro draws, without its title, its frame (of spaces and dashes where the output has
    no other characters) and the hint at --help."""
    lines = [line.strip("│ ").strip() for line in box.splitlines()[1:]]
    text = " ".join("" if set(line) <= set("─-╰╯") else line for line in lines)
    return text.partition("For full helptext")[0].partition("Argument helptext")[0].strip()


def check_rate(command: Any) -> None:
    """Raise `ConfigError` where a command has a learning rate of its own beside those that it tries."""
    rate = command.optimizer.learning_rate
    if command.preset is not None and command.learning_rates and rate != command.preset.optimizer.learning_rate:
        raise ConfigError(
            f"optimizer.learning_rate: all of --learning-rates are tried, and {rate:g} would not be used; give it there"
        )


def main(run: Callable[[], None]) -> None:
    """Call `run`; errors are one line. Exit codes: 2 for a wrong choice, 74 for a full disk, 75 for an interruption."""
    main_thread = threading.current_thread() is threading.main_thread()  # which alone may say what a signal does
    # As Ctrl-C, where no run saves its state first.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler) if main_thread else None
    try:
        try:
            run()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # what read the output has ended, such as head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (ConfigError, CheckpointError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except WriteError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(EXIT_UNWRITABLE)
    except Interrupted as stop:
        print(stop, file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    except KeyboardInterrupt:
        print("interrupted; what was saved stays, and the same command with --resume continues a run", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    finally:
        if main_thread:
            signal.signal(signal.SIGTERM, before)


def extend(config: Any, cls: type[T], **more: Any) -> T:
    """A config as a command, which has further fields."""
    return cls(**{f.name: getattr(config, f.name) for f in dataclasses.fields(config)}, **more)


def fields_of(config: Any, cls: type[T]) -> T:
    """The part of a config that belongs to one of its base classes."""
    return cls(**{f.name: getattr(config, f.name) for f in dataclasses.fields(cls)})  # pyright: ignore[reportArgumentType]
