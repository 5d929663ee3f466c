"""The folder of a run: which run it holds, which process writes to it, and what it ran on."""

import contextlib
import functools
import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from transformer.core.checks import check_type
from transformer.core.errors import ConfigError
from transformer.core.files import Damaged, read_json, read_value, write_durably, write_sealed
from transformer.core.folders import check_own, clear, file_names, locked
from transformer.core.json import fingerprint, to_json
from transformer.core.modules import Params
from transformer.core.sources import sources
from transformer.data.dataset import Dataset, fingerprint_arrays
from transformer.data.order import ORDER
from transformer.runs.config import Replica, RunConfig
from transformer.training import checkpoint
from transformer.training.environment import environment, numeric

WhenNotEmpty = Literal["refuse", "resume", "overwrite"]
"""What to do with a folder that holds an earlier run."""
CONFIG = "config.json"
COMMAND = "command.json"
"""What a command that trains was told besides its config."""
RUN_FILES = (
    r"(config|command)\.json",
    r"environment\.json",
    r"metrics\.jsonl",
    r"checkpoints(/\.?[0-9]{8,}(\.partial)?(/.*)?)?",
    r"\w*tokenizer\.json",
    r"result\.json",
    r"evaluation\.json",
    r"sample\.(txt|png)",
    r"\w+\.png",
    r"tracked\.json",
    r"tensorboard(/[^/]+)?/events\.out\.tfevents\.[0-9a-f.]+",
    r"wandb(/.*)?",
    r"model/(config\.json|model[-\w]*\.safetensors|model\.safetensors\.index\.json)",
)
"""What a run and the commands of experiments write into its folder, as regular expressions."""


@dataclass(frozen=True)
class Identity:
    """Everything that determines the numbers of a run."""

    run: dict[str, Any]
    """Its config, as JSON."""
    replicas: list[dict[str, Any]]
    data: str
    """Hash of the data."""
    sources: dict[str, str] = field(default_factory=dict)
    """Hashes of the sources of variants from outside the package, by class."""
    initial: str | None = None
    """Hash of the initial values, where they were given."""
    order: int | None = None
    """Version of the order of rows that a seed gives; runs of before there were versions have none."""

    @property
    def body(self) -> dict[str, Any]:
        """The fields that say something, as JSON."""
        stored = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in stored.items() if value not in ({}, None)}

    @functools.cached_property
    def sha256(self) -> str:
        """Hash of all of it."""
        return fingerprint(self.body)


@contextlib.contextmanager
def held_for_run(workdir: Path, wanted: Identity, when_not_empty: WhenNotEmpty, files: Mapping[str, str]):
    """Make the folder that of the run `wanted` and hold it, or refuse; `files` are texts it needs to be resumed.

    A run may be resumed with more steps than it was begun with, and with no other change; with so many that nothing is
    left of a mean of its last steps.

    Raises:
      ConfigError: the folder is not empty and `when_not_empty` refuses that, holds another run, or is in use.
    """
    # A folder that is refused is left unchanged, without a lock in it.
    _check(workdir, wanted, when_not_empty, files)
    with locked(workdir):
        steps_before = _check(workdir, wanted, when_not_empty, files)
        if when_not_empty == "overwrite" and CONFIG in file_names(workdir):
            clear(workdir, CONFIG, RUN_FILES)
        for name, text in files.items():
            write_durably(workdir / name, text)
        write_sealed(workdir / CONFIG, wanted.body)
        write_environment(workdir)
        if steps_before is not None:
            after = wanted.run["steps"]
            print(f"{workdir}: from {steps_before} to {after} steps, from here on by their schedule", file=sys.stderr)
        yield


def write_environment(workdir: Path) -> None:
    """Write down what a run runs on, and warn where it ran on something else before, which may change numbers."""
    path, here = workdir / "environment.json", environment()
    try:
        before = read_json(path)
    except FileNotFoundError:
        before = here
    except Damaged as error:
        warnings.warn(f"{error}; it is written again", stacklevel=2)
        before = here
    old, new = numeric(before), numeric(here)
    if differing := differences(old, {name: new.get(name) for name in old}):
        warnings.warn(
            f"{workdir} continues with other {', '.join(differing)}: the same up to rounding, not bit for bit",
            stacklevel=2,
        )
    write_durably(path, json.dumps(here, indent=1, sort_keys=True))


def _check(workdir: Path, wanted: Identity, when_not_empty: WhenNotEmpty, files: Mapping[str, str]) -> int | None:
    """Refuse the folder, or return the number of steps a run had before it was given more."""
    check_type(when_not_empty, WhenNotEmpty, "when_not_empty")
    found = file_names(workdir)
    if found and when_not_empty == "refuse":
        refusal = ConfigError(f"workdir: {workdir} is not empty; --resume continues it, --overwrite starts again")
        refusal.add_note("In Python: when_not_empty='resume' or when_not_empty='overwrite'")
        raise refusal
    # A start that was killed leaves these files only.
    if CONFIG not in found and found - files.keys():
        raise ConfigError(f"workdir: {workdir} is not empty and holds no {CONFIG} of a run")
    if CONFIG not in found:
        return None
    if when_not_empty == "overwrite":
        check_own(workdir, CONFIG, RUN_FILES)
        return None
    stored = read_identity(workdir)
    differing = differences(stored.body, wanted.body)
    if differing == ["run.steps"] and stored.run["steps"] < wanted.run["steps"]:
        _check_average(workdir, stored.run["steps"], wanted.run)
        return stored.run["steps"]
    if differing:
        steps = f"; its steps, {stored.run['steps']}, may be raised, not lowered" * (differing == ["run.steps"])
        raised = stored.run["steps"] < wanted.run["steps"]  # which alone is no difference
        named = ", ".join(name for name in differing if not (raised and name == "run.steps"))
        raise ConfigError(f"workdir: {workdir} holds another run, which differs in {named}{steps}")
    return None


def _check_average(workdir: Path, steps_before: int, wanted: Mapping[str, Any]) -> None:
    """Refuse a longer run whose mean of the last steps would have steps before these in it."""
    last, done = wanted.get("average_last"), max(checkpoint.steps(workdir / "checkpoints"), default=0)
    if last is not None and max(steps_before - last, 0) < wanted["steps"] - last < done:
        raise ConfigError(
            f"steps: {workdir} has averaged steps up to {done}, some of which are not among the last {last} of "
            f"{wanted['steps']}; give at least {done + last}"
        )


def read_identity(workdir: Path) -> Identity:
    """What determines the numbers of the run in a folder.

    Raises:
      ConfigError: it holds no run.
      Damaged: its config.json is not what was written.
    """
    try:
        return read_value(Identity, workdir / CONFIG)
    except FileNotFoundError:
        hint = "" if workdir.is_dir() else "; there is no such folder"
        if (workdir / "study.json").exists():
            hint = "; it is that of a study, whose report read_study reads, and whose runs are in its cells"
        raise ConfigError(f"workdir: {workdir} holds no {CONFIG} of a run{hint}") from None
    except Damaged:
        if not _is_published(workdir / CONFIG):
            raise
        raise ConfigError(f"workdir: {workdir} holds a published model, which pretrained.load reads") from None


def _is_published(path: Path) -> bool:
    try:
        return "model_type" in read_json(path)
    except Damaged:
        return False


def identity(config: RunConfig, replicas: Sequence[Replica], data: Dataset, initial: Params | None = None) -> Identity:
    """Everything that determines the numbers of a run."""
    if initial is None:
        digest = None
    else:
        leaves = jax.tree.leaves_with_path(initial)
        digest = fingerprint_arrays({jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves})
    order = getattr(data, "order_version", ORDER)
    return Identity(config.to_json(), to_json(list(replicas)), data.fingerprint, sources(config), digest, order)


def definitions(data: Dataset) -> dict[str, str]:
    """The files of the tokenizers of the data, by name."""
    return {f"{name}.json": tokenizer.definition for name, tokenizer in data.tokenizers.items()}


def differences(stored: Any, wanted: Any, path: str = "") -> list[str]:
    """The paths at which two JSON values differ."""
    if isinstance(stored, dict) and isinstance(wanted, dict):
        names = sorted(stored.keys() | wanted.keys())
        return [d for n in names for d in differences(stored.get(n), wanted.get(n), f"{path}.{n}" if path else n)]
    return [] if stored == wanted else [path]
