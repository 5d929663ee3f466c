"""The arms of a study, ready to run: with their data, what papers prescribe, and sizes that match the budget."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer.analysis.counts import parameter_count, step_flops
from transformer.core.errors import ConfigError, one_line
from transformer.core.files import read_value, write_sealed
from transformer.core.modules import Params
from transformer.core.values import to_text
from transformer.data.dataset import Dataset, fingerprint_arrays, load_data
from transformer.runs.config import Replica, RunConfig
from transformer.study import budget as budgets
from transformer.study.initial_signals import doubts, signals
from transformer.study.record import NOISE
from transformer.study.runs import SUMS, ArmRuns

if TYPE_CHECKING:
    from transformer.study.study import Study

RATE = "optimizer.learning_rate"
"""What each arm is tuned over, and is no change of the model that it trains."""
FORMATS = ("exact_match",)
"""Metrics by which arms can be compared even if they write the same questions and answers in different ways."""
NOISE_SEEDS = 1_000_000
"""Distance of the seeds of the noise floor from those of the baseline, so large that no arm has them."""


@dataclass(frozen=True)
class Arm:
    """One arm of a study, ready to run."""

    name: str
    config: RunConfig
    data: Dataset
    rates: tuple[float, ...]
    first_seed: int
    changes: str
    """Its changes to the base, in text form."""
    initial: Params | None = None
    """What its runs begin from; None: values of their seeds."""

    @cached_property
    def sha256(self) -> str:
        """Hash of all that determines its numbers, without learning rate and seed."""
        return self.runs(Path()).sha256

    def runs(self, folder: Path) -> ArmRuns:
        """Where its runs are stored."""
        return ArmRuns(self.config, self.data, folder, self.initial)

    def seeds(self, count: int) -> range:
        """Its first seeds."""
        return range(self.first_seed, self.first_seed + count)

    def replicas(self, count: int) -> list[Replica]:
        """Every learning rate with each of the first seeds."""
        return [Replica(seed=seed, learning_rate=rate) for rate in self.rates for seed in self.seeds(count)]

    @cached_property
    def order(self) -> str:
        """Hash of its first batch, which tells the order of its training data."""
        return fingerprint_arrays(self.data.train_batches(self.config, self.first_seed)[0])

    @cached_property
    def held_out(self) -> str:
        """Hash of its held-out part as it is cut into batches."""
        return fingerprint_arrays(self.data.validation_batches(self.config))

    @cached_property
    def signals(self) -> tuple[dict[str, float], list[str]]:
        """Root mean squares before training, and warnings; an error is one of these, and does not stop other arms."""
        if self.initial is not None:  # the model is not as its config would make it
            return {}, []
        try:
            sizes = signals(self.config, self.data)
        except Exception as error:
            return {}, [f"no signals before training: {one_line(error)}"]
        return sizes, doubts(sizes)

    @cached_property
    def costs(self) -> tuple[int, float]:
        """Parameters, and operations of a training step for a sequence."""
        return parameter_count(self.config.model), step_flops(self.config, self.data) / self.config.batch_size


def prepared(
    study: "Study", data: Dataset, workdir: Path | None = None, initial: Params | None = None
) -> dict[str, Arm]:
    """The arms of a study with their configs and data, and the baseline under other seeds.

    Args:
      study: what is asked.
      data: what the base is trained on.
      workdir: a folder in which measured times are kept, so that the study can be continued.
      initial: the parameters that all runs begin from.

    Raises:
      ConfigError: an arm is impossible, or changes what it is judged by.
    """
    configs, datasets = with_data(study, data, workdir)
    _check_held_out(study, configs, datasets)
    _check_objectives(study, configs)
    arms = {
        name: Arm(
            name, config, datasets[name], study.rates(name), study.first_seed, _changes(study, name, config), initial
        )
        for name, config in configs.items()
    }
    if study.noise_floor:
        seeds = {"first_seed": NOISE_SEEDS + study.first_seed}
        arms[NOISE] = dataclasses.replace(arms[study.baseline_name], name=NOISE, **seeds)
    return arms


def with_data(
    study: "Study", data: Dataset, workdir: Path | None = None
) -> tuple[dict[str, RunConfig], dict[str, Dataset]]:
    """The config of each arm, completed from its data and matched to the budget, and the data: its own where it
    changes some of it.

    Args:
      study: what is asked.
      data: what the base is trained on.
      workdir: a folder in which measured times are kept; None: measured anew.

    Raises:
      ConfigError: an arm is impossible.
    """
    base = data.complete(study.base)
    changes = {
        name: {**study.recipe(name), **{path: value for path, value in arm.items() if path != RATE}}
        for name, arm in study.arms.items()
    }
    arms = {name: changed(study.base, name, {"data": base.data, **own}) for name, own in changes.items()}
    loaded = {base.data: data} | {arm.data: load_data(arm.data) for arm in arms.values() if arm.data != base.data}
    datasets = {name: loaded[arm.data] for name, arm in arms.items()}
    configs = {name: datasets[name].complete(arm) for name, arm in arms.items()}
    if study.match == "seconds":
        return _as_long(study, configs, _step_seconds(configs, datasets, workdir)), datasets
    return _as_costly(study, configs, datasets), datasets


@contextlib.contextmanager
def _named(arm: str) -> Iterator[None]:
    """Errors within are of an arm, and name it."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"arm {arm}: {error}") from None


def changed(base: RunConfig, arm: str, changes: dict[str, Any]) -> RunConfig:
    """The base with the changes of an arm, which errors name."""
    with _named(arm):
        return base.replace(changes)


def _as_long(study: "Study", configs: Mapping[str, RunConfig], seconds: Mapping[str, float]) -> dict[str, RunConfig]:
    """The configs with as many steps as take the time of the baseline."""
    baseline = study.baseline_name
    steps = {name: round(configs[baseline].steps * seconds[baseline] / seconds[name]) for name in configs}
    return {name: config.replace(steps=max(steps[name], 1)) for name, config in configs.items()}


def _as_costly(
    study: "Study", configs: Mapping[str, RunConfig], datasets: Mapping[str, Dataset]
) -> dict[str, RunConfig]:
    """The configs with the cost of the baseline, if the study asks for one."""
    baseline, budget = study.baseline_name, study.match
    if budget is None:
        return dict(configs)
    target = budgets.cost(configs[baseline], budget, datasets[baseline])
    matched = {}
    for name, config in configs.items():
        with _named(name):
            own = (budget, study.match_by, datasets[name])
            matched[name] = config if name == baseline else budgets.match(config, target, *own)
    return matched


def _step_seconds(
    configs: Mapping[str, RunConfig], datasets: Mapping[str, Dataset], workdir: Path | None
) -> dict[str, float]:
    """Seconds of a step of each arm, as they were measured when the study first had it."""
    path = None if workdir is None else workdir / "step_seconds.json"
    measured = read_value(dict[str, float], path) if path is not None and path.exists() else {}
    keys = {name: ArmRuns(config, datasets[name], Path()).sha256 for name, config in configs.items()}
    if missing := {key: name for name, key in keys.items() if key not in measured}:
        measured |= {key: budgets.step_seconds(configs[name], datasets[name]) for key, name in missing.items()}
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_sealed(path, measured)
    return {name: measured[key] for name, key in keys.items()}


def _check_held_out(study: "Study", configs: Mapping[str, RunConfig], datasets: Mapping[str, Dataset]) -> None:
    """Raise `ConfigError` where an arm with data of its own has another held-out part than the baseline."""
    baseline, data = configs[study.baseline_name], datasets[study.baseline_name]
    if study.metric in FORMATS:
        return
    for name in (name for name, own in datasets.items() if own is not data):
        parts = [each.validation_batches(baseline) for each in (datasets[name], data)]
        if len(set(map(fingerprint_arrays, parts))) > 1:
            raise ConfigError(
                f"study {study.name}: arm {name} changes the held-out part of {data.source}, so its losses are not "
                "comparable; change the training data only"
            )


def _check_objectives(study: "Study", configs: Mapping[str, RunConfig]) -> None:
    """Raise `ConfigError` where arms of one question are judged by losses of other kinds, or of other labels."""
    objectives = {name: config.objective for name, config in configs.items()}
    if study.metric not in SUMS:
        return
    for names in map(list, study.questions.values()):
        one, *others = (objectives[name] for name in names)
        for name, other in zip(names[1:], others, strict=True):
            same_labels = not (one.selects or other.selects)
            if other.judged_as != one.judged_as and not (same_labels and study.metric != "loss"):
                how = "a probe can ask both the same"
                if same_labels:
                    how = "metric='accuracy' compares what they get right, or plain() returns what both are judged by"
                raise ConfigError(
                    f"study {study.name}: arms {names[0]} and {name} are judged by {one.judged_as} and "
                    f"{other.judged_as}, which are not comparable; {how}"
                )


def _changes(study: "Study", name: str, config: RunConfig) -> str:
    """What an arm changes: by itself, as its papers prescribe, and to match the budget."""
    parts = [changes_text(study.arms[name])]
    if recipe := study.recipe(name):
        parts.append(f"{changes_text(recipe)} (recipe)")
    if study.match is not None and name != study.baseline_name:
        value = budgets.knob_value(config, study.match_by)
        parts.append(f"{budgets.PATHS.get(study.match_by, study.match_by)}={value} (equal {study.match})")
    return ", ".join(part for part in parts if part)


def changes_text(changes: Mapping[str, Any]) -> str:
    """Changes in text form: `model.norm=rmsnorm, model.d_ff=64`."""
    return ", ".join(f"{path}={value if isinstance(value, str) else to_text(value)}" for path, value in changes.items())
