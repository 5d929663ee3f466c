"""A cell of a study: all runs of one arm, in a folder named by the hash of what decides them."""

import contextlib
import json
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from transformer.analysis.counts import parameter_count, train_flops
from transformer.config.mesh import AUTOMATIC, MeshConfig
from transformer.config.run import Replica, RunConfig
from transformer.config.variant import ConfigError
from transformer.data.dataset import Dataset
from transformer.study.probes import Probe
from transformer.training.checkpoint import write_durably
from transformer.training.loop import train
from transformer.training.signals import Interrupted
from transformer.training.workdir import CONFIG, identity, locked

ERROR = "error.txt"
"""What went wrong at the last attempt: a line, and below it where."""


@dataclass(frozen=True)
class Result:
    """The results of the replicas of one config, in their order; a diverged one is None."""

    validation_loss: list[float | None]
    diverged_at: list[int | None]
    """The step at which a replica stopped being finite."""
    seconds: float
    tokens_per_second: float | None
    parameters: int
    flops: float
    """Of a training step, per sequence."""
    exact_match: list[float | None]
    """Share of held-out sequences that are right in every label."""
    probes: dict[str, list[float | None]]
    """By label, for each replica."""


@dataclass(frozen=True)
class Cell:
    """What is to be computed, and where."""

    title: str
    config: RunConfig
    replicas: Sequence[Replica]
    data: Dataset
    cells: Path
    """The folder of all cells of the study."""
    probes: Sequence[Probe] = ()
    mesh: MeshConfig = AUTOMATIC
    """How devices share it, which decides no number but by rounding."""

    @cached_property
    def identity(self) -> dict[str, Any]:
        return identity(self.config, self.replicas, self.data)

    @cached_property
    def folder(self) -> Path:
        return self.cells / self.identity["sha256"][:16]

    def result(self) -> Result | None:
        """What was computed, where all of it was."""
        path = self.folder / "result.json"
        if not path.exists():
            return None
        result = Result(**json.loads(path.read_text()))
        return result if {probe.label for probe in self.probes} <= result.probes.keys() else None

    def compute(self) -> None:
        """Train from the newest checkpoint, if there is one, measure, and write the result."""
        self.write_config()
        how: dict[str, Any] = {"when_not_empty": "resume", "title": self.title, "mesh": self.mesh}
        outcome = train(self.config, self.replicas, self.data, self.folder, **how)
        rate = outcome.tokens_per_second
        result = Result(
            validation_loss=_finite(outcome.validation_loss),
            diverged_at=[None if at < 0 else int(at) for at in outcome.diverged_at],
            seconds=outcome.seconds,
            tokens_per_second=rate if np.isfinite(rate) else None,
            parameters=parameter_count(self.config.model),
            flops=train_flops(self.config.model),
            exact_match=_finite(outcome.exact_match),
            probes={probe.label: _finite(self._measured(probe, outcome.all_params)) for probe in self.probes},
        )
        write_durably(self.folder / "result.json", json.dumps(asdict(result), indent=1))

    def _measured(self, probe: Probe, params: Any) -> np.ndarray:
        """(R,) of a probe.

        Raises:
          ConfigError: it returns something else.
        """
        values = np.asarray(probe(self.config, params, self.data))
        if values.shape != (len(self.replicas),):
            raise ConfigError(
                f"probe {probe}: it returns an array {values.shape}, and there are {len(self.replicas)} runs: "
                f"({len(self.replicas)},)"
            )
        return values

    def write_config(self) -> None:
        """Say whose folder it is."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / CONFIG).exists():
            write_durably(self.folder / CONFIG, json.dumps(self.identity, indent=1, sort_keys=True))

    def attempt(self, *, wait: bool = False) -> str | None:
        """Compute what is not there; the error in one line where that fails, and in `error.txt` where.

        Args:
          wait: for another process that is computing it; otherwise that is an error.

        Raises:
          Interrupted: a signal asked to stop; the state is saved.
        """
        try:
            with locked(self.folder, wait=wait):
                if self.result() is None:
                    self.compute()
        except Interrupted:
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {' '.join(str(error).split())}"
            with contextlib.suppress(OSError):  # the disk may be what failed
                write_durably(self.folder / ERROR, f"{said}\n\n{traceback.format_exc()}")
            return said
        (self.folder / ERROR).unlink(missing_ok=True)
        return None


def _finite(values: np.ndarray) -> list[float | None]:
    return [float(x) if np.isfinite(x) else None for x in values]
