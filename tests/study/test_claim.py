"""Claims: what an interval says of a published effect."""

import dataclasses

import numpy as np
import pytest

from tests.study import made
from tests.study.conftest import tiny
from transformer.core.errors import ConfigError
from transformer.study.analyse import read_study
from transformer.study.claim import Claim
from transformer.study.comparison import Comparison
from transformer.study.statistics import Interval
from transformer.study.study import Study


def claim(tmp_path, expected="better"):
    study = Study("effect", tiny(tmp_path), {"base": {}, "arm": {"steps": 3}}, margin=0.02)
    return Claim(
        text="It helps.",
        family="norms",
        source="A. 2020",
        published="1 %",
        study=study,
        expected={"arm": expected},
    )


def found(low, high, verdict):
    return Comparison(8, (low + high) / 2, Interval(low, high), 0.01, verdict, 0.1, 0.0, 0.1)


@pytest.mark.parametrize(
    ("expected", "answer", "finding"),
    [
        ("better", found(-0.3, -0.1, "better"), "reproduced"),
        ("better", found(-0.3, -0.001, "better"), "reproduced"),
        ("better", found(-0.015, -0.001, "better"), "smaller"),
        ("better", found(0.1, 0.3, "worse"), "opposite"),
        ("better", found(0.001, 0.015, "worse"), "not at this scale"),
        ("better", found(-0.01, 0.01, "equivalent"), "not at this scale"),
        ("better", found(-0.1, 0.1, "unresolved"), "unresolved"),
        ("worse", found(0.1, 0.3, "worse"), "reproduced"),
        ("worse", found(-0.3, -0.1, "better"), "opposite"),
        ("equal", found(-0.01, 0.01, "equivalent"), "reproduced"),
        ("equal", found(0.001, 0.015, "worse"), "reproduced"),
        ("equal", found(0.001, 0.03, "worse"), "unresolved"),
        ("equal", found(0.025, 0.03, "worse"), "different"),
        ("equal", found(-0.03, -0.025, "better"), "different"),
        ("equal", found(-0.3, 0.1, "unresolved"), "unresolved"),
        ("not worse", found(-0.3, 0.01, "unresolved"), "reproduced"),
        ("not worse", found(-0.3, -0.1, "better"), "reproduced"),
        ("not worse", found(0.001, 0.015, "worse"), "reproduced"),
        ("not worse", found(0.001, 0.03, "worse"), "unresolved"),
        ("not worse", found(-0.3, 0.03, "unresolved"), "unresolved"),
        ("not worse", found(0.025, 0.3, "worse"), "opposite"),
        ("not worse", found(-0.1, 0.1, "fails less often"), "reproduced"),
        ("not worse", found(-0.1, 0.1, "fails more often"), "opposite"),
        ("better", found(-0.1, 0.1, "fails less often"), "reproduced"),
        ("equal", found(-0.1, 0.1, "fails more often"), "different"),
    ],
)
def test_findings(tmp_path, expected, answer, finding):
    assert claim(tmp_path, expected).finding("arm", answer, higher_is_better=False) == finding


@pytest.mark.parametrize(
    ("failures", "low", "finding"),
    [
        ((3, 0), -0.3, "unresolved"),
        ((3, 0), 0.03, "opposite"),
        ((2, 2), -0.3, "reproduced"),
        ((0, 3), -0.3, "reproduced"),
    ],
)
def test_an_arm_that_fails_in_more_runs_is_not_said_to_be_not_worse(tmp_path, failures, low, finding):
    answer = dataclasses.replace(found(low, max(low, 0.01), "unresolved"), failures=failures)
    assert claim(tmp_path, "not worse").finding("arm", answer, higher_is_better=False) == finding


@pytest.mark.parametrize("expected", ["better", "worse", "equal", "not worse"])
def test_arms_that_are_the_same_in_every_run_tell_nothing(tmp_path, expected):
    same = dataclasses.replace(found(0.0, 0.0, "equivalent"), deviation=0.0)
    assert claim(tmp_path, expected).finding("arm", same, higher_is_better=False) == "unresolved"


def test_a_sign_counts_by_what_is_better(tmp_path):
    """Of an accuracy more is better."""
    answer = found(0.1, 0.3, "better")
    assert claim(tmp_path).finding("arm", answer, higher_is_better=True) == "reproduced"
    assert claim(tmp_path, "worse").finding("arm", answer, higher_is_better=True) == "opposite"
    assert claim(tmp_path, "not worse").finding("arm", answer, higher_is_better=True) == "reproduced"
    below = found(-0.3, -0.1, "worse")
    assert claim(tmp_path, "not worse").finding("arm", below, higher_is_better=True) == "opposite"


def test_refusals(tmp_path):
    made = claim(tmp_path)
    fields = {"text": "", "family": "", "source": "", "published": "", "study": made.study}
    with pytest.raises(ConfigError, match=r"^claim effect: the study has no question 'arn'; did you mean 'arm'\?$"):
        Claim(**fields, expected={"arn": "better"})
    with pytest.raises(ConfigError, match=r"^claim effect: the study has no question 'base'"):
        Claim(**fields, expected={"base": "better"})
    with pytest.raises(ConfigError, match=r"^claim effect: arm: unknown value 'good'"):
        Claim(**fields, expected={"arm": "good"})
    with pytest.raises(ConfigError, match=r"^claim effect: nothing is expected$"):
        Claim(**fields, expected={})


def test_a_difference_that_is_told_may_leave_the_claim_open(tmp_path):
    """Worse, but not known whether by more than the margin; and open, but not worse by more than that."""
    made.record(tmp_path / "made", {"base": np.linspace(2.0, 2.01, 6), "arm": np.linspace(2.015, 2.03, 6)}).write(
        tmp_path / "made"
    )
    report = read_study(tmp_path / "made")
    for low, high, verdict, wanted in [(0.001, 0.03, "worse", ["arm"]), (-0.3, 0.01, "unresolved", [])]:
        report.contrasts["arm"] = found(low, high, verdict)
        assert claim(tmp_path, "not worse").unresolved(report) == wanted
    assert report.unresolved() == ["arm"]
