"""What a study asked and which runs answer it, as a file: a report is made from it and the runs alone."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformer.core.errors import ConfigError, nearest
from transformer.core.files import Damaged, read_value, write_sealed
from transformer.study.runs import Run
from transformer.training.metrics import METRICS

STUDY = "study.json"


def noise_name(baseline: str) -> str:
    """The name of a baseline under other seeds."""
    return f"{baseline}, other seeds"


NOISE = noise_name("baseline")
"""Its key among arms, whatever the baseline is called."""


@dataclass(frozen=True)
class ArmRecord:
    """One arm: what it is, and the files of its runs."""

    changes: str
    """Its changes to the base, in text form."""
    config: str
    """sha256 of its config and data, without learning rate and seed."""
    learning_rates: list[float]
    """Ascending."""
    seeds: list[int]
    """In the order in which they are paired with those of other arms."""
    files: list[list[str]]
    """The runs, (learning rates, seeds), as names of files."""
    parameters: int
    """Number of parameters of the model."""
    flops: float
    """Floating-point operations of a training step, per sequence."""
    guess: float
    """Loss of a uniform guess, in nats."""
    signals: dict[str, float | None] = field(default_factory=dict)
    """Root mean squares before training, by name."""
    warnings: list[str] = field(default_factory=list)
    """What should be known before it is compared."""

    def __post_init__(self):
        if [len(row) for row in self.files] != [len(self.seeds)] * len(self.learning_rates) or not self.files:
            raise ConfigError("arm: its files are not (learning rates, seeds)")


@dataclass(frozen=True)
class Record:
    """A study, as far as its report needs it."""

    name: str
    question: str
    """What it is meant to answer, in a sentence."""
    baseline: str
    metric: str
    """Name of the primary metric."""
    higher_is_better: dict[str, bool]
    """For every metric by name."""
    margin: float
    fails_above: float | None
    """Final loss above which a run has failed."""
    contrasts: dict[str, dict[str, float]]
    """Weights of arms for each question; of arms against the baseline where there are no others."""
    looks: list[int]
    """Numbers of seeds at which verdicts may be read."""
    halves: bool
    """Whether the learning rates are chosen on the even batches of the held-out part, and the odd ones are reported."""
    arms: dict[str, ArmRecord]
    noise: ArmRecord | None
    """The baseline under other seeds."""
    failed: dict[str, str]
    """The errors of arms that could not be computed, by name."""
    reference: tuple[str, float] | None
    """Name and loss of a simple model on the same split."""
    plan: dict[str, Any]
    """The plan, its hash, when it was written, and what was changed after runs had been seen; `pooled`: those of other
    studies whose seeds are among these."""
    config: dict[str, Any]
    """All fields of the study."""
    data: dict[str, Any]
    environment: dict[str, Any]
    runs: str
    """The folder of the runs, seen from that of the study."""
    tuned_by: str | None = None
    """Name of the metric that chooses learning rates; None: the primary one."""

    def __post_init__(self):
        if self.baseline not in self.arms:
            raise ConfigError(f"study: no arm {self.baseline!r}{nearest(self.baseline, self.arms)}")
        for metric in (self.metric, self.chooses):
            if metric not in self.higher_is_better:
                raise ConfigError(f"study: no metric {metric!r}{nearest(metric, self.higher_is_better)}")
        if not self.looks:
            raise ConfigError("study: looks are none")
        if not self.margin > 0:
            raise ConfigError(f"study: margin {self.margin} is not positive")

    @property
    def chooses(self) -> str:
        """The metric that chooses learning rates."""
        return self.tuned_by or self.metric

    @property
    def comparisons(self) -> int:
        """How many questions the study asks, those of arms that could not be computed too: p are corrected for all."""
        arms = [name for name in (*self.arms, *self.failed) if name != NOISE]
        return max(len(self.contrasts or against(self.baseline, arms)), 1)

    @property
    def questions(self) -> dict[str, dict[str, float]]:
        """Weights of arms, those that are not 0, for every question whose arms are all computed."""
        asked = self.contrasts or against(self.baseline, self.arms)
        parts = {name: {arm: weight for arm, weight in weights.items() if weight} for name, weights in asked.items()}
        return {name: weights for name, weights in parts.items() if weights.keys() <= self.arms.keys()}

    def write(self, workdir: Path) -> None:
        """Write study.json."""
        write_sealed(workdir / STUDY, dataclasses.asdict(self))


def against(baseline: str, arms: Iterable[str]) -> dict[str, dict[str, float]]:
    """The weights of each other arm against the baseline, by the name of the arm."""
    return {name: {name: 1.0, baseline: -1.0} for name in arms if name != baseline}


def read_record(workdir: Path) -> Record:
    """The record of the study in a folder.

    Raises:
      ConfigError: there is none.
      Damaged: its file is not what was written.
    """
    try:
        return read_value(Record, workdir / STUDY)
    except FileNotFoundError:
        alone = (workdir / METRICS).exists()
        why = "it is of a run, which `transformer info` shows" if alone else "no study has been run there"
        raise ConfigError(f"{workdir} holds no {STUDY}: {why}") from None


def read_runs(arm: ArmRecord, read: Callable[[str], Run]) -> list[list[Run]]:
    """The runs of an arm, (learning rates, seeds), each read by its name.

    Raises:
      Damaged: a file is missing, or not what was written.
    """
    try:
        return [[read(file) for file in row] for row in arm.files]
    except FileNotFoundError as error:
        raise Damaged(f"{error.filename}: is missing") from None


def pooled(workdirs: Sequence[Path]) -> Record:
    """The records of studies with the same arms as one, with the seeds of all.

    Each that adds seeds counts as a look: what was read of the first may be why there is a second.

    Raises:
      ConfigError: a folder holds no study, they ask different questions, or an arm is another one.
    """
    first, *others = [_placed(read_record(workdir), workdir) for workdir in workdirs]
    record, looks = first, first.looks
    for other in others:
        _check_pooled(first, other)
        record = _pooled(record, other)
        if (seeds := max(len(arm.seeds) for arm in record.arms.values())) > looks[-1]:
            looks = [*looks, seeds]
    return dataclasses.replace(record, looks=looks)


def _placed(record: Record, workdir: Path) -> Record:
    """The record with whole paths to its runs."""
    folder = (workdir / record.runs).resolve()

    def placed(arm: ArmRecord) -> ArmRecord:
        return dataclasses.replace(arm, files=[[str(folder / file) for file in row] for row in arm.files])

    arms = {name: placed(arm) for name, arm in record.arms.items()}
    return dataclasses.replace(record, arms=arms, noise=record.noise and placed(record.noise))


def _check_pooled(first: Record, second: Record) -> None:
    """Raise `ConfigError` where the runs of two studies do not answer one question."""
    for name in ("baseline", "metric", "tuned_by", "margin", "fails_above", "contrasts", "halves", "looks"):
        if getattr(first, name) != getattr(second, name):
            raise ConfigError(
                f"{first.name}, {second.name}: {name} is {getattr(first, name)} and {getattr(second, name)}, so their "
                "runs do not answer one question"
            )
    if len(first.looks) > 1:
        raise ConfigError(f"{first.name}: a study that added seeds by its verdicts cannot be pooled with another")
    if first.arms.keys() != second.arms.keys():
        raise ConfigError(f"{first.name}, {second.name}: arms {', '.join(first.arms)} and {', '.join(second.arms)}")


def _pooled(first: Record, second: Record) -> Record:
    arms = {name: _pooled_arm(name, arm, second.arms[name]) for name, arm in first.arms.items()}
    noise = first.noise and second.noise and _pooled_arm("under other seeds", first.noise, second.noise)
    plans = {**first.plan, "pooled": [*first.plan.get("pooled", []), second.plan]}
    both = {name: up for name, up in first.higher_is_better.items() if name in second.higher_is_better}
    return dataclasses.replace(first, arms=arms, noise=noise, plan=plans, higher_is_better=both)


def _pooled_arm(name: str, first: ArmRecord, second: ArmRecord) -> ArmRecord:
    if first.config != second.config or first.learning_rates != second.learning_rates:
        raise ConfigError(f"arm {name}: the two studies have other configs, data or learning rates of it")
    new = [i for i, seed in enumerate(second.seeds) if seed not in first.seeds]
    files = [row + [other[i] for i in new] for row, other in zip(first.files, second.files, strict=True)]
    return dataclasses.replace(first, seeds=first.seeds + [second.seeds[i] for i in new], files=files)
