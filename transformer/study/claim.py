"""A published effect as a claim: what a paper found, what is expected here, and the study that asks for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from transformer.core.checks import check_type
from transformer.core.errors import ConfigError, nearest
from transformer.study.comparison import Comparison
from transformer.study.report import Report
from transformer.study.study import Study

Expected = Literal["better", "worse", "equal", "not worse"]
"""What a paper found of the first arm of a question; *not worse*: as good or better, or that it costs nothing."""
Finding = Literal["reproduced", "smaller", "opposite", "different", "not at this scale", "unresolved"]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A published effect, and the study that reproduces or refutes it."""

    text: str
    """The claim, in a sentence."""
    family: str
    """What it is about, such as norms or positions."""
    source: str
    """The paper: authors, year, and where in it the claim stands."""
    published: str
    """The number of the paper, with its setting."""
    study: Study
    """The experiment; each of its questions is answered by itself."""
    expected: Mapping[str, Expected]
    """What is expected of each question of the study that belongs to the claim."""
    losses: tuple[float, float] | None = None
    """Those of the paper, in nats of whatever its tokens are: of the first arm of a question, and of the second."""
    speed: float | None = None
    """By the paper, how many times as many steps, tokens or operations the second arm needs for the loss of the first;
    often its best case."""
    measured: bool = True
    """Whether the source has a number for the effect; where it is a practice without one, that is said."""
    recipe: str = ""
    """What of the paper's recipe the arms have, and what they have not."""
    found: str = ""
    """What the results mean, and what was done to make sure."""
    instead: str = ""
    """Name of a claim that this one asks again, better: of longer training, say. The verdict of this one is counted in
    place of that one's."""

    def __post_init__(self):
        where, study = f"claim {self.study.name}", self.study
        for question, expected in self.expected.items():
            check_type(expected, Expected, f"{where}: {question}")
            if question not in study.questions:
                near = nearest(question, study.questions)
                raise ConfigError(f"{where}: the study has no question {question!r}{near}")
        if not self.expected:
            raise ConfigError(f"{where}: nothing is expected")

    @property
    def name(self) -> str:
        """The name of its study, which is that of its files."""
        return self.study.name

    def finding(self, question: str, found: Comparison, *, higher_is_better: bool) -> Finding:
        """The verdict on one question.

        *Reproduced*: the sign of the paper, or where it found none no difference larger than the margin, or where it
        found the arm not worse, that it is not by more than the margin, nor fails in more runs. *Smaller*: its
        sign, but all of the interval is within the margin. *Opposite*: the other sign. *Different*: a difference larger
        than the margin where there should be none. *Not at this scale*: none larger than the margin where there should
        be one. *Unresolved*: none of these, or the arms have the same value in every pair, as where a task is too easy.

        Args:
          question: its name.
          found: the answer of the study.
          higher_is_better: whether the metric is one of which more is better.
        """
        if found.same:
            return "unresolved"
        expected, margin = self.expected[question], self.study.margin
        contradicted = "different" if expected == "equal" else "opposite"
        if "fails" in found.verdict:
            sign = "better" if found.verdict == "fails less often" else "worse"
            return "reproduced" if sign == expected or (sign, expected) == ("better", "not worse") else contradicted
        low, high = -found.interval if higher_is_better else found.interval
        if expected == "not worse":
            fails_more = found.failures[0] > found.failures[1]
            as_good = high <= margin and not fails_more
            return "reproduced" if as_good else contradicted if low >= margin else "unresolved"
        if found.verdict == "unresolved":
            return "unresolved"
        within = -margin <= low and high <= margin
        if expected == "equal":
            return "reproduced" if within else contradicted if low >= margin or high <= -margin else "unresolved"
        if found.verdict == "equivalent":
            return "not at this scale"
        if (high < 0) == (expected == "better"):
            return "smaller" if within else "reproduced"
        return "not at this scale" if within else contradicted

    def unresolved(self, report: Report) -> list[str]:
        """The questions of a report on its study whose finding is open, though their verdict may not be."""
        return [question for question, finding in self.found_in(report).items() if finding == "unresolved"]

    def found_in(self, report: Report) -> dict[str, Finding]:
        """The verdicts on all questions that a report on its study answers, by name."""
        higher, answers = report.record.higher_is_better[report.record.metric], report.contrasts
        return {q: self.finding(q, answers[q], higher_is_better=higher) for q in self.expected if q in answers}
