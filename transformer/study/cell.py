"""A cell of a study: runs of one arm that are trained together, in a folder named by what determines them."""

import contextlib
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from transformer.core.errors import ConfigError, one_line
from transformer.core.files import write_durably, write_sealed
from transformer.core.folders import locked
from transformer.core.json import fingerprint, from_json, to_json
from transformer.core.modules import Params
from transformer.core.sources import sources
from transformer.data.dataset import Dataset
from transformer.runs.config import Replica, RunConfig
from transformer.runs.mesh import AUTOMATIC, MeshConfig
from transformer.study.probes import Probe
from transformer.study.runs import ArmRuns, Run
from transformer.training.loop import train
from transformer.training.metrics import finite
from transformer.training.outcome import Outcome
from transformer.training.program import make_program
from transformer.training.signals import Interrupted
from transformer.training.trackers import Tracker
from transformer.training.workdir import CONFIG, Identity, identity, read_identity

RESULT = "result.json"
"""Names the files of its runs, when all are stored."""
ERROR = "error.txt"
"""The error of the last attempt: one line, with the traceback below it."""


@dataclass(frozen=True)
class Cell:
    """Runs of one arm, the folder they are trained in, and the folder of their results."""

    title: str
    config: RunConfig
    replicas: Sequence[Replica]
    data: Dataset
    cells: Path
    """The folder of all cells of the study."""
    runs: Path
    """The folder of all runs, which studies may share."""
    probes: Sequence[Probe] = ()
    mesh: MeshConfig = AUTOMATIC
    """How devices share the work, which changes numbers by rounding only."""
    trackers: Sequence[Tracker] = ()
    """Where the training is shown."""
    initial: Params | None = None
    """The parameters that all runs begin from; None: those of their seeds."""

    @cached_property
    def identity(self) -> Identity:
        """Everything that determines the numbers of the runs."""
        return identity(self.config, self.replicas, self.data, self.initial)

    @cached_property
    def folder(self) -> Path:
        """The folder of the cell, named by the hash of its identity."""
        return self.cells / self.identity.sha256[:16]

    @cached_property
    def stored(self) -> ArmRuns:
        """Where its runs are stored."""
        return ArmRuns(self.config, self.data, self.runs, self.initial)

    def found(self) -> list[Run | None]:
        """Its runs in the order of the replicas, None for one that is not computed yet."""
        filled = [replica.filled(self.config.optimizer) for replica in self.replicas]
        return [self.stored.read(one.seed, one.learning_rate) for one in filled if one.learning_rate is not None]

    @property
    def finished(self) -> bool:
        """Whether all runs, with all probes as they are now, are computed."""
        return all(run is not None and self.measured(run) for run in self.found())

    def measured(self, run: Run) -> bool:
        """Whether a run has the values of all probes, as they are now."""
        return self._probe_hashes.items() <= run.probe_hashes.items()

    @cached_property
    def _probe_hashes(self) -> dict[str, str]:
        """sha256 of each probe with its source, by its label: an edited probe measures again."""
        return {p.label: fingerprint({"probe": to_json(p), "sources": sources(p)}) for p in self.probes}

    def compute(self) -> None:
        """Train from the newest checkpoint, if there is one, measure, store the runs, and name them in result.json."""
        self.write_config()
        outcome = train(
            self.config,
            self.replicas,
            self.data,
            self.folder,
            when_not_empty="resume",
            title=self.title,
            mesh=self.mesh,
            log=self.trackers,
            initial=self.initial,
        )
        probes = {probe.label: self._measured(probe, outcome) for probe in self.probes}
        runs = [self._run(outcome, number, probes) for number in range(len(self.replicas))]
        for run in runs:
            self.stored.write(run)
        names = [self.stored.path(run.seed, run.learning_rate).name for run in runs]
        write_sealed(self.folder / RESULT, {"runs": names})

    def _run(self, outcome: Outcome, number: int, probes: dict[str, list[float | None]]) -> Run:
        """What one replica measured."""
        replica = self.replicas[number].filled(self.config.optimizer)
        assert replica.learning_rate is not None
        steps_S, losses_RS = outcome.curve("loss")
        sums = {name: [short(x) for x in array[number]] for name, array in outcome.by_batch._asdict().items()}
        at = int(outcome.diverged_at[number])
        return Run(
            seed=replica.seed,
            learning_rate=replica.learning_rate,
            labels=sums.pop("weight"),
            **sums,
            diverged_at=None if at < 0 else at,
            curve={"step": steps_S.tolist(), "loss": [short(x) for x in losses_RS[number]]},
            seconds=outcome.seconds / len(self.replicas),
            cell=self.folder.name,
            probes={label: values[number] for label, values in probes.items()},
            probe_hashes=self._probe_hashes,
        )

    @cached_property
    def _begun(self) -> Params:
        """The parameters that its runs begin from, with a leading axis."""
        return make_program(self.config, self.replicas, self.mesh, self.initial).init().params

    def _measured(self, probe: Probe, outcome: Outcome) -> list[float | None]:
        """The value of a probe for each run.

        Raises:
          ConfigError: the probe returns an array of another shape.
        """
        params = self._begun if probe.before_training else outcome.all_params
        values = np.asarray(probe(self.config, params, self.data))
        if values.shape != (len(self.replicas),):
            raise ConfigError(
                f"probe {probe}: it returns an array {values.shape}, and there are {len(self.replicas)} runs: "
                f"({len(self.replicas)},)"
            )
        return [finite(x) for x in values]

    def write_config(self) -> None:
        """Write down which cell the folder holds."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / CONFIG).exists():
            write_sealed(self.folder / CONFIG, self.identity.body)

    def attempt(self, *, wait: bool = False) -> str | None:
        """Compute what is missing; returns the error as one line where that fails, details in `error.txt`.

        Args:
          wait: whether to wait for another process that is computing it; otherwise that is an error.

        Raises:
          Interrupted: a signal asked to stop; the state is saved.
        """
        try:
            with locked(self.folder, wait=wait):
                if not self.finished:
                    self.compute()
        except Interrupted as stopped:
            stopped.__notes__ = ["In Python: the same study.run goes on"]
            raise
        except Exception as error:
            said = one_line(error)
            with contextlib.suppress(OSError):  # the disk may be what failed
                write_durably(self.folder / ERROR, f"{said}\n\n{traceback.format_exc()}")
            return said
        (self.folder / ERROR).unlink(missing_ok=True)
        return None


def replicas_of(folder: Path) -> tuple[Replica, ...]:
    """The replicas that the folder of a cell was made for."""
    return tuple(from_json(Replica, replica) for replica in read_identity(folder).replicas)


def short(x: Any) -> float | None:
    """A number with the digits of float32 alone, which half as many characters say; None where it is not finite."""
    value = finite(x)
    return None if value is None else float(str(np.float32(value)))
