"""The command line that all ablation studies share."""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import tyro

from experiments import cli, dry_run
from experiments.sections import STUDY, Sections
from transformer.core import runtime
from transformer.core.errors import ConfigError, nearest
from transformer.core.folders import check_own, clear, file_names, locked
from transformer.data.dataset import Dataset, load_data
from transformer.runs.config import RunConfig
from transformer.runs.mesh import AUTOMATIC, MeshConfig
from transformer.runs.presets import PRESETS
from transformer.study import designs
from transformer.study.arms import prepared
from transformer.study.designs import Design
from transformer.study.engines import LOCAL, Engine
from transformer.study.plan import PLAN
from transformer.study.probes import Probe
from transformer.study.report import Report
from transformer.study.running import STUDY_FILES, StudyError
from transformer.study.study import CONFIRMATION, Study, StudyOptions
from transformer.training.trackers import Tracker, check_trackers


@dataclass(frozen=True, kw_only=True)
class StudyCommand(StudyOptions, RunConfig):
    sections: ClassVar[Sections] = STUDY
    """What `--help` shows."""
    workdir: Path = Path("results/study")
    """Folder of the study; each arm has a cell in it."""
    seed: int = 0
    """First seed."""
    seeds: int = 6
    """Number of seeds per learning rate; all runs of an arm are one compiled program."""
    learning_rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2, 3e-2)
    """Peak learning rates that every arm tries."""
    arms: tuple[str, ...] = ()
    """Names of the arms to run, of which the first is the baseline; empty: all."""
    design: Literal["arms", "add_one_in", "leave_one_out", "factorial"] = "arms"
    """The question: each arm against the baseline; or, with every arm but the baseline as a choice that is made or not,
    each alone, all but each, or every combination."""
    confirm: bool = False
    """Ask once more with fresh seeds and every arm at the learning rate that was its best, in a folder beside workdir
    whose name ends with _fresh."""
    runs: Path | None = None
    """Folder of finished runs, which studies may share; None: in workdir."""
    dry_run: bool = False
    """Print the arms, their sizes, operations and expected time, and train nothing."""
    resume: bool = False
    """Continue the study in workdir where there is one; finished arms are read."""
    overwrite: bool = False
    """Delete the study in workdir."""
    mesh: MeshConfig = AUTOMATIC
    """How the devices of a process share an arm."""
    log: tuple[Tracker, ...] = ()
    """Where the training is shown, as a group of runs: tensorboard, wandb, trackio."""
    engine: Engine = LOCAL
    """Where arms are computed: local, dask, dask(workers=4), or a running scheduler, tls://host:port."""
    preset: tyro.conf.Fixed[tyro.conf.Suppress[Any]] = None
    """The command before the flags were applied."""

    def __post_init__(self):
        super().__post_init__()
        if self.resume and self.overwrite:
            raise ConfigError("resume: give either --resume or --overwrite")


def budgets(name: str, steps: int = 300, **laptop: Any) -> dict[str, StudyCommand]:
    """The presets of a study: minutes on two cores, or hours on a GPU."""
    workdir = Path("results") / name
    small, large = PRESETS["tiny"], PRESETS["nanogpt-gpu"]
    return {
        "laptop": cli.extend(small, StudyCommand, workdir=workdir).replace(steps=steps, **laptop),
        "full": cli.extend(large, StudyCommand, workdir=workdir, learning_rates=(3e-4, 1e-3, 3e-3), seeds=8),
    }


def run_study(
    name: str,
    arms: Mapping[str, Mapping[str, Any]],
    presets: Mapping[str, StudyCommand],
    description: str | None,
    probes: tuple[Probe, ...] = (),
) -> None:
    """Parse the command line, run the study, show and write its report."""
    command = cli.parse(StudyCommand, presets, description=description)
    run_parsed(name, arms, command, probes)


def run_parsed(
    name: str, arms: Mapping[str, Mapping[str, Any]] | Design, command: StudyCommand, probes: tuple[Probe, ...] = ()
) -> Report | None:
    """Run the study of a command that is parsed already; returns its report, or None where it only says what it is."""
    cli.check_rate(command)
    design = arms if isinstance(arms, Design) else _design(arms, command)
    if isinstance(arms, Design) and (command.arms or command.design != "arms"):
        raise ConfigError(f"{name}: it has a design of its own; leave out --arms and --design")
    study = Study(
        name,
        cli.fields_of(command, RunConfig),
        design.arms,
        baseline=design.baseline,
        contrasts=design.contrasts,
        first_seed=command.seed,
        probes=probes,
        **vars(cli.fields_of(command, StudyOptions)),
    )
    if command.dry_run:
        runtime.start()
        print(dry_run.of_study(study, load_data(study.base.data), command.confirm))
        return None
    fresh = command.workdir.with_name(f"{command.workdir.name}{CONFIRMATION}")
    folders = (command.workdir, fresh) if command.confirm else (command.workdir,)
    for folder in folders:
        check_folder(folder, command)
    runtime.start()
    data = load_data(study.base.data)
    if command.overwrite:
        check_trackers(command.log)  # or it refuses, before anything is deleted
        prepared(study, data)
        overwrite(folders)
    report = _run(study, data, command.workdir, command)
    if command.confirm:
        _run(study.confirmation(report), data, fresh, command)
    return report


def _run(study: Study, data: Dataset, workdir: Path, command: StudyCommand) -> Report:
    """Run and show a study; the process ends where an arm failed."""
    try:
        how: dict[str, Any] = {"engine": command.engine, "mesh": command.mesh, "runs": command.runs}
        report = study.run(workdir, data=data, log=command.log, **how)
    except StudyError as error:
        sys.exit(f"error: {error}")
    report.show()
    print(f"report.html, .md, .json, .csv and .tex and the pictures are in {workdir}")
    if report.failed:
        sys.exit(1)
    return report


def _design(all_arms: Mapping[str, Mapping[str, Any]], command: StudyCommand) -> Design:
    """The design of a command; its factors are all arms but the first, whose changes all arms then have."""
    if unknown := [arm for arm in command.arms if arm not in all_arms]:
        raise ConfigError(f"arms: no arm {unknown[0]!r}{nearest(unknown[0], all_arms)}")
    arms = {arm: all_arms[arm] for arm in command.arms or all_arms}
    first, *others = arms
    if command.design == "arms":
        return Design({name: dict(changes) for name, changes in arms.items()}, first)
    made: Design = getattr(designs, command.design)({name: arms[name] for name in others})
    return dataclasses.replace(made, arms={name: {**arms[first], **changes} for name, changes in made.arms.items()})


def check_folder(folder: Path, command: StudyCommand) -> None:
    """Refuse a folder that is not empty unless the command says what to do with it."""
    if not file_names(folder) or command.resume:
        return
    if not command.overwrite:
        raise ConfigError(f"workdir: {folder} is not empty; --resume continues it, --overwrite starts again")
    check_own(folder, PLAN, STUDY_FILES)


def overwrite(folders: Sequence[Path]) -> None:
    """Delete the studies in folders, where there are some and no other process holds one."""
    there = [folder for folder in folders if file_names(folder)]
    with ExitStack() as stack:
        for folder in there:
            stack.enter_context(locked(folder))
        for folder in there:
            clear(folder, PLAN, STUDY_FILES)
