"""What a report concludes from runs whose truth is known: made-up losses, no training."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from tests.study import made
from transformer.core.errors import ConfigError
from transformer.core.files import Damaged, read_sealed, write_sealed
from transformer.study.analyse import analyse, read_study
from transformer.study.runs import read_run
from transformer.study.statistics import mean_interval
from transformer.study.tables import legend, verdicts

NAN = np.nan
RNG = np.random.default_rng(0)
BASE = 3 + 0.02 * RNG.normal(size=6)


FOUR = {"a × b": {"base": 1.0, "a": -1.0, "b": -1.0, "arm": 1.0}}


def named(report):
    return {arm.name: arm for arm in report.arms}


def test_an_arm_that_fails_is_not_better_for_its_survivors(tmp_path):
    arm = BASE - 0.05
    arm[[0, 2, 3, 5]] = NAN
    row = named(made.report(tmp_path, {"base": BASE, "arm": arm}))["arm"]
    assert row.verdict == "unresolved"
    assert (row.failed, row.seeds, row.failed_anywhere) == (4, 6, (4, 6))
    assert row.failed_interval == pytest.approx((0.2228, 0.9567), abs=1e-4)
    assert row.compared.n == 6


def test_an_arm_that_always_fails_and_one_that_learns_nothing(tmp_path):
    rows = named(made.report(tmp_path, {"base": BASE, "fails": BASE * NAN, "guess": 1.4 * BASE}))
    assert (rows["fails"].verdict, rows["fails"].primary.value) == ("fails more often", None)
    assert rows["guess"].verdict == "worse"
    assert named(made.report(tmp_path, {"base": np.r_[[NAN] * 5, 3], "arm": BASE}))["arm"].verdict == "fails less often"


def test_failures_against_the_interval_are_said(tmp_path):
    """Seven runs of the baseline fail, and where none does it is ahead: neither is told."""
    base, arm = np.r_[np.full(41, 3.0), [NAN] * 7], np.r_[3.1 + 0.01 * np.arange(41) / 41, [3.0] * 7]
    report = made.report(tmp_path, {"base": base, "arm": arm})
    assert named(report)["arm"].verdict == "unresolved"
    assert "arm: it fails less often (p = 0.012), but by its interval it is worse" in report.warnings()


def test_a_loss_above_that_of_a_guess_is_no_failure_unless_the_study_says_so(tmp_path):
    """A model that has not yet learned a task may be far above log V and right in half of the answers."""
    arms = {"base": BASE + 5, "arm": BASE + 3}
    row = named(made.report(tmp_path, arms))["arm"]
    assert (row.failed, row.verdict) == (0, "better")
    assert named(made.report(tmp_path, arms, fails_above=7.0))["arm"].failed == 0
    assert named(made.report(tmp_path, arms, fails_above=7.0))["base"].failed == 6


def test_the_learning_rate_is_chosen_by_the_even_batches_and_reported_by_the_odd_ones(tmp_path):
    record = made.record(tmp_path, {"base": np.stack([BASE, BASE + 1]), "arm": np.stack([BASE, BASE + 1])}, halves=True)
    for file in record.arms["arm"].files[1]:  # at the second rate even batches are best and odd ones worst
        run = read_sealed(tmp_path / "runs" / file)
        write_sealed(tmp_path / "runs" / file, {**run, "loss": [20.0, 50.0] * (made.BATCHES // 2)})
    record.write(tmp_path)
    row = named(read_study(tmp_path))["arm"]
    assert row.learning_rate == record.arms["arm"].learning_rates[1]
    assert row.primary.value == pytest.approx(5.0)
    assert row.verdict == "worse"


def test_exact_match_can_be_what_verdicts_are_made_of(tmp_path):
    arms, exact = {"base": BASE, "arm": BASE + 0.5}, {"base": 0.4 + 0.01 * BASE, "arm": 0.6 + 0.01 * BASE}
    by_match = made.report(tmp_path, arms, exact=exact, metric="exact_match")
    row = named(by_match)["arm"]
    assert row.verdict == "better"
    assert row.compared.difference == pytest.approx(0.2)
    assert 0 < row.compared.interval.low < 0.2 < row.compared.interval.high + 1e-9
    assert row.worst == pytest.approx(min(exact["arm"]))
    by_loss = named(made.report(tmp_path, arms, exact=exact))["arm"]
    assert by_loss.verdict == "worse"
    assert by_loss.metrics["exact_match"].compared.difference == pytest.approx(0.2)
    assert by_loss.metrics["exact_match"].compared.interval.low > 0


def test_all_intervals_of_a_table_are_as_wide_as_their_number_asks(tmp_path):
    few = made.report(tmp_path, {"base": BASE, "arm": BASE[::-1]})
    many = made.report(tmp_path, {"base": BASE, "arm": BASE[::-1]} | {f"other {i}": BASE[::-1] for i in range(6)})
    looks = made.report(tmp_path, {"base": BASE, "arm": BASE[::-1]}, looks=[6, 12, 24])
    one, seven, three = (named(r)["arm"].compared for r in (few, many, looks))
    assert one.interval.half < three.interval.half < seven.interval.half
    assert one.p * 7 == pytest.approx(seven.p) or seven.p == 1


def test_sensitivity_is_the_mean_over_rates_less_the_best(tmp_path):
    """(Wortsman et al. 2023.) A failed or hopeless run counts as a guess, log 64."""
    losses = np.array([[2.0, 2.0], [1.0, 1.0], [NAN, 9.0]])
    row = named(made.report(tmp_path, {"base": losses, "arm": losses - 0.5}))["base"]
    assert row.metrics["sensitivity"].value == pytest.approx((2 + 1 + np.log(64)) / 3 - 1)
    assert "sensitivity" not in named(made.report(tmp_path, {"base": BASE, "arm": BASE}))["base"].metrics


def test_each_arm_has_a_detectable_difference_of_its_own(tmp_path):
    loud = 3 + 0.2 * np.random.default_rng(2).normal(size=6)
    rows = named(made.report(tmp_path, {"base": BASE, "quiet": BASE[[1, 0, 3, 2, 5, 4]], "loud": loud}))
    assert rows["loud"].compared.detectable > 3 * rows["quiet"].compared.detectable


def test_the_baseline_under_other_seeds_is_compared_with_itself(tmp_path):
    report = made.report(tmp_path, {"base": BASE, "arm": BASE + 1}, noise=BASE[::-1], margin=0.1)
    assert report.noise.name == "base, other seeds"
    assert report.noise.compared.verdict == "equivalent"
    assert report.contrasts.keys() == {"arm"}  # it is no question, and costs no power
    assert "base, other seeds" in report.markdown()


def test_contrasts_replace_the_comparisons_with_the_baseline(tmp_path):
    arms = {"base": BASE, "a": BASE + 0.1, "b": BASE + 0.2, "a + b": BASE + 0.7}
    weights = {"a × b": {"base": 1.0, "a": -1.0, "b": -1.0, "a + b": 1.0}}
    report = made.report(tmp_path, arms, contrasts=weights, noise=BASE[::-1])
    assert report.contrasts["a × b"].difference == pytest.approx(0.4)
    assert {arm.verdict for arm in report.arms} == {"–"}
    found = verdicts(report)[2]
    assert [row[0] for row in found] == [*arms, "base, other seeds", "a × b"]
    assert [row[4] for row in found][:4] == [""] * 4
    assert {row[4] for row in found[4:]} <= {"unresolved", "equivalent", "worse"}


def test_an_arm_of_weight_0_has_no_part(tmp_path):
    """Not even by its failures, or where it was not computed."""
    arms = {"base": BASE, "a": BASE + 0.1, "b": np.full(len(BASE), np.inf)}
    (asked, other) = ({"base": -1.0, "a": 1.0, "b": 0.0, "c": 0.0}, {"base": -1.0, "a": 1.0})
    report = made.report(tmp_path, arms, contrasts={"with": asked, "without": other})
    assert report.contrasts["with"] == report.contrasts["without"]


def test_the_error_of_the_held_out_part_stands_beside_that_of_the_seeds(tmp_path):
    record = made.record(tmp_path, {"base": BASE, "arm": BASE})
    offsets = np.array([3.0, -1.0, 2.0, 0.0, -2.0, 1.0, -3.0, 0.0])
    for file in record.arms["arm"].files[0]:
        run = read_sealed(tmp_path / "runs" / file)
        run["loss"] = [x + d for x, d in zip(run["loss"], offsets, strict=True)]
        write_sealed(tmp_path / "runs" / file, run)
    record.write(tmp_path)
    assert named(read_study(tmp_path))["arm"].split_error == pytest.approx(offsets.std(ddof=1) / 10 / np.sqrt(8))


def test_a_reader_is_warned(tmp_path):
    three = np.stack([BASE + 1, BASE + 0.5, BASE])
    report = made.report(tmp_path, {"base": three, "arm": np.r_[BASE[:5], 9.0][None] + np.zeros((3, 1))})
    said = report.warnings()
    assert "base: best rate 0.009 is the highest tried" in said
    assert any("arm: rates tie" in line for line in said)
    assert any("arm: runs of one learning rate are not normally distributed" in line for line in said)
    few = made.report(tmp_path, {"base": BASE[:4], "arm": BASE[:4]})
    assert "base; arm: 4 seeds: intervals stand on normal theory alone" in few.warnings()


def test_a_sign_that_ranks_do_not_tell_is_named(tmp_path):
    """Few differences that are alike tell it by their mean alone, whatever their ranks; many by both."""
    few = made.report(tmp_path, {"base": BASE[:5], "arm": BASE[:5] + 1 + 1e-3 * BASE[:5]})
    assert few.contrasts["arm"].verdict == "worse"
    said = "arm: its sign is told by means, not by signed ranks: those of 5 seeds tell none at this level"
    assert said in few.warnings()
    many = np.linspace(2.0, 2.1, 12)
    assert not any("ranks" in line for line in made.report(tmp_path, {"base": many, "arm": many + 1}).warnings())


def test_two_studies_are_compared(tmp_path):
    """An arm that helps on one text and not on the other; a question of one study alone is left out."""
    rng = np.random.default_rng(8)
    here = made.report(tmp_path / "a", {"base": BASE, "arm": BASE - 0.5 + 0.01 * rng.normal(size=6), "other": BASE})
    arms = {"base": BASE, "arm": BASE + 0.01 * rng.normal(size=6)}
    there, shared = (made.report(tmp_path / "b", arms, first_seed=seed) for seed in (6, 3))
    (row,) = here.beside(there)
    assert (row["question"], row["verdict here"]) == ("arm", "better")
    assert row["change"] == pytest.approx(row["here"] - row["there"])
    assert row["low"] < -0.45
    assert -0.55 < row["high"] < 0
    otherwise = replace(there, record=replace(there.record, metric="accuracy"))
    with pytest.raises(ConfigError, match=r"^beside: .* are judged by loss and accuracy, which have no difference$"):
        here.beside(otherwise)
    with pytest.raises(ConfigError, match=r"^beside: made and made share 3 runs of arm arm$"):
        here.beside(shared)
    turned = replace(there.record, contrasts={"arm": {"base": 1.0, "arm": -1.0}})
    assert here.beside(replace(there, record=turned)) == []


def test_a_run_may_hold_probes_of_another_study(tmp_path):
    record = made.record(tmp_path, {"base": BASE, "arm": BASE})
    for file in record.arms["base"].files[0]:
        run = read_sealed(tmp_path / "runs" / file) | {"probes": {"other": 1.0}}
        write_sealed(tmp_path / "runs" / file, run)
    assert list(made.analyse(tmp_path, record).arms[0].metrics) == ["loss", "accuracy", "exact_match"]


@pytest.mark.parametrize(("safe", "chosen"), [(2.0, 1), (1.9, 0)])
def test_in_the_choice_of_a_rate_a_failed_run_costs_a_guess(tmp_path, safe, chosen):
    """Five runs at 1.5 and one that fails: (5 · 1.5 + log 64) / 6 = 1.94."""
    losses = np.stack([np.full(6, safe), np.r_[np.full(5, 1.5), NAN]])
    row = made.report(tmp_path, {"base": losses, "arm": losses}).arms[0]
    assert row.learning_rate == row.learning_rates[chosen]
    assert row.failed == chosen


@pytest.mark.parametrize("metric", ["exact_match", "accuracy"])
@pytest.mark.parametrize(("safe", "chosen"), [(0.55, 1), (0.6, 0)])
def test_and_where_right_answers_count_none(tmp_path, metric, safe, chosen):
    """Five runs at .7 and one that fails: .583."""
    losses = np.ones((2, 6))
    losses[1, 5] = NAN
    shares = np.stack([np.full(6, safe), np.full(6, 0.7)])
    record = made.record(
        tmp_path, {"base": losses, "arm": losses}, exact={"base": shares, "arm": shares}, metric=metric
    )
    for row in record.arms["base"].files:
        for file in row:
            run = read_sealed(tmp_path / "runs" / file)
            run["correct"] = [10 * run["exact"][0] / 4] * made.BATCHES
            write_sealed(tmp_path / "runs" / file, run)
    row = made.analyse(tmp_path, record).arms[0]
    assert row.learning_rate == row.learning_rates[chosen]
    assert row.estimates[0] == pytest.approx((safe, 0.7)[chosen])


def test_arms_may_have_more_seeds_than_others(tmp_path):
    """As where some verdicts were settled earlier: the seeds that both have are compared, also in other metrics."""
    rng = np.random.default_rng(9)
    base, few, many = (3 + 0.01 * rng.normal(size=(2, count)) for count in (12, 6, 12))
    base[1] += 1
    report = made.report(tmp_path, {"base": base, "few": few - 1, "many": many + 1}, looks=[6, 12])
    rows = named(report)
    assert (rows["few"].compared.n, rows["many"].compared.n, rows["base"].seeds) == (6, 12, 12)
    assert {found.compared.n for found in rows["few"].metrics.values()} == {6}
    first = made.report(tmp_path / "first", {"base": base[:, :6], "few": few - 1, "many": many[:, :6]}, looks=[6, 12])
    assert rows["few"].compared == named(first)["few"].compared
    assert np.isfinite(report.correlation)


def test_the_margin_is_that_of_the_primary_metric(tmp_path):
    arms = {"base": BASE, "arm": BASE + np.array([1, -1, 1, -1, 1, -1]) * 1e-3}
    assert named(made.report(tmp_path, arms))["arm"].verdict == "equivalent"
    assert named(made.report(tmp_path, arms, margin=1e-4))["arm"].verdict == "unresolved"


def test_a_run_at_the_bound_has_not_failed(tmp_path):
    losses = np.array([3.0, 3.0, 3.5])
    assert [arm.failed for arm in made.report(tmp_path, {"a": losses, "b": losses}, fails_above=3.0).arms] == [1, 1]


def test_a_row_holds_what_its_runs_say(tmp_path):
    losses = np.array([[3.0, 3.5, NAN], [2.0, 2.5, 2.1]])
    exact = {"base": np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])}
    report = made.report(tmp_path, {"base": losses, "arm": losses[:, :3]}, exact=exact)
    row = report.arms[0]
    assert (row.changes, row.learning_rates, row.learning_rate) == ("name=base", [1e-3, 3e-3], 3e-3)
    assert row.values[1] == pytest.approx([2.0, 2.5, 2.1])
    assert np.isnan(row.values[0][2])
    assert (row.deviation, row.worst) == pytest.approx((np.std([2.0, 2.5, 2.1], ddof=1), 2.5))
    assert row.metrics["exact_match"].value == pytest.approx(0.5)
    assert row.metrics["accuracy"].value == pytest.approx(0.5)
    assert (row.seconds, row.parameters, row.flops) == (6.0, 100, 1e6)
    steps, curve = report.curves["base"]
    assert steps.tolist() == [1, 2]
    assert curve[:, 1] == pytest.approx([2.0, 2.5, 2.1])
    two = made.report(tmp_path / "two", {"base": np.array([1.0, 2.0]), "arm": np.array([1.0, NAN])})
    assert two.arms[0].deviation == pytest.approx(np.std([1, 2], ddof=1))
    assert (two.arms[1].deviation, two.arms[1].worst) == (None, 1.0)


def test_rates_may_be_chosen_by_another_metric_than_the_one_compared(tmp_path):
    """The rate with the lower loss has the worse answers, which are those that are told."""
    losses, exact = np.array([[3.0, 3.1, 3.2], [2.0, 2.1, 2.2]]), np.array([[0.8, 0.8, 0.9], [0.1, 0.2, 0.3]])
    arms, how = {"base": losses, "arm": losses}, {"exact": {"base": exact, "arm": exact}, "metric": "exact_match"}
    by_itself = made.report(tmp_path / "itself", arms, **how).arms[0]
    by_loss = made.report(tmp_path / "loss", arms, **how, tuned_by="loss")
    assert (by_itself.learning_rate, by_loss.arms[0].learning_rate) == (1e-3, 3e-3)
    assert by_loss.arms[0].estimates == pytest.approx([0.1, 0.2, 0.3])
    assert "Learning rates are chosen by loss, on the batches that are shown" in " ".join(by_loss.summary())
    with pytest.raises(ConfigError, match=r"study: no metric 'los'; did you mean 'loss'\?"):
        made.report(tmp_path / "none", arms, tuned_by="los")


def test_the_seeds_of_an_arm_do_not_choose_for_a_comparison_of_fewer(tmp_path):
    """The sensitivity, too, is that of the seeds that are compared."""
    base = np.array([[2.0] * 4 + [9.0] * 4, [3.0] * 4 + [1.0] * 4])
    report = made.report(tmp_path, {"base": base, "arm": base[:, :4]}, looks=[4, 8])
    found = named(report)["arm"].metrics
    assert found["loss"].compared.difference == 0
    assert found["sensitivity"].compared.difference == 0


def test_an_arm_without_the_metric_is_not_compared(tmp_path):
    """It fails no more often for that: a probe of longer texts has no number where positions end."""
    probe, signs = "loss at 2x length", {"loss": False, "accuracy": True, "exact_match": True}
    record = made.record(tmp_path, {"base": BASE, "arm": BASE}, metric=probe, higher_is_better=signs | {probe: False})
    for name, arm in record.arms.items():
        for file in arm.files[0]:
            run = read_sealed(tmp_path / "runs" / file)
            write_sealed(tmp_path / "runs" / file, {**run, "probes": {probe: 3.1 if name == "base" else None}})
    report = analyse(tmp_path, record)
    assert report.contrasts == {}
    assert [row[4] for row in verdicts(report)[2]] == ["baseline", "not defined"]
    assert {"arm: not answered, because an arm of it failed or has no loss at 2x length"} < set(report.warnings())
    assert "arm: it has no loss at 2x length, and is not compared" in report.warnings()
    assert [(arm.failed, arm.failed_anywhere[0]) for arm in report.arms] == [(0, 0), (0, 0)]


def with_probe(tmp_path, values, **more):
    """The report on a study of two arms by a probe, with its values by arm and seed; None: it is not defined."""
    signs = {"loss": False, "accuracy": True, "exact_match": True, "mine": False}
    losses = dict.fromkeys(values, 3 + 0.02 * np.random.default_rng(1).normal(size=16))
    record = made.record(tmp_path, losses | more.pop("losses", {}), metric="mine", higher_is_better=signs, **more)
    for name, arm in record.arms.items():
        for file, value in zip(arm.files[0], values[name], strict=True):
            run = read_sealed(tmp_path / "runs" / file)
            write_sealed(tmp_path / "runs" / file, {**run, "probes": {"mine": value}})
    return made.analyse(tmp_path, record)


def test_a_run_in_which_a_probe_is_not_defined_has_not_failed(tmp_path):
    """Its pair is left out, and the report says how many are."""
    x = np.random.default_rng(0).normal(size=(2, 16)).tolist()
    report = with_probe(tmp_path, {"base": x[0], "arm": [*x[1][:2], *[None] * 14]})
    row = named(report)["arm"]
    assert (row.verdict, row.failed, row.compared.n, row.compared.failures) == ("unresolved", 0, 2, (0, 0))
    assert row.compared.difference == pytest.approx(np.mean(x[1][:2]) - np.mean(x[0][:2]))
    assert "arm: mine is undefined in 14 of 16 runs, whose pairs are left out" in report.warnings()
    assert "fails" not in " ".join(verdicts(report)[2][1])
    few = with_probe(tmp_path / "few", {"base": [*x[0][:14], None, None], "arm": [5 + v for v in x[1]]})
    assert (named(few)["arm"].verdict, named(few)["arm"].compared.n) == ("worse", 14)
    assert "base: mine is undefined in 2 of 16 runs, whose pairs are left out" in few.warnings()


def test_a_run_that_fails_does_so_where_a_probe_is_not_defined_in_others(tmp_path):
    x = np.random.default_rng(0).normal(size=(2, 16)).tolist()
    losses = {"arm": np.r_[np.full(12, NAN), np.ones(4)]}
    report = with_probe(tmp_path, {"base": x[0], "arm": [*[None] * 13, *x[1][13:]]}, losses=losses)
    row = named(report)["arm"]
    assert (row.verdict, row.failed, row.compared.n) == ("fails more often", 12, 15)
    assert "arm: mine is undefined in 1 of 16 runs, whose pairs are left out" in report.warnings()


def test_questions_of_arms_that_were_not_computed_are_corrected_for(tmp_path):
    """And the report says how many there are: those that were planned."""
    arms = {"base": BASE, "arm": BASE[::-1] + 0.05}
    alone, one_failed = made.report(tmp_path, arms), made.report(tmp_path, arms, failed={"other": "no memory"})
    assert one_failed.contrasts["arm"].p == pytest.approx(min(1.0, 2 * alone.contrasts["arm"].p))
    assert [" ".join(r.summary()).split("; ")[1].split(",")[0] for r in (alone, one_failed)] == [
        "1 comparison",
        "2 comparisons",
    ]
    weights = {"a": {"arm": 1.0, "base": -1.0}, "gone": {"gone": 1.0, "base": -1.0}}
    asked = made.report(tmp_path, arms, contrasts=weights, failed={"gone": "no memory"})
    assert asked.contrasts["a"].p == one_failed.contrasts["arm"].p
    assert "; 2 comparisons, whose" in asked.summary()[0]


@pytest.mark.parametrize("contrasts", [{}, {"question": {"arm": 1.0, "base": -1.0}}, FOUR])
def test_too_few_pairs_for_ranks_are_named_in_every_question(tmp_path, contrasts):
    """Of failed runs and of equal differences; and nothing stands for a difference that no pair supports."""
    losses = {"base": np.r_[NAN, BASE[1:4]], "arm": np.r_[BASE[:3], NAN], "a": BASE[:4], "b": BASE[:4]}
    report = made.report(tmp_path, losses if contrasts is FOUR else dict(list(losses.items())[:2]), contrasts=contrasts)
    (name,) = report.contrasts.keys() - {"a", "b"}
    said = "is too few for an interval of signed ranks, which judge failed runs and equal differences"
    assert f"{name}: n = 4 {said}" in report.warnings()
    two = {name: np.r_[NAN, 3.0] if name == "base" else np.r_[3.0, NAN] for name in ("base", "arm")}
    report = made.report(tmp_path / "two", two)
    assert verdicts(report)[2][1][2] == "– [−∞, +∞]"
    report.write(tmp_path)
    equal = made.report(tmp_path / "equal", {"base": BASE[:4], "arm": BASE[:4] + 1})
    assert f"arm: n = 4 {said}" in equal.warnings()
    assert verdicts(equal)[2][1][2:] == ["+1.0000 [−∞, +∞]", "0.12", "unresolved", "4", "0", "–"]


def test_a_study_in_which_all_fails_compares_nothing(tmp_path):
    report = made.report(tmp_path, {"base": BASE * np.nan, "arm": BASE * np.nan})
    assert "every run of every arm failed: nothing is compared" in report.warnings()
    assert verdicts(report)[2][1][2:5] == ["– [−∞, +∞]", "1", "unresolved"]


def test_too_few_batches_are_not_cut_in_two(tmp_path, monkeypatch):
    """Whatever the plan says: on other devices the held-out part may be one batch."""
    monkeypatch.setattr(made, "BATCHES", 3)
    losses = np.stack([BASE, BASE + 1])
    report = made.report(tmp_path, {"base": losses, "arm": losses}, halves=True)
    assert not report.record.halves
    assert report.arms[0].primary.value == pytest.approx(BASE.mean())


def test_a_question_about_an_arm_that_was_not_computed_is_named(tmp_path):
    weights = {"a": {"a": 1.0, "base": -1.0}, "gone": {"gone": 1.0, "base": -1.0}}
    report = made.report(tmp_path, {"base": BASE, "a": BASE}, contrasts=weights, failed={"gone": "RuntimeError: no"})
    assert report.contrasts.keys() == {"a"}
    assert "gone: not answered, because an arm of it failed or has no loss" in report.warnings()


def test_a_run_above_the_bound_has_no_part_in_the_error_of_the_split(tmp_path):
    record = made.record(tmp_path, {"base": BASE, "arm": BASE}, fails_above=10.0)
    file = tmp_path / "runs" / record.arms["arm"].files[0][5]
    loss = [100.0 * (batch + 1) for batch in range(made.BATCHES)]
    write_sealed(file, {**read_sealed(file), "loss": loss})
    row = named(made.analyse(tmp_path, record))["arm"]
    assert (row.failed, row.split_error) == (1, pytest.approx(0, abs=1e-12))


@pytest.mark.parametrize("damage", ["a digit", "a field", "missing"])
def test_an_arm_with_a_damaged_run_has_failed_and_the_others_are_compared(tmp_path, damage):
    """The file is named with the command that computes it again."""
    record = made.record(tmp_path, {"base": BASE, "arm": BASE - 0.1, "other": BASE + 0.1}, noise=BASE)
    record.write(tmp_path)
    path = tmp_path / "runs" / record.arms["arm"].files[0][2]
    if damage == "a digit":
        path.write_text(path.read_text().replace('"seed": 2', '"seed": 3'))
    elif damage == "a field":
        write_sealed(path, {**read_sealed(path), "labels": 5})
    else:
        path.unlink()
    report = read_study(tmp_path)
    assert list(report.contrasts) == ["other"]
    assert report.failed.keys() == {"arm"}
    said = report.failed["arm"]
    assert str(path) in said
    assert said.endswith("the command of the study with --resume computes it again")
    path = tmp_path / "runs" / record.arms["base"].files[0][0]
    path.write_text("{}")
    with pytest.raises(Damaged, match=f"{path.name}: has no hash; the command"):
        read_study(tmp_path)


def test_arms_may_have_other_batches_than_the_baseline(tmp_path):
    """As one that is trained on longer texts; a run with others than those of its own arm is damaged."""
    record = made.record(tmp_path, {"base": BASE, "arm": np.stack([BASE - 0.1, BASE])}, halves=True)
    for file in (name for row in record.arms["arm"].files for name in row):
        run = read_sealed(tmp_path / "runs" / file)
        shorter = {name: run[name][:1] for name in ("loss", "labels", "correct", "exact", "sequences")}
        write_sealed(tmp_path / "runs" / file, {**run, **shorter})
    report = analyse(tmp_path, record)
    assert report.contrasts["arm"].difference == pytest.approx(-0.1)
    assert not report.record.halves
    write_sealed(tmp_path / "runs" / file, run)
    assert analyse(tmp_path, record).failed["arm"].startswith(f"arm: its runs have [1, {made.BATCHES}] batches")


LOSSES = np.linspace(2.0, 2.1, 6)


def test_all_arms_are_read_on_the_same_batches(tmp_path):
    """Also one of a single rate, which has none to choose: equal runs are equal, however the batches differ."""
    record = made.record(tmp_path, {"tuned": np.stack([LOSSES, LOSSES + 0.1]), "one": LOSSES}, halves=True)
    for path in (tmp_path / "runs").iterdir():
        run = read_run(path)
        easy = [loss * (1.5 if i % 2 else 0.5) for i, loss in enumerate(run.loss)]
        write_sealed(path, asdict(replace(run, loss=easy)))
    found = analyse(tmp_path, record)
    tuned, one = found.arms
    np.testing.assert_allclose(one.primary.value, tuned.primary.value)
    np.testing.assert_allclose(one.primary.value, 1.5 * LOSSES.mean())
    assert (found.contrasts["one"].difference, found.contrasts["one"].verdict) == (0.0, "equivalent")


def test_a_metric_without_a_margin_is_equivalent_only_where_it_is_equal(tmp_path):
    exact = {"base": np.linspace(0.2, 0.8, 6), "other": np.linspace(0.81, 0.19, 6), "same": np.linspace(0.2, 0.8, 6)}
    found = made.report(tmp_path, dict.fromkeys(exact, LOSSES), exact=exact)
    verdicts = {arm.name: arm.metrics["exact_match"].compared for arm in found.arms[1:]}
    assert {name: compared and compared.verdict for name, compared in verdicts.items()} == {
        "other": "unresolved",
        "same": "equivalent",
    }


@pytest.mark.parametrize("failed", [1, 6])
def test_a_rate_that_fails_where_a_guess_has_no_loss(tmp_path, failed):
    """Of an objective without a chance level: the failed rate is not chosen, and sensitivity is a number."""
    high = np.where(np.arange(6) < failed, np.nan, LOSSES + 0.5)
    record = made.record(tmp_path, {"base": np.stack([LOSSES, high]), "arm": np.stack([LOSSES + 0.1, high])})
    arms = {name: replace(arm, guess=np.inf) for name, arm in record.arms.items()}
    found = analyse(tmp_path, replace(record, arms=arms))
    assert [arm.learning_rate for arm in found.arms] == [1e-3, 1e-3]
    assert all(arm.metrics["sensitivity"].value is not None for arm in found.arms)


def test_a_metric_that_is_the_same_everywhere_tells_nothing(tmp_path):
    """Right in no sequence, all arms are equal within any margin, which is not that they are equally good."""
    none = {"base": 0 * BASE, "arm": 0 * BASE}
    report = made.report(tmp_path, {"base": BASE, "arm": BASE - 0.5}, exact=none, metric="exact_match")
    assert report.warnings()[0].startswith("all runs of all arms have exact_match 0, which tells none from another")
    assert verdicts(report)[2][1][4] == "the same in all runs"
    assert not any("tells none" in line for line in made.report(tmp_path, {"base": BASE, "arm": BASE}).warnings())


def test_what_chooses_rates_is_said_where_nothing_is_held_back(tmp_path):
    two = {"base": np.stack([BASE, BASE + 1]), "arm": np.stack([BASE, BASE + 1])}
    assert "on the batches that are shown" in " ".join(made.report(tmp_path, two).summary())
    assert "the odd ones are shown" in " ".join(made.report(tmp_path, two, halves=True).summary())


def test_questions_and_columns_are_explained_and_all_metrics_are_rows(tmp_path):
    asked = {"both": {"base": -0.5, "arm": 1.0, "other": -0.5}}
    arms = {"base": BASE, "arm": BASE + 1, "other": BASE}
    report = made.report(tmp_path, arms, contrasts=asked)
    assert "both: [arm] − 0.5 × [base] − 0.5 × [other]." in report.summary()
    assert {line.partition(":")[0] for line in legend(report)} >= {"±", "difference", "detectable", "split error"}
    assert {"arm", "learning_rate", "seed", "loss", "accuracy", "exact_match", "chosen"} <= set(report.rows()[0])
    for text in (report.markdown(), report.html()):
        assert "with a probability of 80 %" in text


def test_one_doubt_of_several_arms_is_one_line(tmp_path):
    report = made.report(tmp_path, dict.fromkeys(("base", "a", "b"), BASE[:4]))
    few = [line for line in report.warnings() if "4 seeds" in line]
    assert few == ["base; a; b: 4 seeds: intervals stand on normal theory alone"]


def test_the_interval_of_an_arm_holds_both_readings(tmp_path):
    """Even seeds choose the first rate, odd ones the second."""
    first, second = [1.0, 5.0, 3.0, 5.0, 1.2, 5.1], [2.0, 2.1, 4.0, 4.1, 2.2, 4.2]
    losses = np.array([first, second])
    report = made.report(tmp_path, {"base": losses, "arm": losses})
    low, high = zip(mean_interval(second), mean_interval([2.0, 5.0, 4.0, 5.0, 2.2, 5.1]), strict=True)
    assert report.arms[0].primary.interval == pytest.approx((min(low), max(high)))
