"""A comparison of arms as a statistical experiment."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from transformer.core.changes import typed
from transformer.core.checks import check_type
from transformer.core.contents import contents
from transformer.core.errors import ConfigError
from transformer.core.folders import locked
from transformer.core.json import to_json
from transformer.core.modules import Params
from transformer.core.values import Choices, Variant, to_text
from transformer.data.dataset import Dataset, check_data, load_data
from transformer.runs.config import RunConfig
from transformer.runs.mesh import AUTOMATIC, MeshConfig
from transformer.runs.optimizer import OptimizerConfig
from transformer.study.analyse import FEW
from transformer.study.arms import RATE, Arm, changed, prepared, with_data
from transformer.study.budget import MATCH_BY, Budget
from transformer.study.checks import check_study
from transformer.study.engines import LOCAL, Engine
from transformer.study.probes import Probe
from transformer.study.record import Record, against, read_record
from transformer.study.report import Report, Unresolved
from transformer.study.running import Running
from transformer.study.statistics import ALPHA, detectable_difference
from transformer.training.loop import check_initial
from transformer.training.trackers import Tracker, check_trackers
from transformer.training.workdir import CONFIG

CHANGES_NO_VERDICT = ("name", "question", "minutes", "noise_floor")
"""Fields of a study that change none of its verdicts."""
CONFIRMATION, FRESH = "_fresh", 1_000
"""Ending of the name of a confirmation, and least distance of its seeds from those of its study."""


@dataclass(frozen=True, kw_only=True)
class StudyOptions(metaclass=Choices):
    """How arms are compared, whatever the arms are: the fields that a study and its command share."""

    seeds: int = 8
    """Number of seeds per arm and learning rate; all runs of an arm are one compiled program."""
    max_seeds: int | None = None
    """Seeds are added, twice as many each time, where a verdict is open, up to this; None: none are added."""
    minutes: float | None = None
    """Time after which no more seeds are added; None: no limit."""
    learning_rates: tuple[float, ...] = ()
    """Peak learning rates that every arm is tuned over; empty: the config's."""
    question: str = ""
    """What the study is meant to answer, in a sentence, for the plan and the report."""
    metric: str = "loss"
    """What makes verdicts: loss, accuracy, exact_match, or the label of a probe."""
    tuned_by: str | None = None
    """What chooses learning rates, where that is not the metric: a model that is best by a probe need not be good."""
    margin: float = 0.01
    """Differences of the metric below this do not matter."""
    fails_above: float | None = None
    """Final loss above which a run has failed; None: only runs that are not finite have."""
    recipes: bool = True
    """Whether an arm is trained as the papers of its choices train it (`Variant.recipe`), where it sets nothing else;
    otherwise every arm is a plain swap."""
    noise_floor: bool = True
    """Whether the baseline is also run under other seeds and compared with itself."""
    match: Budget | None = None
    """The cost in which every arm is made to match the baseline; None: arms may differ."""
    match_by: str = MATCH_BY
    """The number that is changed for this: d_ff, num_layers, steps, or the dotted path of another one."""


@dataclass(frozen=True, repr=False)
class Study(StudyOptions):
    """Arms against a baseline: the same seeds for all, learning rates tuned for each.

    Every arm runs at every learning rate with every seed, in one compiled program. Its learning rate is chosen by all
    of its runs, and the intervals count with that: `docs/statistics.md` says how.
    """

    name: str
    """Title of the study in its report."""
    base: RunConfig
    """The config that arms change."""
    arms: Mapping[str, Mapping[str, Any]]
    """Changes of each arm to the base, by name and dotted path: `{"rms": {"model.norm": RMSNorm()}}`. A tuple as
    `optimizer.learning_rate` gives an arm learning rates of its own, a number a single one."""
    _: dataclasses.KW_ONLY
    baseline: str | None = None
    """Name of the arm that all others are compared with; None: the first."""
    contrasts: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    """Questions other than each arm against the baseline: weights of arms by name, such as those of `factorial`."""
    first_seed: int = 0
    """The seeds are this one and those after it."""
    probes: tuple[Probe, ...] = ()
    """Numbers measured on the trained parameters, besides the loss."""

    def __post_init__(self):
        check_study(self)

    def __repr__(self) -> str:
        """What it compares: the base is a page long."""
        rates = sorted({len(self.rates(name)) for name in self.arms})
        counted = f"{' or '.join(map(str, self.looks))} seeds, {' or '.join(map(str, rates))} learning rates"
        return f"Study({self.name!r}, arms {', '.join(self.arms)}; {counted})"

    @property
    def baseline_name(self) -> str:
        """Name of the arm that all others are compared with."""
        return self.baseline or next(iter(self.arms))

    @property
    def looks(self) -> tuple[int, ...]:
        """The numbers of seeds at which verdicts are read, each at α over their number."""
        last, looks = self.max_seeds or self.seeds, [self.seeds]
        while looks[-1] < last:
            looks.append(min(2 * looks[-1], last))
        return tuple(looks)

    @property
    def questions(self) -> Mapping[str, Mapping[str, float]]:
        """Weights of arms for every question: the contrasts, or each arm against the baseline."""
        return self.contrasts or against(self.baseline_name, self.arms)

    def rates(self, name: str) -> tuple[float, ...]:
        """The learning rates of an arm, ascending.

        Raises:
          ConfigError: a rate is given twice.
        """
        arm = self.arms[name]
        own = arm.get(RATE, self.learning_rates)
        if isinstance(whole := arm.get("optimizer"), OptimizerConfig) and RATE not in arm:
            if self.learning_rates:
                raise ConfigError(
                    f"study {self.name}: arm {name}: its optimizer has learning rate {whole.learning_rate:g}, and the "
                    f"study has learning_rates; give the arm {RATE} too"
                )
            own = whole.learning_rate
        rates = (own,) if isinstance(own, int | float) else tuple(np.atleast_1d(own).tolist())
        for rate in rates:
            check_type(rate, float, f"study {self.name}: arm {name}: {RATE}")
        if RATE in arm and not rates:
            raise ConfigError(f"study {self.name}: arm {name}: {RATE} is empty; leave it out for those of the study")
        if twice := [rate for i, rate in enumerate(rates) if rate in rates[:i]]:
            raise ConfigError(f"study {self.name}: arm {name}: learning rate {twice[0]:g} is given twice")
        return tuple(sorted(rates)) or (self.base.optimizer.learning_rate,)

    def recipe(self, name: str) -> dict[str, Any]:
        """What the papers of an arm's choices change together with them, except what the arm itself sets.

        Raises:
          ConfigError: the arm is impossible, or two of its choices ask for different values of one field.
        """
        own, found = self.arms[name], {}
        d_model = changed(self.base, name, {p: v for p, v in own.items() if p != RATE}).model.d_model
        values = [typed(self.base, p, v) if isinstance(v, str) else v for p, v in own.items()] if self.recipes else []
        choices = [choice for value in values for choice in contents(value) if isinstance(choice, Variant)]
        asked = [item for choice in choices for item in choice.recipe(d_model).items()]
        for path, value in asked:
            if any(path == p or path.startswith(f"{p}.") for p in own):
                continue
            if found.setdefault(path, value) != value:
                both = f"{to_text(found[path])} and {to_text(value)}"
                raise ConfigError(f"study {self.name}: arm {name}: its choices ask for {path}={both}; set it there")
        return found

    def configs(self, data: Dataset) -> dict[str, RunConfig]:
        """The config of each arm, completed from the data and matched to the budget, with the learning rate of the arm
        where it has one alone.

        Args:
          data: what the base is trained on.

        Raises:
          ConfigError: an arm is impossible.
        """
        return {
            name: config.replace({RATE: rates[0]}) if len(rates := self.rates(name)) == 1 else config
            for name, config in with_data(self, data)[0].items()
        }

    def planned_effect_text(self) -> str:
        """`planned_effect` as a sentence; of fewer than six seeds, which detect nothing ordinary, it asks for more."""
        if self.looks[-1] < FEW:
            return f"use at least {FEW} seeds: {self.looks[-1]} detect no ordinary difference"
        return (
            f"smallest detectable difference {self.planned_effect():.2f} standard deviations over seeds (80 % power, "
            "all comparisons, ρ = 0 assumed)"
        )

    def planned_effect(self) -> float:
        """The smallest difference detected with 80 % power at a correlation of 0, in standard deviations over seeds."""
        looks = self.looks
        return detectable_difference(2**0.5, looks[-1], len(self.questions), alpha=ALPHA / len(looks))

    def asked_in(self, record: Record) -> bool:
        """Whether a record is of this study as it is: of the same runs, read by the same rules."""
        asked = {name: value for name, value in self.to_json().items() if name not in CHANGES_NO_VERDICT}
        return all(record.config.get(name) == value for name, value in asked.items())

    def confirmation(self, report: Report) -> "Study":
        """This study with fresh seeds, as many as it came to, and each arm at the learning rate that was its best.

        Nothing is chosen by its runs any more, neither rates nor the number of seeds, so that what the study said by
        chance, or because its plan was changed on the way, is not said twice.

        Args:
          report: on this study.

        Raises:
          ConfigError: the report is on another study, or lacks an arm.
        """
        if report.name != self.name or not self.asked_in(report.record):
            raise ConfigError(f"study {self.name}: the report is on {report.name}, or not on the study as it is")
        if report.failed:
            raise ConfigError(f"study {self.name}: arm {next(iter(report.failed))} could not be computed")
        used = [seed for arm in report.record.arms.values() for seed in arm.seeds]
        return dataclasses.replace(
            self,
            name=f"{self.name}{CONFIRMATION}",
            arms={arm.name: {**self.arms[arm.name], RATE: arm.learning_rate} for arm in report.arms},
            seeds=max(arm.seeds for arm in report.arms),
            max_seeds=None,
            minutes=None,
            first_seed=max(self.first_seed + max(FRESH, self.looks[-1]), 1 + max(used)),
        )

    def run(
        self,
        workdir: str | Path,
        *,
        data: Dataset | None = None,
        engine: Engine = LOCAL,
        mesh: MeshConfig = AUTOMATIC,
        runs: str | Path | None = None,
        initial: Params | None = None,
        looks: int | None = None,
        log: Sequence[Tracker] = (),
        unresolved: Unresolved = Report.unresolved,
        say: Callable[[str], None] = print,
    ) -> Report:
        """Run what is not computed yet; write the report.

        Finished runs are read, interrupted ones continue where they stopped, and an arm that fails does
        not stop the others: the report names it with its error.

        Args:
          workdir: the folder of the study, made where there is none.
          data: None: loaded as the base says.
          engine: computes the arms, in this process or in others.
          mesh: how the devices of each process share the work.
          runs: the folder of finished runs, which studies may share; None: `runs` in workdir.
          initial: the parameters of one model from which all runs begin, as in `train`, so that ways to go on from a
            trained model are compared; an arm's parameters that it lacks have their usual values.
          looks: stop after this many of the planned looks, for now; None: go on until all questions are answered.
          log: where the training is shown, as a group of runs with the name of the study; each is a cell, and has
            the name of its arm.
          unresolved: the questions of a report that get more seeds, up to `max_seeds`.
          say: called with each line of progress.

        Raises:
          ConfigError: an arm is impossible, the engine is not available, or another process runs this study.
          StudyError: the baseline or all other arms could not be computed.
          Interrupted: a signal asked to stop; the states are saved.
        """
        check_trackers(log)
        if looks is not None and looks < 1:
            raise ConfigError(f"study {self.name}: looks: {looks} is not a positive number")
        workdir = Path(workdir)
        data = load_data(self.base.data) if data is None else data
        check_data(data, f"study {self.name}")
        check_initial(initial, f"study {self.name}")
        arms = prepared(self, data, workdir, initial)
        with locked(workdir):
            self._check_folder(workdir)
            stored = Path(runs or workdir / "runs")
            running = Running(
                self,
                workdir,
                runs=stored,
                data=data,
                arms=arms,
                engine=engine,
                mesh=mesh,
                say=say,
                trackers=log,
                unresolved=unresolved,
            )
            return running.run(looks)

    def _check_folder(self, workdir: Path) -> None:
        """Raise `ConfigError` where a folder holds another study, a run or a model."""
        if (workdir / CONFIG).exists():
            raise ConfigError(f"study {self.name}: {workdir} holds a run or a model; give it a folder of its own")
        try:
            other = read_record(workdir).name
        except ConfigError:  # there is none, or it is damaged, and is written again
            return
        if other != self.name:
            raise ConfigError(f"study {self.name}: {workdir} holds the study {other}; give it a folder of its own")

    def plan(self, arms: Mapping[str, Arm]) -> dict[str, Any]:
        """Question, metric, margin, arms and stopping rule as JSON data."""
        return {
            "question": self.question,
            "metric": self.metric,
            **({"tuned_by": self.tuned_by} if self.tuned_by else {}),
            "margin": self.margin,
            "fails_above": self.fails_above,
            "baseline": self.baseline_name,
            "arms": {name: {"config": arm.sha256, "learning_rates": list(arm.rates)} for name, arm in arms.items()},
            "contrasts": to_json(self.contrasts),
            "first_seed": self.first_seed,
            "looks": list(self.looks),
            "minutes": self.minutes,
            "alpha": ALPHA,
            "probes": [str(probe) for probe in self.probes],
        }

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON data."""
        return {f.name: to_json(getattr(self, f.name)) for f in dataclasses.fields(self)}
