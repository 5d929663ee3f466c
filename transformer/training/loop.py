"""Train, evaluate, log and checkpoint all replicas of a config in one folder."""

import sys
import time
import warnings
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from transformer.core.checks import check_kind
from transformer.core.errors import ConfigError
from transformer.core.modules import Params
from transformer.data.dataset import Dataset, check_batches, check_data, counted, divisible, load_data, stack_batches
from transformer.objectives.objective import Sums
from transformer.runs.config import Replica, RunConfig, grid, unfinished_warm_up, unused_vocabulary
from transformer.runs.mesh import ALONE, AUTOMATIC, HostsConfig, MeshConfig
from transformer.training import checkpoint, processes
from transformer.training.checkpoint import Notes
from transformer.training.log import LOGGED, RunLog, appended, metrics_path, rewind
from transformer.training.metrics import read_metrics
from transformer.training.outcome import Outcome, scores
from transformer.training.processes import Watchdog
from transformer.training.program import SHARED_BATCHES, Program, make_program
from transformer.training.progress import Progress
from transformer.training.signals import Interrupted, StopRequest
from transformer.training.step import TrainState
from transformer.training.trackers import RunInfo, Tracker, Tracking, check_trackers, replica_names
from transformer.training.workdir import WhenNotEmpty, definitions, held_for_run, identity

Observer = Callable[[Any], Mapping[str, np.ndarray]]
OnSteps = Callable[[int, TrainState], None]
SECONDS_UNSAVED = 600.0
"""How long a run goes on without a checkpoint where its config does not say how many steps."""


def check_initial(initial: Any, where: str) -> None:
    """Raise `ConfigError` where `initial` is not a tree of parameters, but a run, for example."""
    if not isinstance(initial, Mapping | None):
        given = type(initial).__name__
        raise ConfigError(f"{where}: initial is a {given}, not parameters; those of a run are run.params()")


def train(
    config: RunConfig,
    replicas: Sequence[Replica] = grid(1),
    data: Dataset | None = None,
    workdir: str | Path | None = None,
    *,
    when_not_empty: WhenNotEmpty = "refuse",
    title: str = "",
    observe: Observer | None = None,
    strict: bool = False,
    initial: Params | None = None,
    mesh: MeshConfig = AUTOMATIC,
    hosts: HostsConfig = ALONE,
    on_steps: OnSteps | None = None,
    log: Sequence[Tracker] = (),
) -> Outcome:
    """Train all replicas to the end, from the newest checkpoint where the run is resumed.

    The folder gets config.json, environment.json, metrics.jsonl (a line per replica at the end of
    every dispatch), checkpoints/ and the tokenizers. The same config, replicas, machine and library versions give
    the same numbers bit for bit, however often the run was killed in between.

    Args:
      config: the run; sizes that it leaves open are those of the data, and `config.data` left at its default becomes
        what the data was loaded from.
      replicas: seeds and numbers of the runs.
      data: from `load_data`, or a `Dataset` of your own; None: what `config.data` describes.
      workdir: the folder of the run, made where there is none; None: a new one in `results`, named by the time.
      when_not_empty: "refuse" a folder that holds a run, "resume" it, or "overwrite" it.
      title: name in the progress bar; empty: that of the folder.
      observe: measures more at every evaluation: called with the parameters of all replicas (leading axis
        R), it returns arrays (R,) by name, which go to metrics.jsonl with the seconds the run has taken.
      strict: whether a damaged checkpoint is an error; otherwise it is named in a warning, and the one
        before it is used.
      initial: the parameters of one model from which all replicas begin, such as `params()` of a run or those of a
        published model; parameters it lacks have their usual initial values.
      mesh: how devices share the work.
      hosts: the processes of the run, each of which makes this call before it makes any array of JAX. Where one of them
        is lost, the others end with code 76.
      on_steps: called after every dispatch with the steps done and the state of all replicas, for whatever is more than
        numbers. The next dispatch overwrites the state: keep copies (`jax.device_get`). What it raises ends the run.
      log: where the rows of metrics.jsonl are shown too, such as `TensorBoard()`. One that fails is named on
        standard error and left out.

    Raises:
      ConfigError: the folder is not empty, holds another run, or is in use; the data does not fit the config; the
        package of a tracker is missing; other processes are not reached.
      CheckpointError: there are checkpoints, but none can be used.
      WriteError: the disk is full or broken; the last checkpoint is undamaged.
      Interrupted: a signal asked to stop; the state is saved.
    """
    _check_arguments(config, replicas, mesh, {"observe": observe, "on_steps": on_steps})
    check_initial(initial, "train")
    check_trackers(log)
    if workdir is None and hosts.several:
        raise ConfigError("train: workdir is missing, the folder that all processes share")
    data = load_data(config.data) if data is None else data
    check_data(data, "train")
    processes.connect(hosts)
    config, workdir = data.complete(config), Path(workdir or time.strftime("results/%Y-%m-%d_%H-%M-%S"))
    own = identity(config, replicas, data, initial)
    processes.check_same(own.sha256)
    with ExitStack() as stack:
        stop = stack.enter_context(StopRequest())
        program = make_program(config, replicas, mesh, initial)  # before the folder is made, in case it is refused
        processes.in_first(lambda: stack.enter_context(held_for_run(workdir, own, when_not_empty, definitions(data))))
        run = _Run(config, replicas, data, workdir, program, observe, strict, stop, on_steps)
        known = data.tokenizers["tokenizer"].vocab_size if "tokenizer" in data.tokenizers else None
        for told in (unfinished_warm_up(config, replicas), unused_vocabulary(config, known)):
            if told and processes.is_writer():
                print(f"{workdir}: {told}", file=sys.stderr)
        watchdog = stack.enter_context(processes.watched(hosts.patience))
        progress = Progress(title or workdir.name, config.steps, quiet=not processes.is_writer())
        return run.to_the_end(watchdog, stack.enter_context(progress), log if processes.is_writer() else ())


def _check_arguments(config: Any, replicas: Any, mesh: Any, functions: Mapping[str, Any]) -> None:
    """Raise `ConfigError` where an argument is of another kind."""
    check_kind(config, RunConfig, "train")
    if not (isinstance(replicas, Sequence) and replicas and all(isinstance(each, Replica) for each in replicas)):
        raise ConfigError(f"train: {replicas!r} are no replicas; grid(4) makes four, of the seeds 0 to 3")
    check_kind(mesh, MeshConfig, "train: mesh")
    for name, called in functions.items():
        if not (called is None or callable(called)):
            raise ConfigError(f"train: {name} is a {type(called).__name__}, and a function is needed")


@dataclass
class _Run:
    """A run in progress, and what it works with."""

    config: RunConfig
    replicas: Sequence[Replica]
    data: Dataset
    workdir: Path
    program: Program
    observe: Observer | None
    strict: bool
    stop: StopRequest
    on_steps: OnSteps | None
    seconds_before: float = 0.0
    started: float = field(default_factory=time.monotonic)
    saved: float = field(default_factory=time.monotonic)
    damaged: Sequence[int] = ()
    """Steps whose checkpoints cannot be used, until there is a newer one that can."""

    def __post_init__(self):
        by_seed = {r.seed: self.data.train_batches(self.config, r.seed) for r in self.replicas}
        self.batches = [by_seed[r.seed] for r in self.replicas]
        in_order = self.config.model.memory_length is not None
        whole = counted(self.data.validation_batches(self.config), self.config.objective)
        validation = divisible(whole, self.program.data_devices, in_order=in_order)
        self.limits = self.config.objective.limits(self.config.model)
        check_batches({name: array[None] for name, array in validation.items()}, self.limits, 0, "validation batch")
        self.validation = self.program.put(validation, SHARED_BATCHES)

    def to_the_end(self, watchdog: Watchdog, progress: Progress, trackers: Sequence[Tracker]) -> Outcome:
        state, done, was_last = self.restore_or_init()
        names = replica_names(self.replicas, self.config.optimizer)
        info, path = RunInfo(self.workdir, self.config.to_json(), names, done), metrics_path(self.workdir)
        with appended(path) as file, Tracking(trackers, info) as tracking:
            self.watchdog = watchdog
            self.log = RunLog(file, tracking, progress, np.asarray(self.program.learning_rates()))
            progress.update(done)
            if processes.any_host(self.owes_evaluation(done, was_last)):
                self.evaluate(state, done)
            for step, end in self.chunks(done):
                state = self.dispatch(state, step, end)
            outcome = self.outcome(state)
            self.stop_if_asked(self.config.steps)
            return outcome

    def owes_evaluation(self, done: int, was_last: bool) -> bool:
        """Whether the step that a run goes on from has still to be evaluated.

        The evaluation of the last step comes after its checkpoint, and is missing where a run is made longer.
        """
        if not processes.is_writer() or not 0 < done < self.config.steps:
            return False
        if not (was_last or is_multiple(done, self.config.evaluate_every)):
            return False
        return not any(line["step"] == done and "validation_loss" in line for line in read_metrics(self.workdir))

    def dispatch(self, state: TrainState, step: int, end: int) -> TrainState:
        """The state after the steps up to `end`, with what is due there done."""
        batches = stack_batches(self.batches, step, end - step)
        check_batches(batches, self.limits, step)
        state, metrics = self.program.train(state, self.program.put(batches))
        self.log.dispatched(step, metrics, self.config.objective.labels(batches).size)
        self.watchdog.beat()
        if self.on_steps is not None:
            self.on_steps(end, state)
        last = end == self.config.steps
        if is_multiple(end, self.config.evaluate_every) and not last:
            self.evaluate(state, end)
        due, stop = self.owes_checkpoint(end), processes.any_host(self.stop.requested)
        if due or stop or last:
            self.save(state, end)
        self.stop_if_asked(end)
        return state

    def stop_if_asked(self, saved: int) -> None:
        """Raise `Interrupted` where a signal has asked any process to stop; the step `saved` is on the disk."""
        if processes.any_host(self.stop.requested):
            stopped = Interrupted(f"step {saved} is saved in {self.workdir}; the same command with --resume continues")
            stopped.add_note("In Python: when_not_empty='resume'")
            raise stopped

    def owes_checkpoint(self, end: int) -> bool:
        """Whether the state after `end` steps is to be saved: by the config, or where that is open by the time."""
        if self.config.checkpoint_every is not None:
            return is_multiple(end, self.config.checkpoint_every)
        return processes.any_host(time.monotonic() - self.saved > SECONDS_UNSAVED)

    def outcome(self, state: TrainState) -> Outcome:
        """The results of the state after the last step, which the trackers are told too."""
        sums, by_batch = self.evaluate(state, self.config.steps)
        found, diverged_at = scores(sums), np.array(processes.fetch(state.diverged_at))
        for name in found:
            found[name] = np.where(diverged_at >= 0, np.nan, found[name])
        self.log.finish(found["loss"], diverged_at)
        return Outcome(
            workdir=self.workdir,
            config=self.config,
            replicas=self.replicas,
            all_params=state.evaluated,
            validation_loss=found["loss"],
            data=self.data,
            loss_by_position=sums.loss / np.maximum(sums.weight, 1),
            by_batch=by_batch,
            accuracy=found["accuracy"],
            exact_match=found["exact_match"],
            diverged_at=diverged_at,
            seconds=self.seconds(),
            tokens_per_second=self.log.progress.tokens_per_second,
        )

    def chunks(self, step: int) -> Iterator[tuple[int, int]]:
        """The dispatches from `step` on. Their ends depend on the config alone, not on interruptions."""
        c = self.config
        strides = [s for s in (c.steps_per_dispatch, c.evaluate_every, c.checkpoint_every) if s]
        while step < c.steps:
            end = min([c.steps, *((step // s + 1) * s for s in strides)])
            yield step, end
            step = end

    def restore_or_init(self) -> tuple[TrainState, int, bool]:
        """The state to go on from, the steps done, and whether the run ended there before it was given more."""
        folder = self.workdir / "checkpoints"
        checkpoint.sweep(folder)
        restored = checkpoint.restore(folder, self.program.abstract_state, strict=self.strict)
        if restored is None:
            rewind(self.workdir, 0)
            return self.program.init(), 0, False
        state, notes = restored
        here = dict(self.program.mesh.shape)
        if notes.mesh != here:
            warnings.warn(
                f"{self.workdir} continues with {_text(here)} devices after {_text(notes.mesh)}: "
                "the same up to rounding, not bit for bit",
                stacklevel=2,
            )
        rewind(self.workdir, notes.metrics_bytes)
        self.seconds_before = notes.seconds
        self.damaged = [step for step in checkpoint.steps(folder) if step > notes.position]
        return state, notes.position, notes.last

    def save(self, state: TrainState, step: int) -> None:
        mesh = dict(self.program.mesh.shape)
        last = step == self.config.steps
        notes = Notes(step, self.data.fingerprint, self.log.on_disk(), self.seconds(), mesh, last)
        checkpoint.save(self.workdir / "checkpoints", step, state, notes, self.damaged)
        self.saved, self.damaged = time.monotonic(), ()

    def seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.started

    def evaluate(self, state: TrainState, step: int) -> tuple[Sums, Sums]:
        """Sums over the validation split, (R, …), which are also logged, and over each of its batches, (R, N)."""
        self.log.catch_up()
        params = state.evaluated
        sums, by_batch = processes.fetch(self.program.evaluate(params, self.validation))
        self.watchdog.beat()
        if not sums.weight.any(-1).all():
            raise ConfigError(f"validation: no label counts for {self.config.objective}; hold out a larger part")
        lost = np.array(processes.fetch(state.diverged_at)) >= 0
        values = {f"validation_{name}": np.where(lost, np.nan, value) for name, value in scores(sums).items()}
        if self.observe is not None:
            observed = checked(self.observe(params), {*values, *LOGGED}, len(self.replicas))
            values |= {"seconds": np.full(len(self.replicas), self.seconds()), **observed}
        self.log.evaluated(step, values)
        return sums, by_batch


def checked(observed: Mapping[str, np.ndarray], taken: Container[str], replicas: int) -> Mapping[str, np.ndarray]:
    """What an observer returned; raises `ConfigError` where it is not a number for each replica, by new names."""
    if not isinstance(observed, Mapping):
        raise ConfigError(f"observe: it returned {type(observed).__name__}, not arrays (R,) by name")
    for name, value in observed.items():
        if name in taken:
            raise ConfigError(f"observe: {name} is measured already; give it another name")
        if np.shape(value) != (replicas,):
            runs = f"a number for each of {replicas} replicas"
            raise ConfigError(f"observe: {name} has the shape {np.shape(value)} and is not {runs}")
    return observed


def is_multiple(step: int, of: int | None) -> bool:
    return of is not None and step % of == 0


def _text(shape: Mapping[str, int]) -> str:
    return " × ".join(map(str, shape.values()))
