"""The pages of evidence, made from archives of studies: a table, a picture of all, and a page for each claim."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.answers import Answer, answers, said, sha256_of
from experiments.evidence_doubts import doubts
from transformer.analysis import plots
from transformer.core.files import write_durably
from transformer.study.archive import RUNS, SUFFIX
from transformer.study.claim import Claim
from transformer.study.report import Report

COLOURS = {
    "reproduced": "C2",
    "smaller": "C8",
    "opposite": "C3",
    "different": "C1",
    "not at this scale": "C0",
    "unresolved": "0.4",
}
"""Of the verdicts, in the picture."""
CHECKSUMS = "SHA256SUMS"
INTRODUCTION = """
Published effects, reproduced or refuted. Each is a claim with its study, a file under `experiments/effects`; this page
is made from the numbers of the runs in `experiments/evidence` (`python -m experiments.atlas --minutes 0`).
""".strip()
WORDS = """
**Reproduced**: the sign of the paper; where it found no difference, none larger than the margin; where it found a
choice *not worse*, as good as another or without a cost, that it is not worse by more than the margin. **Smaller**:
its sign, but the whole interval is within the margin. **Opposite**: the other sign. **Different**: better or worse by
more than the margin where the paper found no difference. **Not at this scale**: no difference larger than the margin
where the paper has one. **Unresolved**: none of these. Intervals of a claim hold together with 95 %, over all looks
at its results ([statistics.md](statistics.md)), where runs are as those of normal theory, which some here are not.
Learning rates are tuned for each arm, where the claim is not about a rate. The words and expectations of claims are
no part of the plans, which are hashed; the history of their files has them, and a recipe says where they were others
at first.
""".strip()
BASES = """
The bases are two language models of 2 layers of width 64 with a context of 32 characters, *plain* as GPT-2 and
*modern* as Llama, trained for 500 steps on Python's documentation (`experiments/bases.py`): what shows here shows
early and in small models. They end at 2.20 and 1.95 nats a character, and at 1.64 and 1.53 after 2,000 steps, where a
4-gram of all of the training text, of which 500 steps read a third, has 1.32. Claims about a base are asked of the
same runs of that base, so their verdicts are not independent of each other. Their rates were tried up to .004 at
first, which most arms took; .008 was added to all, and changed the verdicts of DyT, post-norm and MuonH alone. After
2,000 steps .016 and .001 were added to .002, .004 and .008: DyT takes the first in both bases, Muon and schedule-free
AdamW in the plain one, AdEMAMix and a single head the second in the modern one, no base takes either, and one verdict
changed, that of AdEMAMix in the modern base. One claim was withdrawn: that a gate takes away the attention to the
first token. In these models that is .064, less than an even share, .099, so there is no sink to take away. A row is run
again by `python -m experiments.atlas --only NAME --afresh`, NAME as in the address of its page.

Of sixteen seeds of the plain base two end at 2.36 and 2.38 at its best rate, .004, where the others have 2.15 to 2.25.
Both are among the last eight, so some of its intervals are wider with sixteen seeds than with eight.
""".strip()


def write(claims: Mapping[str, Claim], evidence: Path, docs: Path) -> None:
    """Write docs/evidence.md, the pages and pictures in docs/evidence, and the checksums of the archives."""
    found, folder = answers(claims, evidence), docs / "evidence"
    if not found:
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_durably(evidence / CHECKSUMS, checksums(evidence))
    write_durably(docs / "evidence.md", overview(found, claims))
    _save(forest(found), folder / "forest.png")
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
    replaced = {each.claim.instead for each in found}
    latest = Counter(finding for each in found if each.claim.name not in replaced for finding in each.findings.values())
    seconds: dict[str, float] = {}
    for each in found:
        seconds |= each.seconds
    dates = sorted(each.report.record.plan["written"][:10] for each in found)
    again = sum(1 for each in found if each.claim.instead)
    counted = ", ".join(f"{latest[finding]} {finding}" for finding in COLOURS if latest[finding])
    lines = [
        "# Evidence",
        f"{INTRODUCTION} {len(found) - again} effects, {sum(latest.values())} questions about them: {counted}. {again} "
        "of the effects were asked again of longer training, which is the verdict that is counted; in the picture the "
        f"earlier one is pale. {len(seconds):,} runs, {sum(seconds.values()) / 3600:.1f} core-hours on "
        f"{machine(each.report for each in found)}; plans of {dates[0]} to {dates[-1]}.",
        WORDS,
        *doubts(found),
        BASES,
        "![all differences in units of the margin](evidence/forest.png)",
    ]
    rows = [
        ["claim", "published", "question", "ours", "verdict", "seeds", "core-minutes"],
        ["---"] * 7,
        *(row for each in found for row in _rows(each)),
    ]
    parts = [*lines, "\n".join(f"| {' | '.join(row)} |" for row in rows)]
    answered = {each.claim.name for each in found}
    if waiting := [claim for name, claim in sorted(claims.items()) if name not in answered]:
        parts += [f"{len(waiting)} more claims are written down and not asked yet:"]
        parts += ["\n".join(f"- `{claim.name}`: {claim.text} ({claim.source})" for claim in waiting)]
    return "\n\n".join(parts) + "\n"


def _rows(each: Answer) -> list[list[str]]:
    claim, record = each.claim, each.report.record
    minutes, rows = sum(each.seconds.values()) / 60, []
    for question, finding in each.findings.items():
        answer = each.report.contrasts[question]
        first = [f"[{claim.text}](evidence/{claim.name}.md)", f"{claim.published} ({claim.source})"]
        ours = f"{record.metric} {said(answer)}"
        last = [ours, f"**{finding}**", str(answer.n), "" if rows else f"{minutes:.0f}"]
        rows.append([*(first if not rows else ["", ""]), f"{question}: {claim.expected[question]}", *last])
    return rows


def page(each: Answer) -> str:
    """The text of the page of a claim."""
    claim, report, record = each.claim, each.report, each.report.record
    _, columns, rows = report.tables()[0]
    parts = [
        f"# {claim.text}",
        f"{claim.source}. {claim.published}",
        *([claim.recipe] if claim.recipe else []),
        "\n".join(f"- {line}" for line in each.verdicts),
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
        f"{record.plan['sha256'][:16]}…; {machine([report])}.",
    ]
    return "\n\n".join(parts) + "\n"


def forest(found: Sequence[Answer]) -> Figure:
    """All answers in units of the margin, what is better to the right, in two columns."""
    rows = [(each, question) for each in found for question in each.findings]
    replaced = {each.claim.instead for each in found}
    half = -(-len(rows) // 2)
    columns = [rows[:half], rows[half:]] if len(rows) > 1 else [rows]
    size = (7 * len(columns), 1 + 0.2 * half)
    figure, axes = plt.subplots(1, len(columns), figsize=size, layout="constrained", sharex=True, squeeze=False)
    for own, part in zip(axes[0], columns, strict=True):
        _column(own, part, half, replaced)
    for finding, colour in COLOURS.items():
        axes[0, -1].plot([], [], "o", color=colour, label=finding)
    figure.legend(loc="outside lower center", ncols=len(COLOURS), fontsize=8)
    return figure


def _column(axes: Axes, rows: Sequence[tuple[Answer, str]], height: int, pale: Collection[str]) -> None:
    """Answers from the top down, on a scale that is linear within the margin; claims of some names are pale."""
    axes.axvspan(-1, 1, color="0.92")
    axes.axvline(0, color="0.5", linewidth=1)
    for y, (each, question) in enumerate(rows):
        answer, record = each.report.contrasts[question], each.report.record
        sign = 1 if record.higher_is_better[record.metric] else -1
        numbers = np.array([answer.interval.low, answer.difference, answer.interval.high]) * sign / record.margin
        low, middle, high = np.clip(np.sort(numbers) if np.isfinite(numbers).all() else numbers, -1e3, 1e3)
        colour = COLOURS[each.findings[question]]
        alpha = 0.3 if each.claim.name in pale else 1.0
        axes.plot([low, high], [y, y], color=colour, linewidth=1.5, alpha=alpha)
        axes.plot(middle, y, "o", color=colour, markersize=4, alpha=alpha)
    axes.set_xscale("symlog", linthresh=1.0)
    axes.set_yticks(range(len(rows)), [f"{each.claim.name}, {question}" for each, question in rows], fontsize=7)
    axes.set(xlabel="difference in units of the margin; better is to the right", ylim=(height - 0.3, -0.7))


def machine(reports: Iterable[Report]) -> str:
    """What studies ran on."""
    environments = [report.record.environment for report in reports]
    said = {f"{e['cores']} cores, Python {e['python']}, jax {e['packages']['jax']}" for e in environments}
    return " and ".join(sorted(said))


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=80, metadata={"Software": None})
    plt.close(figure)
