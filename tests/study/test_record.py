"""Records of several days: seeds are pooled where the question and the arms are the same."""

import numpy as np
import pytest
from scipy import stats

from tests.study import made
from transformer.core.errors import ConfigError
from transformer.core.files import Damaged, write_sealed
from transformer.study.analyse import read_study
from transformer.study.record import pooled, read_record

BASE = 3 + 0.02 * np.random.default_rng(0).normal(size=6)


def named(report):
    return {arm.name: arm for arm in report.arms}


def test_seeds_of_two_days_are_pooled(tmp_path):
    arms = {"base": BASE, "arm": BASE + 0.015}
    made.record(tmp_path / "monday", arms).write(tmp_path / "monday")
    later = {name: losses[::-1] + 0.001 for name, losses in arms.items()}
    made.record(tmp_path / "tuesday", later, first_seed=6).write(tmp_path / "tuesday")
    both = named(read_study(tmp_path / "monday", tmp_path / "tuesday"))["arm"]
    assert both.seeds == both.compared.n == 12
    np.testing.assert_allclose(both.estimates, [*arms["arm"], *later["arm"]])
    fewer = {"loss": False, "accuracy": True}
    made.record(tmp_path / "tuesday", later, first_seed=6, higher_is_better=fewer).write(tmp_path / "tuesday")
    pooled_metrics = read_study(tmp_path / "monday", tmp_path / "tuesday").record.higher_is_better
    assert pooled_metrics == fewer  # those that both have
    assert "The seeds of 2 studies are pooled." in read_study(tmp_path / "monday", tmp_path / "tuesday").summary()
    same = read_study(tmp_path / "monday", tmp_path / "monday")
    assert named(same)["arm"].seeds == 6  # the same seeds count once


def test_every_pooled_study_is_a_look(tmp_path):
    """The first may have been read before there was a second, so that α is shared among them."""
    spread = 0.01 * np.random.default_rng(1).normal(size=18)
    for i, name in enumerate("abc"):
        own = slice(6 * i, 6 * i + 6)
        arms = {"base": BASE, "arm": BASE + 0.006 + spread[own]}
        made.record(tmp_path / name, arms, first_seed=6 * i).write(tmp_path / name)
    report = read_study(*(tmp_path / name for name in "abc"))
    assert report.record.looks == [6, 12, 18]
    assert read_study(*(tmp_path / name for name in "aba")).record.looks == [6, 12]  # no seed twice, and no look
    assert named(report)["arm"].compared.p == pytest.approx(3 * stats.ttest_1samp(0.006 + spread, 0).pvalue)
    assert any("error 0.05 over 3 looks at the results" in line for line in report.summary())


def test_the_plans_of_all_pooled_studies_are_said(tmp_path):
    change = {"sha256": "1" * 64, "written": "2026-01-03", "runs_there": 6, "changed": ["margin"]}
    plans = [
        {"sha256": str(i) * 64, "written": f"2026-01-0{i}", "runs_there": 0, "changes": changes}
        for i, changes in enumerate(([], [change], []))
    ]
    for i, plan in enumerate(plans):
        made.record(tmp_path / str(i), {"a": BASE, "b": BASE}, first_seed=6 * i, plan=plan).write(tmp_path / str(i))
    lines = read_study(*(tmp_path / str(i) for i in range(3))).summary()
    assert lines[1:5] == [
        "The seeds of 3 studies are pooled.",
        "Plan 000000000000 of 2026-01-00: kept.",
        "Plan 111111111111 of 2026-01-01: changed in margin (after 6 runs).",
        "Plan 222222222222 of 2026-01-02: kept.",
    ]
    assert not any("pooled" in line for line in read_study(tmp_path / "0").summary())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"margin": 0.1}, "margin is 0.01 and 0.1"),
        ({"metric": "accuracy"}, "metric is loss and accuracy"),
        ({"fails_above": 4.0}, "fails_above is None and 4.0"),
    ],
)
def test_studies_of_other_questions_are_not_pooled(tmp_path, change, message):
    arms = {"base": BASE, "arm": BASE}
    made.record(tmp_path / "a", arms).write(tmp_path / "a")
    made.record(tmp_path / "b", arms, first_seed=6, **change).write(tmp_path / "b")
    with pytest.raises(ConfigError, match=message):
        pooled([tmp_path / "a", tmp_path / "b"])


def test_studies_of_other_arms_or_with_added_seeds_are_not_pooled(tmp_path):
    made.record(tmp_path / "a", {"base": BASE, "arm": BASE}).write(tmp_path / "a")
    made.record(tmp_path / "b", {"base": BASE, "other": BASE}).write(tmp_path / "b")
    with pytest.raises(ConfigError, match="arms base, arm and base, other"):
        read_study(tmp_path / "a", tmp_path / "b")
    made.record(tmp_path / "c", {"base": BASE, "arm": BASE}, looks=[6, 12]).write(tmp_path / "c")
    with pytest.raises(ConfigError, match="added seeds by its verdicts"):
        read_study(tmp_path / "c", tmp_path / "c")
    with pytest.raises(ConfigError, match=r"holds no study\.json"):
        read_record(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no JSON"),
        ("[]", "holds no object"),
        ('{"arms": {}}', "has no hash"),
        ('"margin": 0.01', "is not what was written"),
    ],
)
def test_a_damaged_record_is_named(tmp_path, text, message):
    made.record(tmp_path, {"base": BASE, "arm": BASE}).write(tmp_path)
    whole = (tmp_path / "study.json").read_text()
    changed = whole.replace(text, '"margin": 0.02') if "margin" in text else text
    (tmp_path / "study.json").write_text(changed)
    with pytest.raises(Damaged, match=rf"study\.json: {message}"):
        read_study(tmp_path)


def test_a_record_of_other_fields_is_named(tmp_path):
    write_sealed(tmp_path / "study.json", {"name": "made", "arms": []})
    with pytest.raises(ConfigError, match=r"study\.json\.arms: \[\] is not an object|Record: missing"):
        read_study(tmp_path)


def test_a_margin_that_is_none_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"^study: margin -1\.0 is not positive$"):
        made.record(tmp_path, {"base": BASE, "arm": BASE}, margin=-1.0)
