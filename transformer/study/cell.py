"""A cell of a study: all runs of one arm, in a folder named by the hash of what determines them."""

import contextlib
import json
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from transformer.analysis.counts import parameter_count, train_flops
from transformer.core.json import to_json
from transformer.core.sources import sources
from transformer.core.values import ConfigError
from transformer.data.dataset import Dataset
from transformer.runs.config import Replica, RunConfig, fingerprint
from transformer.runs.mesh import AUTOMATIC, MeshConfig
from transformer.study.probes import Probe
from transformer.training.checkpoint import write_durably
from transformer.training.loop import train
from transformer.training.metrics import finite
from transformer.training.signals import Interrupted
from transformer.training.workdir import CONFIG, identity, locked

ERROR = "error.txt"
"""The error of the last attempt: one line, with the traceback below it."""


@dataclass(frozen=True)
class Result:
    """The results of the replicas of one config, in order; None for a diverged replica."""

    validation_loss: list[float | None]
    """In nats per token."""
    diverged_at: list[int | None]
    """The step at which a replica diverged; None where it did not."""
    seconds: float
    """Wall time of training and evaluation."""
    tokens_per_second: float | None
    """Throughput of all replicas together; None where it was not measured."""
    parameters: int
    """Number of parameters of a replica."""
    flops: float
    """Floating-point operations of a training step, per sequence."""
    exact_match: list[float | None]
    """Share of held-out sequences with every label right."""
    probes: dict[str, list[float | None]]
    """Values of each replica, by the label of the probe."""
    probe_hashes: dict[str, str] = field(default_factory=dict)
    """sha256 of what each probe was when it measured them, by its label."""


@dataclass(frozen=True)
class Cell:
    """All runs of one arm, and the folder of their results."""

    title: str
    config: RunConfig
    replicas: Sequence[Replica]
    data: Dataset
    cells: Path
    """The folder of all cells of the study."""
    probes: Sequence[Probe] = ()
    mesh: MeshConfig = AUTOMATIC
    """How devices share the work, which changes numbers by rounding only."""

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Everything that determines the numbers of the runs, with its hash."""
        return identity(self.config, self.replicas, self.data)

    @cached_property
    def folder(self) -> Path:
        """The folder of the cell, named by that hash."""
        return self.cells / self.identity["sha256"][:16]

    @cached_property
    def probe_hashes(self) -> dict[str, str]:
        """sha256 of each probe with its source, by its label: an edited probe measures again."""
        return {p.label: fingerprint({"probe": to_json(p), "sources": sources(p)}) for p in self.probes}

    def result(self) -> Result | None:
        """The result, or None where it or one of the probes, as they are now, is not computed yet."""
        path = self.folder / "result.json"
        if not path.exists():
            return None
        result = Result(**json.loads(path.read_text()))
        return result if self.probe_hashes.items() <= result.probe_hashes.items() else None

    def compute(self) -> None:
        """Train from the newest checkpoint, if there is one, measure, and write the result."""
        self.write_config()
        how: dict[str, Any] = {"when_not_empty": "resume", "title": self.title, "mesh": self.mesh}
        outcome = train(self.config, self.replicas, self.data, self.folder, **how)
        result = Result(
            validation_loss=[finite(x) for x in outcome.validation_loss],
            diverged_at=[None if at < 0 else int(at) for at in outcome.diverged_at],
            seconds=outcome.seconds,
            tokens_per_second=finite(outcome.tokens_per_second),
            parameters=parameter_count(self.config.model),
            flops=train_flops(self.config.model),
            exact_match=[finite(x) for x in outcome.exact_match],
            probes={probe.label: self._measured(probe, outcome.all_params) for probe in self.probes},
            probe_hashes=self.probe_hashes,
        )
        write_durably(self.folder / "result.json", json.dumps(asdict(result), indent=1))

    def _measured(self, probe: Probe, params: Any) -> list[float | None]:
        """The value of a probe for each run.

        Raises:
          ConfigError: the probe returns an array of another shape.
        """
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
            write_durably(self.folder / CONFIG, json.dumps(self.identity, indent=1, sort_keys=True))

    def attempt(self, *, wait: bool = False) -> str | None:
        """Compute the result unless it exists; returns the error as one line where that fails, details in `error.txt`.

        Args:
          wait: whether to wait for another process that is computing it; otherwise that is an error.

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
