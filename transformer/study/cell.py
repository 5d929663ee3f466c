"""A cell of a study: all runs of one arm, in a folder named by the hash of what decides them."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from transformer.analysis.counts import parameter_count, train_flops
from transformer.config.run import Replica, RunConfig
from transformer.data.dataset import Dataset
from transformer.study.probes import Probe
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
    exact_match: list[float | None]
    """Share of held-out sequences that are right in every label."""
    probes: dict[str, list[float | None]]
    """By label, for each replica."""


def cell_folder(workdir: Path, config: RunConfig, replicas: Sequence[Replica], data: Dataset) -> Path:
    return workdir / "cells" / identity(config, replicas, data)["sha256"][:16]


def run_cell(
    config: RunConfig,
    replicas: Sequence[Replica],
    data: Dataset,
    workdir: Path,
    title: str,
    probes: Sequence[Probe] = (),
) -> Cell:
    """The cell's results: read where they exist, otherwise computed, from its checkpoint if it has one."""
    folder = cell_folder(workdir, config, replicas, data)
    path = folder / "result.json"
    if path.exists() and {p.label for p in probes} <= set((cell := Cell(**json.loads(path.read_text()))).probes):
        return cell
    outcome = train(config, replicas, data, folder, when_not_empty="resume", title=title)
    rate = outcome.tokens_per_second
    cell = Cell(
        validation_loss=_finite(outcome.validation_loss),
        diverged_at=[None if at < 0 else int(at) for at in outcome.diverged_at],
        seconds=outcome.seconds,
        tokens_per_second=rate if np.isfinite(rate) else None,
        parameters=parameter_count(config.model),
        flops=train_flops(config.model),
        exact_match=_finite(outcome.exact_match),
        probes={probe.label: _finite(probe(config, outcome.params, data)) for probe in probes},
    )
    write_durably(path, json.dumps(asdict(cell), indent=1))
    return cell


def _finite(values: np.ndarray) -> list[float | None]:
    return [float(x) if np.isfinite(x) else None for x in values]
