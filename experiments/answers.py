"""Claims with the reports that answer them, read from archives."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from transformer.data.order import ORDER
from transformer.data.pairs import Pairs, PairsConfig
from transformer.study.archive import SUFFIX, Archives
from transformer.study.claim import Claim, Finding
from transformer.study.comparison import Comparison
from transformer.study.report import Report
from transformer.study.tables import signed


@dataclass(frozen=True)
class Answer:
    """A claim with the report of its study."""

    claim: Claim
    report: Report
    sha256: str = ""
    """Of the archive; empty where the study has none."""
    fresh: "Answer | None" = None
    """The answer of fresh seeds, where they were asked."""

    @cached_property
    def findings(self) -> dict[str, Finding]:
        """The verdict on each question."""
        return self.claim.found_in(self.report)

    @property
    def verdicts(self) -> list[str]:
        """What was expected and found, a line for each question."""
        found = self.report.contrasts
        return [
            f"{question}: expected {self.claim.expected[question]}, found {said(found[question])}: {finding}"
            for question, finding in self.findings.items()
        ]

    @cached_property
    def confirmation(self) -> Claim:
        """The same claim, asked of fresh seeds; its words are a part of the plan, which is hashed before the runs."""
        claim = self.claim
        expected = ", ".join(f"{question}: {how}" for question, how in claim.expected.items())
        study = replace(claim.study.confirmation(self.report), question=f"{claim.text} Expected: {expected}.")
        return replace(claim, study=study)

    @property
    def older(self) -> bool:
        """Whether its runs read their rows in another order than runs do now, of text with repetitions."""
        pairs = isinstance(self.claim.study.base.data, PairsConfig)
        return self.report.record.data.get("order") != (Pairs.order_version if pairs else ORDER)

    @property
    def command(self) -> str:
        """What computes the study again."""
        return f"python -m experiments.atlas --only {self.claim.name} --afresh"

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of a core by the file of the run: its share of the process that trained it."""
        files = {name: arm.files for name, arm in self.report.record.arms.items()}
        return {
            file: arm.seconds / sum(map(len, files[arm.name]))
            for arm in self.report.arms
            for row in files[arm.name]
            for file in row
        }


class Effect(NamedTuple):
    """A claim as it was asked first, and where it was, again of longer training."""

    first: Answer
    again: Answer | None = None

    @property
    def latest(self) -> Answer:
        """The last answer by which rates were chosen and seeds added."""
        return self.first if self.again is None else self.again

    @property
    def counted(self) -> Answer:
        """The answer whose verdict is the one to read: that of fresh seeds, where they were asked."""
        return self.latest.fresh or self.latest


def effects(found: Sequence[Answer]) -> list[Effect]:
    """All effects, in the order of the first answers."""
    again = {each.claim.instead: each for each in found if each.claim.instead}
    return [Effect(each, again.get(each.claim.name)) for each in found if not each.claim.instead]


def asked_twice(found: Sequence[Effect]) -> list[tuple[Answer, Answer, str]]:
    """(the latest answer, that of fresh seeds, the question) of all questions that were asked of these."""
    latest = [effect.latest for effect in found]
    return [(each, each.fresh, question) for each in latest if each.fresh for question in each.findings]


def answers(claims: Mapping[str, Claim], evidence: Path) -> list[Answer]:
    """All claims with an archive of their study as it is, by family and name."""
    archives, ordered = Archives(evidence), sorted(claims.values(), key=lambda claim: (claim.family, claim.name))
    found = [each for claim in ordered if (each := _answer(claim, archives))]
    return [each if each.report.failed else replace(each, fresh=_answer(each.confirmation, archives)) for each in found]


def _answer(claim: Claim, archives: Archives) -> Answer | None:
    path = archives.folder / f"{claim.name}{SUFFIX}"
    if not path.exists() or not claim.study.asked_in((report := archives.report(claim.name)).record):
        return None
    return Answer(claim, report, sha256_of(path))


def sha256_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def said(answer: Comparison) -> str:
    low, high = answer.interval
    digits = 3 if min(abs(low), abs(high)) >= 5e-4 else 5  # where 0 is as good as the end of the interval
    difference, low, high = (signed(number, digits) for number in (answer.difference, low, high))
    return f"{difference} [{low}, {high}]"
