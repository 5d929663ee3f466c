"""What a reader should know of all answers before believing one, counted: a line each."""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from experiments.answers import Answer, Effect, asked_twice, effects
from transformer.study.report import ArmReport, Report
from transformer.study.statistics import ALPHA, UNKNOWN

TOLD = ("better", "worse")
"""Verdicts of a study that tell a sign."""
EIGHT = 8
"""Seeds of a first look."""
DRAWS = 20_000
NORMAL = 40
"""Sets of normal differences, for comparison."""


def doubts(found: Sequence[Answer]) -> list[str]:
    """All that there are."""
    return [
        *of_fresh_seeds(found),
        *of_order(found),
        *of_plans(found),
        *of_verdicts(found),
        of_budgets(found),
        *of_ranks(found),
        *of_few_seeds(found),
        *of_short_training(found),
    ]


def of_fresh_seeds(found: Sequence[Answer]) -> list[str]:
    """What runs of which nothing was chosen find again."""
    if not (twice := asked_twice(effects(found))):
        return []
    findings = [(first.findings[question], fresh.findings[question]) for first, fresh, question in twice]
    settled, same, still_open = _came_out(findings)
    each = [
        f"{sum(now == word for now in own)} of {len(own)} of those that were *{word}*"
        for word in ("reproduced", "opposite")
        if (own := [now for before, now in settled if before == word])
    ]
    bases = [sum(base in first.report.record.questions[q] for first, _, q in twice) for base in ("plain", "modern")]
    answers = [(first.report.contrasts[question], fresh.report.contrasts[question]) for first, fresh, question in twice]
    left = [now.difference / before.difference for before, now in answers if before.verdict in TOLD]
    pairs = [[_differences(each.report, each.report.record.questions[q]) for each in both] for *both, q in twice]
    pairs = [own for own in pairs if all(each is not None for each in own)]
    p = [float(np.asarray(stats.ttest_ind(*own, equal_var=False))[1]) for own in pairs]
    return [
        f"**Fresh seeds.** {len(twice)} of the questions counted were asked once more of other runs: of other seeds, "
        f"at the rates that had been best, with one look. Of {len(settled)} verdicts {same} came out the "
        f"same ({', '.join(each)}), {still_open} open and {len(settled) - same - still_open} otherwise. Of {len(left)} "
        f"differences whose sign was told {sum(np.array(left) > 0)} have the same sign, and {np.median(left):.2f} of "
        "their size is left in the median: much less than 1 would say that choosing had added to them. First and fresh "
        f"differences are apart with p < {ALPHA} in {sum(np.array(p) < ALPHA)} of {len(p)} questions (Welch's test), "
        f"where chance alone has {ALPHA * len(p):.0f} if they were independent: {bases[0]} are differences to one "
        f"baseline, the plain base, and {bases[1]} to another, the modern one."
    ]


def _came_out(findings: Sequence[tuple[str, str]]) -> tuple[list[tuple[str, str]], int, int]:
    """Of (before, now) those that were told before, how many of these are the same now, and how many open."""
    settled = [(before, now) for before, now in findings if before != "unresolved"]
    same = sum(before == now for before, now in settled)
    return settled, same, sum(now == "unresolved" for _, now in settled)


def of_order(found: Sequence[Answer]) -> list[str]:
    """What another order of rows and a text without repetitions find again."""
    twice = asked_twice(effects(found))
    moved = [
        (first.findings[question], fresh.findings[question])
        for first, fresh, question in twice
        if first.older and not fresh.older
    ]
    if not moved:
        return []
    settled, same, still_open = _came_out(moved)
    return [
        f"**Order and text.** {len(moved)} of the questions counted were asked of fresh seeds with the order of rows "
        "and the text as they are now, but with those of before 2026-11-29 at first, when both were a little worse "
        f"([how](statistics.md#what-it-cannot-do)); the other {len(twice) - len(moved)} were asked with the same "
        f"both times. Of {len(settled)} verdicts {same} came out the same, {still_open} open and "
        f"{len(settled) - same - still_open} otherwise."
    ]


def of_plans(found: Sequence[Answer]) -> list[str]:
    """Rates at an end, plans that were written or changed late, and how much pairing helped."""
    ends = sum(any(_at_an_end(arm) for arm in each.report.arms) for each in found)
    plans = [each.report.record.plan for each in found]
    seen = sum(plan["runs_there"] > 0 for plan in plans)
    changes = [[path for change in plan["changes"] for path in change["changed"]] for plan in plans if plan["changes"]]
    rates = sum(all(path.endswith(".learning_rates") for path in changed) for changed in changes)
    correlations = [
        answer.correlation
        for each in found
        for answer in each.report.contrasts.values()
        if answer.correlation is not None and np.isfinite(answer.correlation)
    ]
    fresh = [each.fresh for each in found if each.fresh]
    known = sum(each.report.record.plan["runs_there"] > 0 for each in fresh)
    changed = [f"`{each.claim.name}`" for each in fresh if each.report.record.plan["changes"]]
    named = f" ({', '.join(changed)})" * bool(changed)
    return [
        f"**Rates.** In {ends} of {len(found)} studies some arm takes the lowest or highest of the rates it was tried "
        "at, as its page says.",
        f"**Plans.** Runs are shared, so {seen} plans were written when some of their runs were there; {len(changes)} "
        f"were changed later, {rates} of these by learning rates alone, and the pages say how. Of the {len(fresh)} "
        f"plans of fresh seeds {known} were written when some of their runs were there, mostly those of a base, and "
        f"{len(changed)} changed later{named}.",
        f"**Pairs.** Pairing by seed helps some: the median of ρ is {np.median(correlations):.2f}.",
    ]


def of_verdicts(found: Sequence[Answer]) -> list[str]:
    """What may be chance among the verdicts that are counted, what is easier to reach, and what is unfinished."""
    asked = effects(found)
    counted = [
        (finding, each.claim.expected[question], each.report.contrasts[question], each.report)
        for each in (effect.counted for effect in asked)
        for question, finding in each.findings.items()
    ]
    open_ones = [(effect, q) for effect in asked for q, word in effect.counted.findings.items() if word == "unresolved"]
    reports = [(effect.latest.report, question) for effect, question in open_ones]
    waiting = sum(report.contrasts[question].n == report.record.looks[0] for report, question in reports)
    told = sum(answer.verdict in TOLD for _, _, answer, _ in counted)
    practices = [effect for effect in asked if not effect.first.claim.measured]
    unmeasured = sum(finding == "reproduced" for each in practices for finding in each.counted.findings.values())
    lenient = [answer for finding, expected, answer, _ in counted if (finding, expected) == ("reproduced", "not worse")]
    equal = sum(answer.verdict == "equivalent" for answer in lenient)
    small = sum(
        abs(answer.difference) < report.record.margin
        for finding, expected, answer, report in counted
        if finding in ("reproduced", "opposite") and expected in TOLD
    )
    return [
        f"**Chance.** Each study errs with 5 % where runs are normal: of the {len(asked)} that are counted, "
        f"{ALPHA * len(asked):.0f} may by chance. Of the {told} questions counted whose sign is told, "
        f"{told - len(told_alone(asked))} are told if all {len(counted)} are corrected together (Holm 1979); the "
        "others have a †.",
        f"**Practices.** {unmeasured} of what is counted as *reproduced* "
        f"({', '.join(f'`{each.first.claim.name}`' for each in practices)}) is a practice whose source has no number "
        "for it: there is nothing to be the same as.",
        f"**Kind words.** {len(lenient)} of what is counted as *reproduced* is *not worse*, which is easier to reach "
        f"than a sign: in {equal} of these no difference is larger than the margin either way.",
        f"**Small differences.** In {small} counted as *reproduced* or *opposite* by their sign the difference itself "
        "is within the margin.",
        f"**Unfinished.** {waiting} of the {len(reports)} that are unresolved have the seeds of the first of two or "
        "three looks alone. At the last one some would still be open, as their intervals say.",
    ]


def told_alone(asked: Sequence[Effect]) -> set[tuple[str, str]]:
    """(name of the effect, question) of the signs that are told, but not if all questions are corrected together."""
    keys = [(effect, question) for effect in asked for question in effect.counted.findings]
    answers = [effect.counted.report.contrasts[question] for effect, question in keys]
    p = [answer.p / len(effect.counted.report.contrasts) for answer, (effect, _) in zip(answers, keys, strict=True)]
    kept = set(np.argsort(p, kind="stable")[: holm(p)])
    return {
        (effect.first.claim.name, question)
        for number, ((effect, question), answer) in enumerate(zip(keys, answers, strict=True))
        if answer.verdict in TOLD and number not in kept
    }


def of_budgets(found: Sequence[Answer]) -> str:
    """Claims whose sides are not of a size."""
    more = {what: [each.claim.name for each in found if _spread(each, what) > MORE] for what in ("parameters", "flops")}
    names = [", ".join(f"`{name}`" for name in own if not name.endswith("_2000")) for own in more.values()]
    return (
        "**Sizes.** Arms of a question need not be of one size where the paper's are not. They differ by more than "
        f"{100 * MORE:.0f} % in parameters in {len(more['parameters'])} studies ({names[0]}, some of them at both "
        f"lengths), and in operations in {len(more['flops'])} ({names[1]}); the pages have the numbers of each arm."
    )


MORE = 0.05
"""Difference of budgets that is said."""


def _spread(each: Answer, what: str) -> float:
    """By how much the largest arm of a question has more of `what` than the smallest, in the worst question."""
    sizes = {arm.name: getattr(arm, what) for arm in each.report.arms}
    asked = [[sizes[name] for name in arms] for arms in each.report.record.questions.values()]
    return max(max(own) / min(own) - 1 for own in asked)


def holm(p: Sequence[float]) -> int:
    """How many of some questions have an answer, if that of any has to be wrong with 5 % (Holm 1979)."""
    ordered = np.sort(np.asarray(p)) * np.arange(len(p), 0, -1)
    return int(np.argmax(np.append(ordered >= ALPHA, True)))


def of_ranks(found: Sequence[Answer]) -> list[str]:
    """What signed ranks leave of the signs that means tell."""
    counted = [effect.counted for effect in effects(found)]
    told = [
        (f"`{each.claim.name}`, {question}", each.report.contrasts[question])
        for each in counted
        for question in each.findings
        if each.report.contrasts[question].verdict in TOLD and each.report.contrasts[question].deviation is not None
    ]
    few = [name for name, answer in told if answer.by_ranks == UNKNOWN]
    open_ones = [name for name, answer in told if name not in few and answer.by_ranks.low <= 0 <= answer.by_ranks.high]
    turned = [name for name, answer in told if answer.difference > 0 > answer.by_ranks.high]
    turned += [name for name, answer in told if answer.difference < 0 < answer.by_ranks.low]
    same = len(told) - len(few) - len(open_ones) - len(turned)
    named = f" ({'; '.join(open_ones)})" if open_ones else ""
    return [
        f"**Bad runs.** Of the {len(told)} signs that means tell, signed ranks (Wilcoxon 1945) tell {same} too, "
        f"{len(turned)} the other way round, and {len(open_ones)} not{named}; for {len(few)} the seeds are too few for "
        "any ranks to tell."
    ]


def of_few_seeds(found: Sequence[Answer]) -> list[str]:
    """How often eight seeds tell a difference that is not there, in runs like those there are.

    Differences of pairs at the chosen rates, their mean taken away, are drawn with replacement.
    """
    rng, early, others, levels = np.random.default_rng(0), {}, {}, []
    for each in found:
        record = each.report.record
        for question, weights in record.contrasts.items():
            differences = _differences(each.report, weights)
            if differences is None or differences.size < 2 * EIGHT or not differences.std():
                continue
            level = ALPHA / len(record.looks) / len(record.contrasts)
            levels.append(level)
            kind = early if question == "plain" and not each.claim.instead else others
            kind[f"{each.claim.name}, {question}"] = _told_of_nothing(differences, level, rng)
    if not early or not others:
        return []
    worst = max(early, key=early.__getitem__)
    usual = float(np.median(levels))
    normal = [_told_of_nothing(rng.normal(size=2 * EIGHT), usual, rng) for _ in range(NORMAL)]
    return [
        "**Few seeds.** Eight are too few for the plain base after 500 steps. "
        f"{len(early) + len(others)} questions have sixteen pairs. If their mean difference is taken away, so that "
        "there is nothing to find, and eight pairs are drawn with replacement, the test tells a difference "
        f"{np.median(list(early.values())):.1f} times as often as its level (mostly {100 * usual:.1f} %, "
        f"which is {ALPHA} over looks and questions) in the median of those about the plain base, {early[worst]:.0f} "
        f"times in the worst ({worst}), and {np.median(list(others.values())):.1f} "
        f"times in the median of the others; of sixteen normal differences it is {np.median(normal):.1f} times, by "
        "this way of drawing alone. Bad runs of the plain base are why: eight seeds may have none, and no interval "
        "knows of what it has not seen."
    ]


def _told_of_nothing(differences: np.ndarray, level: float, rng: np.random.Generator) -> float:
    """How often a test of eight of these, their mean taken away, tells a difference, in units of its level."""
    drawn = (differences - differences.mean())[rng.integers(0, differences.size, (DRAWS, EIGHT))]
    t = drawn.mean(1) / (drawn.std(1, ddof=1) / np.sqrt(EIGHT))
    return float((np.abs(t) > stats.t.isf(level / 2, EIGHT - 1)).mean() / level)


def _differences(report: Report, weights: Mapping[str, float]) -> np.ndarray | None:
    """By seed, one arm less another at their rates; None for questions of more arms or with failed runs."""
    arms = {arm.name: arm for arm in report.arms}
    if sorted(weights.values()) != [-1, 1]:
        return None
    rows = []
    for name, weight in weights.items():
        rows.append(weight * np.array(arms[name].estimates))
    count = min(map(len, rows))
    differences = np.sum([row[:count] for row in rows], axis=0)
    return differences if np.isfinite(differences).all() else None


def of_short_training(found: Sequence[Answer]) -> list[str]:
    """How much of what is told early is left after longer training."""
    early = {each.claim.name: each.report.contrasts for each in found}
    pairs = [
        (early[each.claim.instead][question], later)
        for each in found
        if each.claim.instead in early
        for question, later in each.report.contrasts.items()
        if early[each.claim.instead][question].verdict in TOLD
    ]
    if not pairs:
        return []
    ratios = [later.difference / first.difference for first, later in pairs]
    kept = sum(later.verdict == first.verdict for first, later in pairs)
    turned = sum(later.verdict in TOLD and later.verdict != first.verdict for first, later in pairs)
    return [
        f"**Short training.** Of {len(pairs)} differences that 500 steps told in effects that were asked again, {kept} "
        "are told after "
        f"2,000 with the same sign and {turned} with the other one; in the median of all, {np.median(ratios):.2f} of "
        "the difference is left: much of what is seen early is who learns sooner."
    ]


def _at_an_end(arm: ArmReport) -> bool:
    return len(arm.learning_rates) > 1 and arm.learning_rate in (arm.learning_rates[0], arm.learning_rates[-1])
