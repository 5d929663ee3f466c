"""Runs: what a study stores and any study reads again. A run is a config with its learning rate, a seed, and data."""

import warnings
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from transformer.core.errors import ConfigError, nearest
from transformer.core.files import Damaged, read_value, write_sealed
from transformer.core.json import fingerprint
from transformer.core.modules import Params
from transformer.data.dataset import Dataset
from transformer.runs.config import RunConfig
from transformer.training.workdir import identity


@dataclass(frozen=True)
class Run:
    """What one run measured. Sums are lists with a number for each batch of the held-out part; None is not finite."""

    seed: int
    learning_rate: float
    loss: list[float | None]
    """Sum of the losses of all labels, in nats (or squared error)."""
    labels: list[float | None]
    """Number of labels."""
    correct: list[float | None]
    """Number of labels to which the model gives the highest probability."""
    exact: list[float | None]
    """Number of sequences with every label right."""
    sequences: list[float | None]
    """Number of sequences."""
    diverged_at: int | None
    """The step from which on the run was not finite."""
    curve: dict[str, list[float | None]]
    """Training loss: `step` and `loss`."""
    seconds: float
    """Its share of the wall time of the program that trained it with others."""
    cell: str
    """The folder below `cells` with its checkpoint."""
    probes: dict[str, float | None] = field(default_factory=dict)
    """Values by the label of the probe."""
    probe_hashes: dict[str, str] = field(default_factory=dict)
    """sha256 of what each probe was when it measured, by its label."""

    def __post_init__(self):
        lengths = {len(getattr(self, name)) for name in ("loss", "labels", "correct", "exact", "sequences")}
        if len(lengths) > 1:
            raise ConfigError("run: its sums are not of the same batches")
        if self.curve.keys() != {"step", "loss"} or len(self.curve["step"]) != len(self.curve["loss"]):
            raise ConfigError("run: its curve is not a `step` and a `loss` for each point")

    def metric(self, name: str, batches: slice = slice(None)) -> float:
        """A metric over some batches of the held-out part: `loss`, `accuracy`, `exact_match` or the label of a probe.

        NaN where the run was not finite, or where a probe is not defined.

        Raises:
          ConfigError: it was not measured of a run that was finite.
        """
        if self.diverged_at is not None:
            return np.nan
        if name in self.probes:
            value = self.probes[name]
            return np.nan if value is None else value
        if name not in SUMS:
            raise ConfigError(f"metric: {name!r} was not measured{nearest(name, (*self.probes, *SUMS))}")
        above, below = SUMS[name]
        over, under = (np.array(getattr(self, each)[batches], np.float64).sum() for each in (above, below))
        return float(over / under) if np.isfinite(over) and under > 0 else np.nan

    def with_probes_of(self, other: "Run") -> "Run":
        """With what probes found of the same run in another file, where it lacks them."""
        probes, hashes = other.probes | self.probes, other.probe_hashes | self.probe_hashes
        return replace(self, probes=probes, probe_hashes=hashes)

    def by_batch(self) -> np.ndarray:
        """(batches,) mean loss of each batch, in nats; NaN for a batch without labels."""
        loss, labels = np.array(self.loss, np.float64), np.array(self.labels, np.float64)
        return np.divide(loss, labels, out=np.full_like(loss, np.nan), where=labels > 0)


SUMS = {"loss": ("loss", "labels"), "accuracy": ("correct", "labels"), "exact_match": ("exact", "sequences")}
"""The two sums whose ratio is a metric."""
HIGHER_IS_BETTER = {"accuracy", "exact_match"}


@dataclass(frozen=True)
class ArmRuns:
    """The runs of one config, in a folder that studies may share."""

    config: RunConfig
    data: Dataset
    folder: Path
    initial: Params | None = None
    """What they all begin from; None: values of their seeds."""

    @cached_property
    def sha256(self) -> str:
        """Hash of all that determines the numbers of its runs, except learning rate and seed."""
        return identity(self.config.replace({"optimizer.learning_rate": 1.0}), (), self.data, self.initial).sha256

    def path(self, seed: int, rate: float) -> Path:
        """The file of a run."""
        return self.folder / f"{fingerprint([self.sha256, seed, float(rate)])[:20]}.json"

    def read(self, seed: int, rate: float) -> Run | None:
        """The run, or None where it is not computed yet, or its file is damaged, which is said in a warning."""
        try:
            return read_run(self.path(seed, rate))
        except FileNotFoundError:
            return None
        except Damaged as error:
            warnings.warn(f"{error}; it is computed again", stacklevel=2)
            return None

    def write(self, run: Run) -> None:
        """Store a run; values of probes that it lacks are kept."""
        before = self.read(run.seed, run.learning_rate)
        run = run if before is None else run.with_probes_of(before)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_sealed(self.path(run.seed, run.learning_rate), asdict(run))


def read_run(path: Path) -> Run:
    """The run in a file.

    Raises:
      FileNotFoundError: there is none.
      Damaged: it is not what was written.
    """
    return read_value(Run, path)
