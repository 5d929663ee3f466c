"""What commands that train one config share: the options, the training, and result.json."""

import contextlib
import dataclasses
import functools
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from experiments import cli
from experiments.command import way_on
from experiments.sections import RUN, Sections
from transformer.analysis.counts import parameter_count, step_flops
from transformer.core import runtime
from transformer.core.checks import hints
from transformer.core.errors import ConfigError
from transformer.core.files import read_sealed, write_durably, write_sealed
from transformer.core.folders import file_names
from transformer.core.json import from_json, to_json_as
from transformer.core.modules import Params
from transformer.data.dataset import Dataset, load_data, read_run_config, reference
from transformer.models.config import ModelConfig
from transformer.runs.config import Replica, RunConfig, grid
from transformer.runs.mesh import ALONE, AUTOMATIC, HostsConfig, MeshConfig
from transformer.training import processes
from transformer.training.loop import Observer, train
from transformer.training.outcome import Outcome
from transformer.training.trackers import Tracker
from transformer.training.workdir import COMMAND, CONFIG, read_identity


@dataclass(frozen=True, kw_only=True)
class RunOptions(RunConfig):
    """Options of every command that trains."""

    sections: ClassVar[Sections] = RUN
    """What `--help` shows."""
    workdir: Path = Path("results/run")
    """Folder of the run."""
    seed: int = 0
    """First seed."""
    replicas: int = 1
    """Number of seeds per learning rate; all runs are one compiled program."""
    learning_rates: tuple[float, ...] = ()
    """Peak learning rates, each with every seed; empty: optimizer.learning-rate."""
    resume: bool = False
    """Continue the run in workdir where there is one; `--resume FOLDER` names the folder and needs nothing else."""
    overwrite: bool = False
    """Delete the run in workdir."""
    log: tuple[Tracker, ...] = ()
    """Where the rows of metrics.jsonl are shown too: tensorboard, wandb, trackio."""
    dry_run: bool = False
    """Print the config, its size and its operations, and train nothing."""
    strict: bool = False
    """Stop at a damaged checkpoint instead of continuing from the one before it."""
    mesh: MeshConfig = AUTOMATIC
    """How the devices share the work."""
    hosts: HostsConfig = ALONE
    """The processes of the run."""
    preset: tyro.conf.Fixed[tyro.conf.Suppress[Any]] = None
    """The config before the flags were applied."""

    def __post_init__(self):
        super().__post_init__()
        if self.replicas < 1:
            raise ConfigError(f"replicas: {self.replicas} is not a positive number")
        if self.resume and self.overwrite:
            raise ConfigError("resume: give either --resume or --overwrite")

    @classmethod
    def continued(cls, workdir: Path, default: Self) -> Self:
        """The command that goes on with the run in a folder; where it holds none, the default.

        Raises:
          ConfigError: the run is of another kind, or its replicas are none that a command has.
        """
        if not (workdir / CONFIG).exists():
            return default
        stored = read_identity(workdir)
        config = read_run_config(stored.run)
        replicas = tuple(from_json(Replica, replica) for replica in stored.replicas)
        types = hints(cls)
        fit = (isinstance(getattr(config, name), types[name]) for name in ("model", "data"))
        if not (isinstance(default, type(config)) and all(fit)):
            kind = type(config).__name__
            how = f"which this command does not train; {way_on(workdir, kind)}"
            raise ConfigError(f"workdir: {workdir} holds a {kind}, {how}")
        rates = dict.fromkeys(each.learning_rate for each in replicas)
        seeds = dict.fromkeys(each.seed for each in replicas)
        own = {f.name: getattr(config, f.name) for f in dataclasses.fields(RunConfig)}
        with contextlib.suppress(FileNotFoundError):
            said = read_sealed(workdir / COMMAND)
            own |= {name: from_json(types[name], said[name], COMMAND) for name in cls.names() if name in said}
        command = dataclasses.replace(
            default, **own, workdir=workdir, seed=min(seeds), replicas=len(seeds),
            learning_rates=tuple(rate for rate in rates if rate is not None),
        )  # fmt: skip
        if command.grid() != replicas:
            raise ConfigError(f"workdir: the replicas in {workdir} are no grid; continue them by `transformer.train`")
        return command

    @classmethod
    def names(cls) -> list[str]:
        """What the folder of a run has to say besides the run: how it is shown, measured and sampled from."""
        others = {f.name for f in dataclasses.fields(RunOptions)} - {"log", "strict"}
        return [f.name for f in dataclasses.fields(cls) if f.name not in others]

    def remember(self) -> None:
        """Write these down in the folder."""
        types = hints(type(self))
        body = {name: to_json_as(types[name], getattr(self, name)) for name in self.names()}
        write_sealed(self.workdir / COMMAND, body)

    def grid(self) -> tuple[Replica, ...]:
        return grid(range(self.seed, self.seed + self.replicas), self.learning_rates)


def load(command: RunOptions) -> Dataset:
    """The data of a command; a run that is resumed keeps its tokenizer.

    Raises:
      ConfigError: they cannot be loaded, as where they are others than those of the run.
    """
    if not (command.resume and (command.workdir / CONFIG).exists()):
        return load_data(command.data)
    try:
        return load_data(command.data, command.workdir)
    except ConfigError as error:
        if read_run_config(read_identity(command.workdir).run).data == command.data:
            raise
        how = f"{error}; `--resume {command.workdir}` alone goes on"
        raise ConfigError(f"workdir: {command.workdir} holds a run of other data ({how})") from None


def train_command(
    command: RunOptions,
    kind: type[RunConfig],
    data: Dataset,
    observe: Observer | None = None,
    initial: Callable[[ModelConfig], Params] | None = None,
) -> Outcome:
    """Start JAX and train as the command says; `initial` makes initial parameters for the model."""
    cli.check_rate(command)
    config = data.complete(cli.fields_of(command, kind))
    if command.dry_run:
        from experiments import dry_run  # loaded late: it knows studies, and so their pictures

        print(dry_run.told(config, command.grid(), cli.fields_of(command.preset or command, kind), data))
        sys.exit()
    runtime.start()
    processes.connect(command.hosts)
    when_not_empty = "resume" if command.resume else "overwrite" if command.overwrite else "refuse"
    if command.resume and processes.is_writer() and not file_names(command.workdir):
        print(f"nothing to resume in {command.workdir}: a new run begins", file=sys.stderr)
    given = None if initial is None else initial(config.model)
    remember = functools.cache(command.remember)  # at the first dispatch: the folder was not refused
    trained = train(
        config,
        command.grid(),
        data,
        command.workdir,
        initial=given,
        when_not_empty=when_not_empty,
        observe=observe,
        strict=command.strict,
        mesh=command.mesh,
        hosts=command.hosts,
        log=command.log,
        on_steps=lambda *_: remember() if processes.is_writer() else None,
    )
    if processes.is_writer():
        remember()  # of a run that was finished there was no dispatch
    return trained


def summarize(trained: Outcome, metrics: Mapping[str, np.ndarray], more: Mapping[str, Any]) -> dict[str, Any]:
    """The content of result.json: metrics by name, (R,) each, as means over the healthy runs of the best rate."""
    from transformer.study.statistics import mean_interval  # loaded late: scipy

    healthy, best = trained.healthy, trained.at_best_rate
    losses = trained.validation_loss[best]
    name, by_replica = next(iter(metrics.items()))
    return {
        "validation_loss": float(losses.mean()) if len(losses) else None,
        "validation_loss_interval": list(mean_interval(losses)) if len(losses) > 1 else None,
        **{name: float(values[best].mean()) if len(losses) else None for name, values in metrics.items()},
        **more,
        "reference": reference(trained.config, trained.data),
        "parameters": parameter_count(trained.config.model),
        "flops_per_sequence": step_flops(trained.config, trained.data) / trained.config.batch_size,
        "steps": trained.config.steps,
        "seconds": trained.seconds,
        "tokens_per_second": trained.tokens_per_second if np.isfinite(trained.tokens_per_second) else None,
        "replicas": [
            {
                **dataclasses.asdict(replica.filled(trained.config.optimizer)),
                "validation_loss": float(trained.validation_loss[i]) if healthy[i] else None,
                "diverged_at": None if trained.diverged_at[i] < 0 else int(trained.diverged_at[i]),
                name: float(by_replica[i]) if healthy[i] else None,
            }
            for i, replica in enumerate(trained.replicas)
        ],
        "loss_by_position": trained.loss_by_position[best].mean(0).tolist() if len(losses) else None,
        "data": {"source": trained.data.source, "fingerprint": trained.data.fingerprint},
    }


def _measured_before(path: Path, steps: int) -> dict[str, Any]:
    """Time and speed of a run that was finished before, which only reading it again does not measure."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {name: found[name] for name in ("seconds", "tokens_per_second")} if found["steps"] == steps else {}
    except (OSError, ValueError, KeyError, TypeError):  # there is none
        return {}


def conclude(trained: Outcome, metrics: Mapping[str, np.ndarray], sample: str, **more: Any) -> None:
    """Write result.json and the picture, and show the result; exit code 1 where every replica diverged.

    Args:
      trained: the run.
      metrics: metrics of the task by name, (R,) each; the table has the first one.
      sample: what the model makes, in words.
      more: further entries of result.json.
    """
    from transformer.study.figures import plot_run  # loaded late: matplotlib takes longer than the first step

    if not processes.is_writer():
        return
    result, metric = summarize(trained, metrics, more), next(iter(metrics))
    path = trained.workdir / "result.json"
    if result["tokens_per_second"] is None:
        result |= _measured_before(path, trained.config.steps)
    write_durably(path, json.dumps(result, indent=1))
    write_durably(trained.workdir / "sample.txt", sample)
    plot_run(trained, result["reference"])
    title = f"{result['parameters']:,} parameters, {result['steps']} steps"
    table = Table("", "validation loss", metric.replace("_", " "), title=title)
    for r in result["replicas"]:
        row = [f"diverged at step {r['diverged_at']}", ""]
        if r["validation_loss"] is not None:
            row = [f"{r['validation_loss']:.4f}", f"{r[metric]:.4f}"]
        table.add_row(f"seed {r['seed']}, learning rate {r['learning_rate']:g}", *row)
    if result["validation_loss_interval"]:
        low, high = result["validation_loss_interval"]
        mean = f"{result['validation_loss']:.4f}  [{low:.4f}, {high:.4f}]"
        of = ", best learning rate" if len({r["learning_rate"] for r in result["replicas"]}) > 1 else ""
        table.add_row(f"mean, 95 % interval{of}", mean, f"{result[metric]:.4f}")
    if result["reference"]:
        name, loss = result["reference"]
        table.add_row(name, f"{loss:.4f}", "")
    Console().print(table)
    if not trained.healthy.any():
        print(f"error: every replica diverged; {trained.workdir} has the metrics", file=sys.stderr)
        sys.exit(1)
    print(sample)
    print(f"\n{result['seconds']:.0f} s; everything is in {trained.workdir}")
