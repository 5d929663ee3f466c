"""Studies whose runs are made up, for tests of what is concluded from them."""

from dataclasses import asdict
from pathlib import Path

import numpy as np

from transformer.core.files import write_sealed
from transformer.study.analyse import analyse
from transformer.study.record import ArmRecord, Record
from transformer.study.report import Report
from transformer.study.runs import Run
from transformer.training.metrics import finite

BATCHES = 8


def record(folder: Path, arms: dict[str, np.ndarray], **more) -> Record:
    """The record of a study with such final losses (learning rates, seeds) of each arm, NaN for a failed run.

    `more` are fields of the record, and `exact`: shares of right sequences by arm; `first_seed`; `noise`: losses of
    the baseline under other seeds.
    """
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    exact, first_seed, noise = (more.pop(k, d) for k, d in (("exact", {}), ("first_seed", 0), ("noise", None)))
    base = next(iter(arms))
    fields = {
        "name": "made",
        "question": "",
        "baseline": base,
        "metric": "loss",
        "higher_is_better": {"loss": False, "accuracy": True, "exact_match": True},
        "margin": 0.01,
        "fails_above": None,
        "contrasts": {},
        "looks": [np.shape(arms[base])[-1]],
        "halves": False,
        "failed": {},
        "reference": None,
        "plan": {"sha256": "0" * 64, "written": "2026-01-01", "runs_there": 0, "changes": []},
        "config": {},
        "data": {},
        "environment": {"cores": 2, "python": "3.11", "packages": {"jax": "0.10"}},
        "runs": "runs",
    }
    made = {name: _arm(folder, name, losses, exact.get(name), first_seed) for name, losses in arms.items()}
    other = None if noise is None else _arm(folder, "noise", noise, None, 1000)
    return Record(**{**fields, **more}, arms=made, noise=other)


def report(folder: Path, arms: dict[str, np.ndarray], **more) -> Report:
    """Its report."""
    return analyse(folder, record(folder, arms, **more))


def _arm(folder: Path, name: str, losses: np.ndarray, exact: np.ndarray | None, first_seed: int) -> ArmRecord:
    losses = np.atleast_2d(np.asarray(losses, float))
    rates = [1e-3 * 3**i for i in range(len(losses))]
    seeds = [first_seed + i for i in range(losses.shape[1])]
    files = []
    for i, rate in enumerate(rates):
        files.append([])
        for j, seed in enumerate(seeds):
            files[-1].append(f"{name}-{i}-{seed}.json".replace("/", "_"))
            made = run(seed, rate, losses[i, j], 0.5 if exact is None else np.atleast_2d(exact)[i, j])
            write_sealed(folder / "runs" / files[-1][-1], asdict(made))
    return ArmRecord(f"name={name}", name, rates, seeds, files, 100, 1e6, np.log(64))


def run(seed: int, rate: float, loss: float, exact: float) -> Run:
    return Run(
        seed=seed,
        learning_rate=rate,
        loss=[finite(loss * 10)] * BATCHES,
        labels=[10.0] * BATCHES,
        correct=[5.0] * BATCHES,
        exact=[exact * 4] * BATCHES,
        sequences=[4.0] * BATCHES,
        diverged_at=None if np.isfinite(loss) else 3,
        curve={"step": [1, 2], "loss": [4.0, finite(loss)]},
        seconds=1.0,
        cell="cell",
    )
