"""A cell of a study: all runs of one arm, in a folder named by the hash of what decides them."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from transformer.analysis.counts import parameter_count, train_flops
from transformer.config.run import Replica, RunConfig
from transformer.data.dataset import Dataset
from transformer.training.checkpoint import write_durably
from transformer.training.loop import train
from transformer.training.workdir import identity


@dataclass(frozen=True)
class Cell:
    """The results of the replicas of one config, in their order; a diverged one is None."""

    validation_loss: list[float | None]
    diverged_at: list[int | None]
    """The step at which a replica stopped being finite."""
    seconds: float
    tokens_per_second: float | None
    parameters: int
    flops: float
    """Of a training step, per sequence."""


def cell_folder(workdir: Path, config: RunConfig, replicas: Sequence[Replica], data: Dataset) -> Path:
    return workdir / "cells" / identity(config, replicas, data)["sha256"][:16]


def run_cell(config: RunConfig, replicas: Sequence[Replica], data: Dataset, workdir: Path, title: str) -> Cell:
    """The cell's results: read where they exist, otherwise computed, from its checkpoint if it has one."""
    folder = cell_folder(workdir, config, replicas, data)
    path = folder / "result.json"
    if path.exists():
        return Cell(**json.loads(path.read_text()))
    outcome = train(config, replicas, data, folder, when_not_empty="resume", title=title)
    rate = outcome.tokens_per_second
    cell = Cell(
        validation_loss=[float(x) if np.isfinite(x) else None for x in outcome.validation_loss],
        diverged_at=[None if at < 0 else int(at) for at in outcome.diverged_at],
        seconds=outcome.seconds,
        tokens_per_second=rate if np.isfinite(rate) else None,
        parameters=parameter_count(config.model),
        flops=train_flops(config.model),
    )
    write_durably(path, json.dumps(asdict(cell), indent=1))
    return cell
