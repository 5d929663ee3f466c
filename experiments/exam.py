"""The exam: every mixer and option asked the same skills.

    python -m experiments.exam --minutes 60                               what is least resolved first
    python -m experiments.exam --models softmax "gated deltanet" --skills recall parity
    python -m experiments.exam --models softmax 'mine: model.mixer=min_gru model.position=none' --skills recall
    python -m experiments.exam --minutes 0                                the page alone, from the runs that are there
    python -m experiments.exam published --skills "MAD compression"       the settings of a paper, on a GPU

All models of a skill have as many parameters as the first, a learning rate of their own, and at least four seeds. The
table is in `docs/exam.md`, the numbers of all runs in `experiments/evidence/exam`, from which a later call goes on
where they are of the present order of rows, and those of before 2026-11-29 are not; where this is not a checkout, both
are in `--workdir`. With `--models` or `--skills` results are in `--workdir` alone. So are those of the preset
`published`, whose skills are in `experiments/published_skills.py`.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from experiments import cli
from experiments.atlas import EVIDENCE, kept_in
from experiments.bases import PLAIN, Changes
from experiments.compare import read_choice
from experiments.evidence_pages import machine
from experiments.published_skills import PUBLISHED
from experiments.shortcuts import share_right
from experiments.skills import MODELS, SKILLS, examination, study_name
from transformer.analysis import plots
from transformer.core import runtime
from transformer.core.errors import ConfigError, nearest
from transformer.core.files import write_durably
from transformer.study.analyse import read_study
from transformer.study.archive import Archives
from transformer.study.engines import LOCAL, Engine
from transformer.study.report import ArmReport, Report
from transformer.study.statistics import ALPHA
from transformer.study.study import Study
from transformer.study.study_queue import StudyQueue

BUDGETS = {"laptop": SKILLS, "published": PUBLISHED}


@dataclass(frozen=True, kw_only=True)
class Command:
    budget: Literal["laptop", "published"] = "laptop"
    """Which skills: small ones for minutes on two cores, or those of papers at their sizes, for a GPU."""
    workdir: Path = Path("results/exam")
    """Folder of the studies, one for each skill."""
    models: tuple[str, ...] = ()
    """Models to ask, of which the first is what the others are compared with; empty: all. One of your own has the form
    NAME: FIELD=VALUE FIELD=VALUE."""
    skills: tuple[str, ...] = ()
    """Skills to ask for; empty: all."""
    minutes: float | None = None
    """Time after which no skill is begun or gets more seeds; None: until all are decided or have all their seeds."""
    looks: int | None = None
    """Most looks at a skill, each with twice the seeds; None: as many as are planned."""
    engine: Engine = LOCAL
    """Where models are trained: local, dask, dask(workers=2), or a running scheduler, tls://host:port."""

    def __post_init__(self):
        shipped = [name for name in self.models if "=" not in name]
        for where, names, known in (("models", shipped, MODELS), ("skills", self.skills, BUDGETS[self.budget])):
            if unknown := [name for name in names if name not in known]:
                raise ConfigError(f"{where}: unknown value {unknown[0]!r}{nearest(unknown[0], known)}")
        called = [asked(model)[0] for model in self.models]
        if twice := [name for name in called if called.count(name) > 1]:
            raise ConfigError(f"models: two are called {twice[0]!r}")
        if len(self.models) == 1:
            raise ConfigError(f"models: {self.models[0]} alone; an exam compares at least two")

    @property
    def whole(self) -> bool:
        """Whether this is the exam of the pages: all laptop skills and all models."""
        return self.budget == "laptop" and not (self.models or self.skills)

    @property
    def studies(self) -> dict[str, Study]:
        """A study for each skill, by the name of its files."""
        models, skills = dict(map(asked, self.models or MODELS)), BUDGETS[self.budget]
        made = [examination(name, skills[name], models) for name in self.skills or skills]
        return {study.name: study for study in made}


def asked(model: str) -> tuple[str, Changes]:
    """The name of a model, and its changes to the run of a skill: one of `MODELS`, or one of your own."""
    if "=" not in model:
        return model, MODELS[model]
    name, changes = read_choice(model, "models")
    return name, {path: cli.value_at(PLAIN, path, text) for path, text in changes.items()}


PRESETS = {"laptop": Command(), "published": Command(budget="published")}


def main() -> None:
    command = cli.parse(Command, PRESETS, description=__doc__)
    folder = command.workdir / ("all" if command.whole else "some")
    evidence, pages = kept_in(command.workdir) if command.whole else (EVIDENCE, None)
    archives = evidence / "exam"
    exam = StudyQueue(command.studies, folder, archives if command.whole else None, command.looks, command.engine)
    runtime.start()
    exam.restore(archives)
    exam.run(command.minutes)
    if pages:
        write(archived(archives), pages)
    else:
        found = {name: read_study(exam.folder / name) for name in exam.studies if exam.looked(name)}
        write(found, exam.folder)
        print(f"exam.md and exam.png are in {exam.folder}" if found else "no skill was examined: give more --minutes")
    if exam.failed:
        sys.exit(1)


def archived(archives: Path) -> dict[str, Report]:
    """The reports of all skills that have an archive."""
    kept = Archives(archives)
    return {report.name: report for report in map(kept.report, kept.names())}


def write(reports: Mapping[str, Report], folder: Path) -> None:
    """Write the table as exam.md, and its picture as exam.png."""
    if reports:
        write_durably(folder / "exam.md", table(reports))
        figure = picture(reports)
        figure.savefig(folder / "exam.png", dpi=90, metadata={"Software": None})
        plt.close(figure)


def scores(reports: Mapping[str, Report]) -> tuple[list[str], np.ndarray]:
    """Names of models, the best on average first, and their means (models, skills); NaN for what is missing, which
    counts as 0 in the order, as a failed run does in a mean."""
    found = [{arm.name: _mean(arm) for arm in report.arms} for report in reports.values()]
    names = list(dict.fromkeys(name for each in found for name in each))
    values = np.array([[each.get(name) for each in found] for name in names], float)
    order = np.argsort(-np.nan_to_num(values).mean(1), kind="stable")
    return [names[i] for i in order], values[order]


def table(reports: Mapping[str, Report]) -> str:
    """The text of exam.md."""
    names, values = scores(reports)
    cells = [{arm.name: arm for arm in report.arms} for report in reports.values()]
    seeds = [arm.seeds for each in cells for arm in each.values()]
    baseline = next(iter(reports.values())).baseline
    sizes = [arm.parameters / each[baseline].parameters for each in cells for arm in each.values()]
    matched = f", all of as many parameters as {baseline}" if max(sizes) < 1.05 and min(sizes) > 0.95 else ""
    rows = [["model", "mean", "places", *map(_said, reports)], ["---"] * (3 + len(reports))]
    for name, row, (first, last) in zip(names, values, places(reports, names), strict=True):
        mean = f"{np.nan_to_num(row).mean():.2f}" if np.isfinite(row).any() else "–"
        rows.append([name, mean, f"{first}–{last}", *(_cell(each.get(name)) for each in cells)])
    if floors := without_the_skill(reports):
        shares = (f"{floors[name][0]:.2f}" if name in floors else "–" for name in reports)
        rows.append(["without the skill", "–", "–", *shares])
    missing = ", where what is missing counts as 0" * bool(np.isnan(values).any())
    count = str(min(seeds)) if min(seeds) == max(seeds) else f"{min(seeds)} to {max(seeds)}"
    dates = sorted(report.record.plan["written"][:10] for report in reports.values())
    hours = sum(arm.seconds for each in cells for arm in each.values()) / 3600
    tried = sorted({rate for each in cells for arm in each.values() for rate in arm.learning_rates})
    runs = sum(arm.seeds * len(arm.learning_rates) for each in cells for arm in each.values())
    parts = [
        "# Exam",
        f"The share of right answer tokens of each model in {len(reports)} skills (mean over {count} seeds, half the "
        f"width of its 95 % interval), at a learning rate chosen for each{matched}. **Bold**: better than {baseline}, "
        "*italic*: worse; their intervals hold together with those of their column, so with "
        f"{min(seeds)} seeds, {len(names) - 1} comparisons and all planned looks a mean difference of less than "
        f"{_told_from(reports):.1f} of its standard deviations is neither, which is not to say equal; rows are in the "
        f"order of their means{missing}, and *places* has 95 % of a model's ranks when skills and seeds are resampled "
        "with replacement. Skills and sizes are in "
        "`experiments/skills.py`, where most are trained for 600 steps of 16 examples, so that the table says who "
        "learns soon, not who can; those of papers are in `experiments/published_skills.py`. A model of your "
        "own takes it too: [your own variants](variants.md#mixer-and-recurrence).",
        f"`python -m experiments.exam`: {runs:,} runs at rates of {', '.join(f'{rate:g}' for rate in tried)}"
        f"{', so that every choice is at an end' * (len(tried) == 2)}, {hours:.1f} core-hours on "
        f"{machine(reports.values())}; plans of {' to '.join(sorted({dates[0], dates[-1]}))}.",
        "![right answers by model and skill](exam.png)",
        "\n".join(f"| {' | '.join(row)} |" for row in rows),
        *([f"{WITHOUT} {'; '.join(f'{_said(name)}: {how}' for name, (_, how) in floors.items())}."] if floors else []),
        *([CONFOUNDED] if set(MODELS) <= set(names) else []),
    ]
    return "\n\n".join(parts) + "\n"


WITHOUT = (
    "The last row is of what answers without the skill, so that a share at or below it shows nothing of it, and "
    "neither do differences there:"
)
CONFOUNDED = (
    "Models differ in more than their names say. DeltaNet, its gated forms and Mamba-2 come with a convolution of "
    "four tokens, as published, and RWKV-7 mixes in the token before; softmax, linear, GLA and minGRU have none, and "
    "a convolution alone takes softmax to the place of *short convolution*. The state of minGRU is a sixteenth of "
    "that of GLA. A window of 8 sees all of a sum, and is softmax there. Tests of *longer* have texts of all lengths "
    "up to the longest, also those of training. Of modular sums a hundred are held out, in one batch, so that rates "
    "are chosen by the answers that are shown. Strings for parity come as often as they are drawn; of distinct ones "
    "few are short, and without these every model but one had 0.49. Parity of so few bits is also a table of how many "
    "there are of each, which has 0.99 of it: sums over the tokens are enough. All runs but those of parity are of "
    "the [order of rows](statistics.md#what-it-cannot-do) of before 2026-11-29, and RWKV-7 began with other shares of "
    "the token before; as both are now, it has 0.61 ± 0.05 of the phone book, 0.93 ± 0.01 of copying longer and 0.01 "
    "± 0.02 of modular sums, and softmax 0.33 ± 0.04, 0.53 ± 0.01 and 0.55 ± 0.15."
)


def without_the_skill(reports: Mapping[str, Report]) -> dict[str, tuple[float, str]]:
    """Of the skills among these that say how: the share that a predictor without it has right, and what it answers."""
    found = {}
    for name, skill in SKILLS.items():
        if skill.shortcut and (study := study_name(name)) in reports:
            share = share_right(skill.shortcut, examination(name, skill).base.data)
            found[study] = share, skill.shortcut.__doc__ or ""
    return found


def _said(study: str) -> str:
    return study.replace("_", " ")


def places(reports: Mapping[str, Report], names: Sequence[str]) -> list[tuple[int, int]]:
    """95 % interval of each model's place by its mean, over skills and seeds drawn with replacement (Efron 1979).

    All models have the same draws; what is missing counts as 0, as in the order.
    """
    found = [{arm.name: arm.estimates for arm in report.arms} for report in reports.values()]
    count = min(len(own) for each in found for own in each.values())
    runs_MSR = np.array([[each.get(name, [0.0] * count)[:count] for each in found] for name in names])
    rng, num_skills = np.random.default_rng(0), len(found)
    skills = rng.integers(0, num_skills, (DRAWS, num_skills, 1))
    seeds = rng.integers(0, count, (DRAWS, num_skills, count))
    means_MD = np.nan_to_num(runs_MSR)[:, skills, seeds].mean((2, 3))
    places_MD = 1 + (means_MD[None] > means_MD[:, None]).sum(1)
    low, high = np.quantile(places_MD, [ALPHA / 2, 1 - ALPHA / 2], axis=1, method="closest_observation").astype(int)
    return list(zip(low.tolist(), high.tolist(), strict=True))


DRAWS = 2_000


def _told_from(reports: Mapping[str, Report]) -> float:
    """The least mean difference that some column calls better or worse, in standard deviations of the difference."""
    needed = []
    for record in (report.record for report in reports.values()):
        n, level = min(len(arm.seeds) for arm in record.arms.values()), ALPHA / len(record.looks)
        needed.append(float(stats.t.isf(level / max(len(record.questions), 1) / 2, n - 1)) / math.sqrt(n))
    return min(needed)


def _mean(arm: ArmReport) -> float | None:
    """Of all runs, of which one that failed counts as 0; None where the metric is not defined."""
    if arm.primary.value is None and not arm.failed:
        return None
    return (arm.primary.value or 0.0) * (1 - arm.failed / arm.seeds)


def _cell(arm: ArmReport | None) -> str:
    if arm is None or (mean := _mean(arm)) is None:
        return "–"
    # The interval would be that of the runs that are left.
    spread = f", {arm.failed} failed" if arm.failed else f" ± {min(arm.primary.interval.half, 1):.2f}"
    said = f"{mean:.2f}{spread}"
    return {"better": f"**{said}**", "worse": f"*{said}*"}.get(arm.verdict, said)


def picture(reports: Mapping[str, Report]):
    """Right answers as colours."""
    names, values = scores(reports)
    columns = [name.replace("_", " ") for name in reports]
    return plots.heat_map(values, rows=names, columns=columns, label="right answers")


if __name__ == "__main__":
    cli.main(main)
