"""The pages of evidence, made from archives of studies: a table, a picture of all, and a page for each claim."""

import itertools
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from experiments import evidence_sizes
from experiments.answers import Answer, Effect, answers, asked_twice, effects, said, sha256_of
from experiments.evidence_bases import bases
from experiments.evidence_doubts import doubts, told_alone
from experiments.evidence_picture import COLOURS, forest
from transformer.analysis import plots
from transformer.core.files import write_durably
from transformer.study.archive import RUNS, SUFFIX
from transformer.study.claim import Claim
from transformer.study.plan import said as said_plan
from transformer.study.report import Report
from transformer.study.running import OTHER_RATES
from transformer.study.tables import verdicts

CHECKSUMS = "SHA256SUMS"
WORDS = """
## What the verdicts mean

- **Reproduced**: the sign of the paper; where it found no difference, none larger than the margin; where it found a
  choice *not worse*, as good as another or without a cost, that it is not worse by more than the margin.
- **Smaller**: its sign, but the whole interval is within the margin.
- **Opposite**: the other sign, and not all of the interval within the margin; where it found a choice *not worse*, that
  it is worse, by more than the margin at both ends of the interval.
- **Different**: better or worse by more than the margin where it found no difference.
- **Not at this scale**: no difference larger than the margin where it has one.
- **Unresolved**: none of these, or all pairs of runs the same, as where a task is too easy to tell arms apart.

Differences are of the loss in nats a character where no other metric is named, the first of two arms less the second.
Losses of papers are of subwords, of four characters or so: the margin of .02 is some .08 of theirs, more than many of
the differences they print. So *reproduced* is a sign and no size, and *not at this scale* says that the difference here
is smaller than the margin, not that it is smaller than in the paper. † marks a sign that its own study tells, and that
is not told if all questions here are corrected together. The intervals of a claim hold together with 95 %, over all
looks at its results ([statistics](statistics.md)), where runs are as those of normal theory, which some here are not.
Learning rates are tuned for each arm, where the claim is not about a rate.

Published numbers marked *from memory* were not looked up in the paper, and those marked *as reported by others* were
read in another text: look before you cite them.

Each claim with its study is a file under `experiments/effects`, and this page is made from the numbers of all runs in
`experiments/evidence` (`python -m experiments.atlas --minutes 0`). A row is run again by `python -m experiments.atlas
--only NAME --afresh`, NAME as in the address of its page.
""".strip()
COLUMNS = (
    "claim",
    "question",
    "asked first",
    "of longer training",
    "with fresh seeds",
    "seeds (first, longer)",
    "core-minutes (first, longer)",
    "published",
)
"""Of the tables."""


OLDER = "; with the order of rows (or the text) of an earlier version"
"""What is said of runs of before."""


def write(claims: Mapping[str, Claim], evidence: Path, docs: Path) -> None:
    """Write docs/evidence.md, the pages and pictures in docs/evidence, and the checksums of the archives."""
    found, folder = answers(claims, evidence), docs / "evidence"
    if not found:
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_durably(evidence / CHECKSUMS, checksums(evidence))
    write_durably(docs / "evidence.md", overview(found, claims))
    _save(forest(found), folder / "forest.png")
    _save(evidence_sizes.picture(effects(found)), folder / "sizes.png")
    for each in found:
        write_durably(folder / f"{each.claim.name}.md", page(each))
        curves = plots.loss_curves(each.report.curves, ylabel="training loss", reference=each.report.record.reference)
        _save(curves, folder / f"{each.claim.name}.png")


def checksums(evidence: Path) -> str:
    """What `sha256sum --check` reads, of all archives and their runs."""
    paths = [*sorted(evidence.glob(f"*{SUFFIX}")), *sorted((evidence / RUNS).glob(f"*{SUFFIX}"))]
    return "".join(f"{sha256_of(path)}  {path.relative_to(evidence)}\n" for path in paths)


def overview(found: Sequence[Answer], claims: Mapping[str, Claim]) -> str:
    """The text of docs/evidence.md; claims without an answer are listed at its end."""
    asked = effects(found)
    latest = Counter(finding for effect in asked for finding in effect.counted.findings.values())
    with_fresh = [*found, *(each.fresh for each in found if each.fresh)]
    seconds: dict[str, float] = {}
    for each in with_fresh:
        seconds |= each.seconds
    reports = [each.report for each in with_fresh]
    dates = sorted(report.record.plan["written"][:10] for report in reports)
    counted = ", ".join(f"{latest[finding]} {finding}" for finding in COLOURS if latest[finding])
    again, fresh = (sum(found) for found in zip(*((bool(e.again), bool(e.latest.fresh)) for e in asked), strict=True))
    uncorrected = told_alone(asked)
    parts = [
        "# Evidence",
        f"Published effects, asked again of small models. {len(asked)} effects, {sum(latest.values())} questions about "
        f"them: **{counted}**. {again} of the effects were asked again of longer training, and "
        f"{'all' if fresh == len(asked) else fresh} once more with fresh seeds, at the learning rates that had been "
        f"best: the last of these is the verdict that is counted. {_confirmed_in_all(asked)}Most are asked of two "
        "language models of 2 layers, *plain* as GPT-2 and *modern* as Llama ([the bases](#the-bases)). "
        f"{len(seconds):,} runs, {sum(seconds.values()) / 3600:.1f} core-hours on {machine(reports)}; plans of "
        f"{dates[0]} to {dates[-1]}.",
        "![all differences in units of the margin](evidence/forest.png)",
        "The grey band is the margin, the smallest difference that counts. What was asked again is pale; what fresh "
        "seeds found is a full circle, and what they were not asked an empty one.",
        WORDS,
        "## Before you believe a row",
        "\n".join(f"- {doubt}" for doubt in doubts(found)),
        *evidence_sizes.section(asked),
    ]
    for family, own in itertools.groupby(asked, lambda effect: effect.first.claim.family):
        rows = [COLUMNS, ["---"] * len(COLUMNS), *(row for effect in own for row in _rows(effect, uncorrected))]
        parts += [f"## {family.capitalize()}", "\n".join(f"| {' | '.join(row)} |" for row in rows)]
    parts.append(bases(asked))
    answered = {each.claim.name for each in found}
    if waiting := [claim for name, claim in sorted(claims.items()) if name not in answered]:
        parts += ["## Not asked yet"]
        parts += ["\n".join(f"- `{claim.name}`: {claim.text} ({claim.source})" for claim in waiting)]
    return "\n\n".join(parts) + "\n"


def _confirmed_in_all(asked: Sequence[Effect]) -> str:
    """How many verdicts fresh seeds came to again, as a sentence; empty where none were asked."""
    pairs = [(first.findings[question], fresh.findings[question]) for first, fresh, question in asked_twice(asked)]
    settled = [(first, fresh) for first, fresh in pairs if first != "unresolved"]
    same = sum(first == fresh for first, fresh in settled)
    told = f"Of the {len(settled)} questions whose verdict was another than *unresolved* before, {same} have the same "
    return f"{told}one with these. " * bool(settled)


def _rows(effect: Effect, uncorrected: Container[tuple[str, str]]) -> Iterator[list[str]]:
    """A row for each question, the first of which has what is said of the claim; some counted signs get a mark."""
    claim, looks = effect.first.claim, [each for each in effect if each is not None]
    minutes = ", ".join(f"{sum(each.seconds.values()) / 60:.0f}" for each in looks)
    once = [minutes, f"{claim.published} ({claim.source})"]
    for number, question in enumerate(effect.first.findings):
        seeds = ", ".join(str(each.report.contrasts[question].n) for each in looks)
        fresh, mark = effect.latest.fresh, " †" * ((claim.name, question) in uncorrected)
        marks = [mark * (each is effect.counted) for each in (effect.first, effect.again, fresh)]
        yield [
            "" if number else claim.text,
            f"{question}: {claim.expected[question]}",
            _found(effect.first, question) + marks[0],
            "" if effect.again is None else _found(effect.again, question) + marks[1],
            "" if fresh is None else f"{said(fresh.report.contrasts[question])} {fresh.findings[question]}" + marks[2],
            seeds,
            *(["", ""] if number else once),
        ]


def _found(each: Answer, question: str) -> str:
    """The answer to a question, whose verdict leads to its page."""
    metric, name = each.report.record.metric, each.claim.name
    what = "" if metric == "loss" else f"{metric} "
    return f"{what}{said(each.report.contrasts[question])} **[{each.findings[question]}](evidence/{name}.md)**"


def page(each: Answer) -> str:
    """The text of the page of a claim."""
    claim, report, record = each.claim, each.report, each.report.record
    _, columns, rows = verdicts(report)
    parts = [
        f"# {claim.text}",
        f"{claim.source}. {claim.published}",
        *([claim.recipe] if claim.recipe else []),
        "\n".join(f"- {line}" for line in each.verdicts),
        *(_confirmed(each, each.fresh) if each.fresh else []),
        *([claim.found] if claim.found else []),
        "\n".join(f"| {' | '.join(row)} |" for row in [columns, ["---"] * len(columns), *rows]),
        "\n".join(
            f"- {arm.name}: {arm.changes or 'the base'}; rate {arm.learning_rate:g}; {arm.parameters:,} parameters, "
            f"{arm.flops / 1e6:.1f} MFLOP a sequence"
            for arm in report.arms
        ),
        "\n".join(f"- {line}" for line in [*report.summary(), *report.warnings()]),
        f"![training loss]({claim.name}.png)",
        f"`{each.command}`; archive `experiments/evidence/{claim.name}{SUFFIX}`, sha256 {each.sha256[:16]}…; plan "
        f"{record.plan['sha256'][:16]}…; {machine([report])}{OLDER * each.older}.",
    ]
    return "\n\n".join(parts) + "\n"


def _confirmed(first: Answer, fresh: Answer) -> list[str]:
    """What fresh seeds said, in the page of a claim."""
    record = fresh.report.record
    doubts = [line for line in fresh.report.warnings() if not line.endswith(OTHER_RATES)]
    seeds = next(iter(record.arms.values())).seeds
    return [
        f"With fresh seeds, {seeds[0]} to {seeds[-1]}, and every arm at the learning rate that was its best:",
        "\n".join(f"- {line}" for line in fresh.verdicts),
        f"`python -m experiments.atlas --only {first.claim.name} --confirm --afresh`; archive "
        f"`experiments/evidence/{fresh.claim.name}{SUFFIX}`, sha256 {fresh.sha256[:16]}…; "
        f"{said_plan(record.plan).removesuffix('.')}{OLDER * fresh.older}.",
        *(["\n".join(f"- {line}" for line in doubts)] if doubts else []),
    ]


def machine(reports: Iterable[Report]) -> str:
    """What studies ran on."""
    environments = [report.record.environment for report in reports]
    cores = " or ".join(map(str, sorted({e["cores"] for e in environments})))
    versions = " and ".join(sorted({f"Python {e['python']}, jax {e['packages']['jax']}" for e in environments}))
    return f"{cores} core{'s' * (cores != '1')}, {versions}"


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=80, metadata={"Software": None})
    plt.close(figure)
