"""The two models that most claims are asked of: what a reader has to know, and where they end."""

from collections import Counter
from collections.abc import Sequence

from experiments.answers import Effect
from experiments.bases import USUAL
from transformer.study.report import Report

TIMES = 4
"""How many times as many steps the longer training of the bases has."""
BASES = """
## The bases

Most claims are asked of two language models of 2 layers of width 64 with a context of 32 characters, *plain* as GPT-2
and *modern* as Llama, trained for 500 steps on Python's documentation (`experiments/bases.py`): what shows here shows
early and in small models. They end at {ends[0]} nats a character, and at {ends[1]} after 2,000 steps, where
counts of what followed four characters in all of the training text, of which 500 steps read a third, have {reference}
(the text of before 2026-11-29, with some paragraphs twice; that of now has 1.42).
By what the bases gain between the two, the margin of .02 is worth {worth} more steps.

- *With fresh seeds* is a study of its own: seeds from 1,000 on, as many as the answer before came to, each arm at the
  learning rate that was its best there, one look.
- Claims about a base are asked of the same runs of that base, so their verdicts are not independent of each other.
- Rates were tried up to .004 at first, which most arms took; .008 was added to all, and changed the verdicts of DyT,
  post-norm and MuonH (as it was asked then) alone. After 2,000 steps .016 and .001 were added to .002, .004 and .008:
  DyT takes the first in both bases, Muon and schedule-free AdamW in the plain one, AdEMAMix and a single head the
  second in the modern one, no base takes either, and one verdict changed, that of AdEMAMix in the modern base.
- Of sixteen seeds of the plain base two end at 2.36 and 2.37 at its best rate, .004, where the others have 2.15 to
  2.25. Both are among the last eight, so some of its intervals are wider with sixteen seeds than with eight.
- The words and expectations of claims are no part of the plans, which are hashed; the history of their files has them,
  and a recipe says where they were others at first. The plans of fresh seeds contain them, except the first six of
  these.
- One that is counted as *opposite* says less than that: a cost of `parallel_block` in small models is what the
  paper's own trend from 62B to 8B says.
- Four were asked again on 2026-11-30, because ways of ours had decided them: `randomized_positions` was
  evaluated at positions nearer to each other than in training; strings for `negative_eigenvalues` were hardly ever
  short; `hyperball` held matrices at norms of our small initial values; `reversed_addition` ended on a plateau. And
  `lion` on 2026-12-01: with the β of its paper it averages over a tenth of these runs. Their pages say what was found
  before.
- Two claims were withdrawn. That a gate takes away the attention to the first token: in these models that is .064, less
  than an even share, .099, so there is no sink to take away. And that copying what is scattered needs decays that
  depend on the input: fixed ones were ahead by .206 [.063, .348], and by .282 with fresh seeds, which would count as
  opposite, but lightning attention and Mamba-2 differ in more than that, and both were still learning.
""".strip()


def bases(asked: Sequence[Effect]) -> str:
    """What the bases are, and where they end."""
    early = [each.first.report for each in asked]
    losses = [_ends(asked, again=again).values() for again in (False, True)]
    ends = [" and ".join("–" if loss is None else f"{loss:.2f}" for loss in own) for own in losses]
    worth = " and ".join(f"{100 * (speed(USUAL['margin'], gain) - 1):.0f} %" for gain in gains(asked).values())
    references = [report.record.reference for report in early if "plain" in report.record.arms]
    reference = next((f"{loss:.2f}" for _, loss in filter(None, references)), "–")
    return BASES.format(ends=ends, reference=reference, worth=worth or "–")


def gains(asked: Sequence[Effect]) -> dict[str, float]:
    """What each base gains by training `TIMES` times as long, in nats."""
    early, late = (_ends(asked, again=again) for again in (False, True))
    return {base: loss - after for base, loss in early.items() if loss and (after := late[base])}


def speed(difference: float, gain: float) -> float:
    """How many times as many steps a lower loss is worth, if each such factor gains the same.

    Args:
      difference: of losses, how much lower.
      gain: of `TIMES` times as many steps.
    """
    return TIMES ** (difference / gain)


def _ends(asked: Sequence[Effect], *, again: bool) -> dict[str, float | None]:
    """The loss of each base, as most studies have it, over the most seeds; None where no study has it."""
    reports = [each.again.report for each in asked if each.again] if again else [each.first.report for each in asked]
    return {base: _end(reports, base) for base in ("plain", "modern")}


def _end(reports: Sequence[Report], base: str) -> float | None:
    arms = [(report.record.arms[base].config, arm) for report in reports for arm in report.arms if arm.name == base]
    if not arms:
        return None
    usual = Counter(config for config, _ in arms).most_common(1)[0][0]
    longest = max((arm for config, arm in arms if config == usual), key=lambda arm: arm.seeds)
    return longest.metrics["loss"].value
