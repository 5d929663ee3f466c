"""Train, evaluate, log and checkpoint all replicas of a config in one folder."""

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from transformer.config.objectives import Sums
from transformer.config.run import Replica, RunConfig
from transformer.data.dataset import Dataset, check_batches, stack_batches
from transformer.training import checkpoint
from transformer.training.checkpoint import CheckpointError
from transformer.training.disk import writing
from transformer.training.program import Program, make_program
from transformer.training.progress import Progress
from transformer.training.signals import Interrupted, StopRequest
from transformer.training.step import Metrics, TrainState
from transformer.training.workdir import WhenNotEmpty, definitions, identity, prepared

Observer = Callable[[Any], Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class Outcome:
    """What became of the replicas; arrays have a leading axis R."""

    params: Any
    validation_loss: np.ndarray
    """(R,) nats per token over the whole validation split; NaN where the replica diverged."""
    loss_by_position: np.ndarray
    """(R, L) the same at each position of a block."""
    accuracy: np.ndarray
    """(R,) share of the labels of the validation split that are the most likely one."""
    exact_match: np.ndarray
    """(R,) share of its sequences all of whose labels are: what greedy decoding gets right."""
    tokens_per_second: float
    """Training throughput of all replicas together, from the second dispatch on."""
    diverged_at: np.ndarray
    """(R,) the step whose loss or gradient was not finite; -1 for none."""
    seconds: float
    """Wall time of training and evaluation, all resumed parts together, compilation included."""
    steps: int


def train(
    config: RunConfig,
    replicas: Sequence[Replica],
    data: Dataset,
    workdir: Path,
    *,
    when_not_empty: WhenNotEmpty = "refuse",
    title: str = "",
    observe: Observer | None = None,
    strict: bool = False,
) -> Outcome:
    """Run all replicas to the end, going on from the newest checkpoint where asked to.

    The folder gets config.json, environment.json, metrics.jsonl (a line per replica at the end of
    every dispatch) and checkpoints/. The same config, replicas, machine and library versions give
    the same numbers bit for bit, however often the run was killed in between.

    `observe` may measure more at every evaluation: it is called with the parameters of all replicas
    (leading axis R) and answers with arrays (R,) by name, which go to metrics.jsonl beside the seconds
    the run has taken.

    A damaged checkpoint is named in a warning and the one before it is taken, or with `strict` it is an error.

    Raises:
      ConfigError: the folder is not empty, holds another run, or is in use; the data does not fit the config.
      CheckpointError: no checkpoint of those there are can be used.
      WriteError: the disk is full or broken; the last checkpoint is whole.
      Interrupted: a signal asked to stop; the state is saved.
    """
    config = data.complete(config)
    with ExitStack() as stack:
        stop = stack.enter_context(StopRequest())
        wanted = identity(config, replicas, data)
        stack.enter_context(prepared(workdir, wanted, when_not_empty, definitions(data)))
        run = _Run(config, replicas, data, workdir, make_program(config, replicas), observe, strict, stop)
        run.progress = stack.enter_context(Progress(title or workdir.name, config.steps))
        return run.to_the_end()


@dataclass
class _Run:
    """A run under way: the state on the devices and what is still to be written of it."""

    config: RunConfig
    replicas: Sequence[Replica]
    data: Dataset
    workdir: Path
    program: Program
    observe: Observer | None = None
    strict: bool = False
    stop: StopRequest = field(default_factory=StopRequest)
    progress: Any = None
    seconds_before: float = 0.0
    started: float = field(default_factory=time.monotonic)
    unread: tuple[int, Metrics, int] | None = None

    def __post_init__(self):
        by_seed = {r.seed: self.data.train_batches(self.config, r.seed) for r in self.replicas}
        self.batches = [by_seed[r.seed] for r in self.replicas]
        self.validation = self.data.validation_batches(self.config, self.program.data_devices)
        self.limits = self.config.objective.limits(self.config.model)
        check_batches(
            {name: array[None] for name, array in self.validation.items()}, self.limits, 0, "validation batch"
        )

    def to_the_end(self) -> Outcome:
        state, done = self.restore_or_init()
        path = self.workdir / "metrics.jsonl"
        self.metrics = path.open("a", encoding="utf-8")
        self.learning_rates = np.asarray(self.program.learning_rates())
        with writing(path), self.metrics:
            self.progress.update(done)
            for step, end in self.chunks(done):
                batches = stack_batches(self.batches, step, end - step)
                check_batches(batches, self.limits, step)
                state, metrics = self.program.train(state, batches)
                self.read_metrics()
                self.unread = (step, metrics, self.config.objective.labels(batches).size)
                if is_multiple(end, self.config.evaluate_every) and end < self.config.steps:
                    self.evaluate(state, end)
                due, stop = is_multiple(end, self.config.checkpoint_every), self.stop.requested
                if due or stop or end == self.config.steps:
                    self.save(state, end)
                if stop and end < self.config.steps:
                    raise Interrupted(f"step {end} is saved in {self.workdir}; the same command with --resume goes on")
            sums = self.evaluate(state, self.config.steps)
        loss = mean_loss(sums)
        diverged_at = np.asarray(state.diverged_at)
        loss[diverged_at >= 0] = np.nan
        return Outcome(
            params=state.evaluated,
            validation_loss=loss,
            loss_by_position=sums.loss / np.maximum(sums.weight, 1),
            accuracy=sums.correct / sums.weight.sum(-1),
            exact_match=sums.exact / sums.sequences,
            diverged_at=diverged_at,
            seconds=self.seconds(),
            tokens_per_second=self.progress.tokens_per_second,
            steps=self.config.steps,
        )

    def chunks(self, step: int) -> Iterator[tuple[int, int]]:
        """The dispatches from `step` on. Their ends depend on the config alone, never on where a run was cut."""
        c = self.config
        strides = [s for s in (c.steps_per_dispatch, c.evaluate_every, c.checkpoint_every) if s]
        while step < c.steps:
            end = min([c.steps, *((step // s + 1) * s for s in strides)])
            yield step, end
            step = end

    def restore_or_init(self) -> tuple[TrainState, int]:
        restored = checkpoint.restore(self.workdir / "checkpoints", self.program.abstract_state, strict=self.strict)
        metrics = self.workdir / "metrics.jsonl"
        if restored is None:
            metrics.unlink(missing_ok=True)
            return self.program.init(), 0
        state, notes = restored
        if not metrics.exists() or metrics.stat().st_size < notes["metrics_bytes"]:
            raise CheckpointError(f"{metrics} has lost lines that were written before the checkpoint; restore a copy")
        # Lines written after the checkpoint will be written again.
        os.truncate(metrics, notes["metrics_bytes"])
        self.seconds_before = notes["seconds"]
        return state, notes["data"]["position"]

    def save(self, state: TrainState, step: int) -> None:
        self.read_metrics()
        self.metrics.flush()
        os.fsync(self.metrics.fileno())
        notes = {
            "data": {"position": step, "fingerprint": self.data.fingerprint},
            "metrics_bytes": self.metrics.tell(),
            "seconds": self.seconds(),
        }
        checkpoint.save(self.workdir / "checkpoints", step, state, notes)

    def seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.started

    def evaluate(self, state: TrainState, step: int) -> Sums:
        """Sums over the validation split, (R, …), and a line of them."""
        self.read_metrics()
        params = state.evaluated
        sums = jax.device_get(self.program.evaluate(params, self.validation))
        values = {
            "validation_loss": mean_loss(sums),
            "validation_accuracy": sums.correct / sums.weight.sum(-1),
            "validation_exact_match": sums.exact / sums.sequences,
        }
        if self.observe is not None:
            values |= {"seconds": np.full(len(self.replicas), self.seconds()), **self.observe(params)}
        lines = [
            {"step": step, "replica": i} | {name: _finite(value[i]) for name, value in values.items()}
            for i in range(len(self.replicas))
        ]
        self.log(lines)
        return sums

    def read_metrics(self) -> None:
        """Log the dispatch before the last: its numbers are there already, so that nothing waits."""
        if self.unread is None:
            return
        (first, metrics, tokens), self.unread = self.unread, None
        loss, norm = (np.asarray(metrics[name], np.float64) for name in ("loss", "grad_norm"))
        skipped = np.asarray(metrics["skipped"]).sum(1)
        end = first + loss.shape[1]
        lines = [
            {
                "step": end,
                "replica": i,
                "loss": _finite(loss[i].mean()),
                "grad_norm": _finite(norm[i].mean()),
                "learning_rate": float(self.learning_rates[i, end - 1]),
                **({"skipped": int(skipped[i])} if skipped[i] else {}),
            }
            for i in range(len(self.replicas))
        ]
        self.log(lines)
        self.progress.update(end, loss[:, -1], tokens)

    def log(self, lines: list[dict[str, Any]]) -> None:
        self.metrics.writelines(json.dumps(line) + "\n" for line in lines)
        self.metrics.flush()


def mean_loss(sums: Sums) -> np.ndarray:
    """(R,) nats per label."""
    return (sums.loss.sum(-1) / sums.weight.sum(-1)).astype(np.float64)


def is_multiple(step: int, of: int | None) -> bool:
    return of is not None and step % of == 0


def _finite(value: float) -> float | None:
    """JSON has no NaN."""
    return float(value) if math.isfinite(value) else None
