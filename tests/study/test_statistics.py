"""Comparisons: textbook numbers, agreement of interval, p and verdict, and what simulated studies conclude."""

import math

import numpy as np
import pytest
from scipy import stats

from transformer.study.comparison import Scores, change, compare, readings
from transformer.study.statistics import (
    ALPHA,
    UNKNOWN,
    Interval,
    correlation,
    detectable_difference,
    mean_correlation,
    mean_interval,
    normality_p,
    ranks,
    share_interval,
    student,
    unseen_share,
)

pytestmark = pytest.mark.filterwarnings("error")
NAN, INF = math.nan, math.inf

# Student 1908: hours of sleep gained with each of two drugs by the same ten patients.
DEXTRO = np.array([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0])
LAEVO = np.array([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])


def pair(arm, baseline):
    """The parts of an arm against a baseline that were not tuned."""
    x, y = np.asarray(arm, float), np.asarray(baseline, float)
    return [(1.0, Scores(x, x)), (-1.0, Scores(y, y))]


# Intervals


def test_mean_interval_is_the_textbook_one():
    # 1.58 ± 2.2622 · 1.2300/√10
    assert mean_interval(LAEVO - DEXTRO) == pytest.approx((0.7001, 2.4599), abs=1e-4)
    # t(.95, 2) = 2.9200; the mean is 2, the standard error 1/√3
    assert mean_interval([1, 2, 3], confidence=0.9) == pytest.approx((2 - 1.68586, 2 + 1.68586), abs=1e-4)


@pytest.mark.parametrize("n", [2, 5, 10])
def test_mean_interval_covers_the_mean_as_often_as_it_says(n):
    samples = np.random.default_rng(0).normal(3.0, 2.0, (2000, n))
    low, high = np.array([mean_interval(x) for x in samples]).T
    assert np.mean((low < 3) & (high > 3)) == pytest.approx(0.95, abs=0.015)  # three standard errors


@pytest.mark.parametrize("values", [[], [1.0], [NAN, 1.0], [INF, 1.0], [NAN, NAN]])
def test_mean_interval_of_fewer_than_two_values_is_the_whole_line(values):
    assert mean_interval(values) == UNKNOWN


def test_mean_interval_is_a_point_for_equal_values():
    assert mean_interval([0.1, 0.1, 0.1]) == pytest.approx((0.1, 0.1), abs=1e-15)
    assert mean_interval([1.0, NAN, 2.0, INF, 3.0]) == mean_interval([1.0, 2.0, 3.0])


@pytest.mark.parametrize("confidence", [0, 1, 95])
def test_mean_interval_wants_a_probability(confidence):
    with pytest.raises(ValueError, match="confidence"):
        mean_interval([1, 2], confidence)


def test_the_interval_of_a_share_covers_as_often_as_it_says():
    """For any probability; and of no success in 12 trials its end is 1 - 0.025^(1/12)."""
    assert share_interval(0, 12) == pytest.approx((0.0, 1 - 0.025 ** (1 / 12)))
    assert share_interval(12, 12) == pytest.approx((0.025 ** (1 / 12), 1.0))
    low, high = np.array([share_interval(count, 12) for count in range(13)]).T
    for probability in (0.03, 0.2, 0.5, 0.77):
        chances = stats.binom.pmf(np.arange(13), 12, probability)
        assert chances[(low <= probability) & (probability <= high)].sum() >= 0.95
    with pytest.raises(ValueError, match="13 is not between 0 and 12"):
        share_interval(13, 12)


def test_what_so_many_runs_may_not_have_shown():
    assert pytest.approx(1 - (1 - unseen_share(6)) ** 6) == 0.95
    assert unseen_share(6) == pytest.approx(0.393, abs=1e-3)


# Comparisons of arms without failures


def test_compare_on_students_sleep_data():
    found = compare(pair(LAEVO, DEXTRO), margin=0.1)
    assert (found.n, found.verdict, found.failures) == (10, "worse", (0, 0))
    assert found.difference == pytest.approx(1.58)
    assert found.p == pytest.approx(0.00283, abs=5e-6)  # t = 4.0621 with 9 degrees of freedom
    assert found.interval == pytest.approx((0.7001, 2.4599), abs=1e-4)
    assert found.deviation == pytest.approx(1.2300, abs=5e-5)
    assert found.correlation == pytest.approx(0.79517, abs=1e-5)
    walsh = np.sort([(x + y) / 2 for i, x in enumerate(DEXTRO - LAEVO) for y in (DEXTRO - LAEVO)[i:]])
    assert sorted(map(abs, found.by_ranks)) == pytest.approx(sorted(map(abs, walsh[[8, -9]])))  # P(W ≤ 8) = .0244


def test_compare_changes_sign_with_the_arms():
    ab, ba = compare(pair(LAEVO, DEXTRO), 0.1), compare(pair(DEXTRO, LAEVO), 0.1)
    assert (ab.difference, ab.p, ab.correlation) == pytest.approx((-ba.difference, ba.p, ba.correlation))
    assert ab.interval == pytest.approx(-ba.interval)
    assert ab.by_ranks == pytest.approx(-ba.by_ranks)
    assert ba.verdict == "better"


def test_one_bad_run_moves_the_mean_and_among_twelve_no_rank():
    """Among eight it moves one end of the interval of ranks too, and six cannot tell any sign."""
    difference = np.array([0.4, 0.5, 0.6, 0.5, 0.45, 0.55, 0.5, 0.52, 0.48, 0.47, 0.53, 0.51])
    worst = np.append(difference[:-1], -9.0)
    good, bad = (compare(pair(x, np.zeros(12)), 0.01) for x in (difference, worst))
    assert (good.verdict, bad.verdict) == ("worse", "unresolved")
    assert bad.interval.low < -1 < 0.4 < bad.by_ranks.low < bad.by_ranks.high < 0.6
    assert compare(pair(worst[4:], np.zeros(8)), 0.01).by_ranks.low < -4
    assert compare(pair(difference[:5], np.zeros(5)), 0.01).by_ranks == (-np.inf, np.inf)  # 2/2⁵ is more than .05


def test_seeds_are_paired_and_not_sorted():
    arm, baseline = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.1, 2.1, 3.12, 4.1])
    assert compare(pair(arm, baseline), 0.01).verdict == "better"
    assert compare(pair(arm[::-1], baseline), 0.01).verdict == "unresolved"


@pytest.mark.parametrize("looks", [1, 3])
@pytest.mark.parametrize("comparisons", [1, 3, 15])
def test_interval_p_and_verdict_are_one_statement(comparisons, looks):
    """The interval is at α over comparisons and looks, and leaves out 0 exactly where p is below α."""
    rng = np.random.default_rng(0)
    verdicts = set()
    for shift in rng.uniform(-3, 3, 200):
        found = compare(pair(rng.normal(shift, 1, 6), rng.normal(0, 1, 6)), 0.01, comparisons, ALPHA / looks)
        outside = found.interval.low > 0 or found.interval.high < 0
        assert outside == (found.p < 0.05) == (found.verdict in ("better", "worse"))
        verdicts.add(found.verdict)
    assert verdicts == {"better", "worse", "unresolved"}
    x = rng.normal(size=6)
    half = compare(pair(x, 0 * x), 0.01, comparisons).interval.half
    assert half == pytest.approx(stats.t.isf(0.025 / comparisons, 5) * x.std(ddof=1) / np.sqrt(6))


def test_equivalence_is_the_whole_interval_within_the_margin():
    arm, baseline = np.array([1.0, 1.2, 0.9, 1.1]), np.array([1.01, 1.18, 0.91, 1.09])
    half = compare(pair(arm, baseline), 1.0).interval.half
    centre = abs(compare(pair(arm, baseline), 1.0).difference)
    assert compare(pair(arm, baseline), centre + half + 1e-6).verdict == "equivalent"
    assert compare(pair(arm, baseline), centre + half - 1e-6).verdict == "unresolved"
    wider = compare(pair(arm, baseline), centre + half + 1e-6, comparisons=5)
    assert wider.verdict == "unresolved"  # corrected like everything else


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_seeds_decide_nothing(n):
    found = compare(pair(np.ones(n), np.zeros(n)), margin=10.0)
    assert (found.n, found.interval, found.p, found.verdict) == (n, UNKNOWN, 1.0, "unresolved")
    assert found.detectable == INF


def test_pairs_without_variance():
    same = compare(pair([0.1, 0.2, 0.4], [0.1, 0.2, 0.4]), 0.01)
    assert (same.difference, same.p, same.interval, same.verdict) == (0, 1, (0, 0), "equivalent")


@pytest.mark.parametrize("base", [np.zeros(8), np.array([0.1, 0.7, 0.3, 2.9, 0.2, 0.4, 0.1, 0.6])])
def test_equal_differences_are_judged_by_their_ranks(base):
    """They show no spread; with the second base they are equal to rounding, and numpy finds a deviation of 1e-17."""
    few, many = (compare(pair(0.1 + base[:n], base[:n]), 0.01) for n in (4, 8))
    assert (few.p, few.interval, few.verdict) == (0.125, UNKNOWN, "unresolved")
    assert (many.p, many.verdict) == (2 / 2**8, "worse")
    assert many.interval == pytest.approx((0.1, 0.1))
    assert [(one.deviation, one.detectable) for one in (few, many)] == [(None, INF)] * 2


def test_coins_that_come_up_alike_seldom_tell_arms_apart():
    """Of two pairs of right and wrong answers one in eight has the same difference twice."""
    flips = np.random.default_rng(0).integers(0, 2, (400, 2, 2))
    told = [compare(pair(arm, base), 0.01).verdict in ("better", "worse") for arm, base in flips]
    assert np.mean(told) <= 0.05


def test_a_seed_without_the_metric_leaves_its_pair_out_and_fails_nothing():
    arm, base = LAEVO.copy(), DEXTRO.copy()
    arm[0], base[1] = NAN, NAN
    found = compare(pair(arm, base), 0.1)
    assert found == compare(pair(LAEVO[2:], DEXTRO[2:]), 0.1)
    assert (found.n, found.failures) == (8, (0, 0))
    arm[1], arm[2] = INF, INF  # a failed run is one, whatever it is compared with
    assert (compare(pair(arm, base), 0.1).n, compare(pair(arm, base), 0.1).failures) == (8, (2, 0))
    none = compare(pair(np.full(4, NAN), np.ones(4)), 0.1)
    assert (none.n, none.interval, none.p, none.verdict) == (0, UNKNOWN, 1.0, "unresolved")


@pytest.mark.parametrize(
    ("parts", "margin", "message"),
    [
        (pair([1, 2, 3], [1]), 0.1, "not vectors of one length"),
        (pair(np.ones((2, 2)), np.ones((2, 2))), 0.1, "not vectors of one length"),
        (pair([1, 2], [1, 2]), 0.0, "margin 0.0 is not positive"),
        (pair([1, 2], [1, 2]), NAN, "margin nan is not positive"),
    ],
)
def test_what_compare_refuses(parts, margin, message):
    with pytest.raises(ValueError, match=message):
        compare(parts, margin)


def test_each_end_takes_the_reading_that_is_unkind_to_its_claim():
    arm = Scores(np.array([1.0, 2.0, 3.0]), np.array([1.5, 2.5, 3.0]))
    base = Scores(np.array([1.2, 2.1, 3.3]), np.array([1.2, 2.6, 3.4]))
    kind, unkind = readings([(1, arm), (-1, base)])
    np.testing.assert_allclose(kind, arm.best - base.held)
    np.testing.assert_allclose(unkind, arm.held - base.best)
    found = compare([(1, arm), (-1, base)], 0.1)
    assert found.interval.low == student(kind, 0.05).interval.low
    assert found.interval.high == student(unkind, 0.05).interval.high
    assert found.difference == pytest.approx((kind.mean() + unkind.mean()) / 2)


def test_a_contrast_of_four_arms_is_the_difference_of_differences():
    a, b, c, d = np.random.default_rng(1).normal(size=(4, 7))
    found = compare([(w, Scores(x, x)) for w, x in zip((1, -1, -1, 1), (a, b, c, d), strict=True)], 0.1)
    test = stats.ttest_1samp(a - b - c + d, 0)
    assert (found.difference, found.p) == pytest.approx(((a - b - c + d).mean(), test.pvalue))


# Failures


def test_survivors_alone_make_no_arm_better():
    """Four of six runs fail, and the two others are .05 lower."""
    arm = [2.95, INF, INF, 2.95, INF, INF]
    found = compare(pair(arm, [3.0] * 6), 0.01)
    assert found.verdict == "unresolved"
    assert found.failures == (4, 0)
    assert found.interval.high == INF


def test_an_arm_that_always_fails_says_so():
    found = compare(pair([INF] * 6, [3.0, 3.1, 2.9, 3.0, 3.2, 3.1]), 0.01, comparisons=3)
    assert (found.verdict, found.difference) == ("fails more often", INF)
    assert found.p_failures == pytest.approx(3 * 2 / 924)  # Fisher: one of the two most extreme of (12 over 6) tables
    other = compare(pair([3.0] * 6, [INF] * 5 + [3.0]), 0.01)
    assert other.verdict == "fails less often"


def test_failures_say_nothing_against_the_interval():
    """Seven runs fail of one arm only; where neither fails that one is better, or the other."""
    worse = compare(pair(np.r_[0.1 + 0.01 * np.arange(41) / 41, [0.0] * 7], np.r_[[0.0] * 41, [INF] * 7]), 0.01)
    assert (worse.failures, worse.p_failures < ALPHA / 2, worse.interval.low > 0) == ((0, 7), True, True)
    assert worse.verdict == "unresolved"
    better = compare(pair(np.r_[[0.0] * 41, [INF] * 7], np.r_[0.1 + 0.01 * np.arange(41) / 41, [0.0] * 7]), 0.01)
    assert (better.interval.high < 0, better.verdict) == (True, "unresolved")


def test_shares_of_failures_are_read_twice():
    """At the rate that all seeds choose half of the runs fail, at those that others choose one does, or the reverse."""
    many, few, none = np.array([INF] * 8 + [3.0] * 8), np.array([INF] + [3.0] * 15), np.full(16, 3.0)
    baseline = (-1.0, Scores(none, none))
    assert compare([(1.0, Scores(many, many)), baseline], 0.01).verdict == "fails more often"
    for scores in (Scores(many, few), Scores(few, many)):
        found = compare([(1.0, scores), baseline], 0.01)
        assert (found.verdict, found.p_failures) == ("unresolved", 1.0)
    turned = compare([(1.0, Scores(many, none)), (-1.0, Scores(none, many))], 0.01)
    assert (turned.failures, turned.p_failures) == ((8, 0), 1.0)


@pytest.mark.parametrize("weights", [[1.0, *[-1 / 3] * 3], [0.7, 0.3, -1.0], [*[0.1] * 10, -1.0]], ids=len)
def test_weighted_arms_that_are_the_same_have_no_difference(weights):
    for costs in (np.full(8, -1.0), 2 + 0.1 * np.random.default_rng(0).normal(size=8)):
        found = compare([(weight, Scores(costs, costs)) for weight in weights], 0.01)
        assert (found.same, found.verdict, found.p, found.interval) == (True, "equivalent", 1.0, Interval(0.0, 0.0))


@pytest.mark.parametrize("arm", [[INF] * 6, [3.0, INF, 3.1, 2.9, 3.3, 3.0], [3.0, 3.2, 3.1, 2.9, 3.3, 3.0]])
def test_weights_may_come_in_any_order(arm):
    parts = pair(arm, [3.0, 3.1, 2.9, 3.0, 3.2, 3.1])
    assert compare(parts[::-1], 0.01) == compare(parts, 0.01)


def test_no_arm_that_fails_is_equivalent():
    same = [3.0, 3.1, 2.9, 3.0, 3.2, 3.1, 3.0, 3.0, 3.1, 2.9, 3.0]
    assert compare(pair(same, same), 1.0).verdict == "equivalent"
    found = compare(pair([*same, INF], [*same, 3.0]), 1.0)
    assert (found.verdict, found.failures) == ("unresolved", (1, 0))


@pytest.mark.parametrize("comparisons", [1, 3])
def test_with_failures_half_of_alpha_is_that_of_the_interval(comparisons):
    """The rest is that of the shares; p is corrected for both."""
    rng = np.random.default_rng(7)
    x, base = rng.normal(0.5, 1, 12), np.zeros(12)
    x[4] = INF
    found, alone = compare(pair(x, base), 0.01, comparisons), ranks(x, 0.025 / comparisons)
    assert found.interval == alone.interval != ranks(x, 0.05 / comparisons).interval
    assert found.p == min(1.0, 2 * comparisons * alone.p)


def test_an_arm_that_is_much_better_may_fail_once():
    """The failure is the worst of twelve ranks: Σ of positive ranks 12 of 78, p = .034 twice for both tests."""
    arm = np.linspace(2.4, 2.5, 12)
    arm[3] = INF
    found = compare(pair(arm, np.linspace(3.0, 3.1, 12)), 0.01)
    exact = stats.wilcoxon(np.where(np.isinf(arm), 100, arm) - np.linspace(3.0, 3.1, 12) + 1e-9 * np.arange(12))
    assert found.p == pytest.approx(2 * exact.pvalue, rel=1e-6)
    assert found.difference == pytest.approx(-0.6, abs=1e-6)
    arm = np.concatenate([np.linspace(2.4, 2.5, 12), [INF]])
    assert compare(pair(arm, np.linspace(3.0, 3.1, 13)), 0.01).verdict == "better"


def test_two_runs_that_both_fail_say_nothing():
    kind, unkind = readings(pair([INF, 1.0, INF], [INF, INF, 2.0]))
    np.testing.assert_array_equal(kind, [-INF, INF])
    np.testing.assert_array_equal(unkind, kind)


def test_failures_under_the_same_seeds_are_failures():
    """They leave fewer pairs, and never make arms equivalent or the same."""
    base = 3 + 0.05 * np.random.default_rng(0).normal(size=8)
    arm, gone = base + 0.3, np.arange(8) < 6
    every = compare(pair(np.full(8, INF), np.full(8, INF)), 0.01)
    assert (every.n, every.verdict, every.failures, every.p, every.same) == (0, "unresolved", (8, 8), 1.0, False)
    assert every.interval == UNKNOWN
    assert math.isnan(every.difference)
    some = compare(pair(np.where(gone, INF, arm), np.where(gone, INF, base)), 0.2)
    assert (some.n, some.verdict, some.failures, some.interval) == (2, "unresolved", (6, 6), UNKNOWN)
    assert some.difference == pytest.approx(0.3)
    assert (some.deviation, some.detectable) == (None, INF)
    one = compare(pair(np.where(gone, INF, arm), np.where(np.arange(8) < 1, INF, base)), 0.2)
    assert (one.n, one.failures) == (7, (6, 1))
    assert one.p_failures == pytest.approx(stats.fisher_exact([[6, 2], [1, 7]])[1])


def test_an_interval_beside_common_failures_covers_the_difference():
    """Of 300 studies in which half of the seeds fail in both arms, whose others differ by .3."""
    rng, covered = np.random.default_rng(1), 0
    for _ in range(300):
        base = rng.normal(size=20)
        arm, gone = base + 0.3 + 0.5 * rng.normal(size=20), rng.random(20) < 0.5
        low, high = compare(pair(np.where(gone, INF, arm), np.where(gone, INF, base)), 0.2).interval
        covered += low < 0.3 < high
    assert covered >= 285


def test_ranks_are_those_of_scipy_and_their_interval_agrees():
    rng = np.random.default_rng(2)
    for shift in rng.uniform(-2, 2, 60):
        x = rng.normal(shift, 1, 9)
        found = ranks(x, 0.05)
        assert found.p == pytest.approx(stats.wilcoxon(x, method="exact").pvalue)
        assert (found.p <= 0.05) == (found.interval.low > 0 or found.interval.high < 0)
        i, j = np.triu_indices(9)
        assert found.estimate == pytest.approx(np.median((x[i] + x[j]) / 2))
    assert ranks(np.arange(1.0, 6), 0.05).interval == UNKNOWN  # two in 32 signs are as extreme: p = .0625
    assert ranks(np.zeros(0), 0.05).p == 1
    assert ranks(np.zeros(8), 0.05).p == 1


def test_failures_leave_half_of_alpha_to_the_ranks_and_half_to_the_shares():
    arm, base = np.linspace(2.4, 2.5, 13), np.linspace(3.0, 3.1, 13)
    arm[3] = INF
    found = compare(pair(arm, base), 0.01, comparisons=2)
    alone = ranks(arm - base, 0.025 / 2)
    assert found.interval == alone.interval
    assert found.p == pytest.approx(4 * alone.p)
    assert found.p_failures == 1.0
    assert found.deviation is None
    one = [3.0, 3.1, 2.9, 3.0, 3.2, 3.1, 3.0, 3.1]
    some = compare(pair([INF] * 5 + one[5:], one), 0.01)  # Fisher: p = .0256 of 5 in 8 against none, above α/2
    assert some.p_failures == pytest.approx(0.025641, abs=1e-6)
    assert some.verdict == "unresolved"
    assert compare(pair([INF] * 6 + one[6:], one), 0.01).verdict == "fails more often"
    equal = compare(pair([INF, *one], [*one, INF]), 0.01)
    assert (equal.failures, equal.p_failures, equal.verdict) == ((1, 1), 1.0, "unresolved")


def test_only_an_arm_against_another_has_shares_of_failures():
    x, bad = np.arange(8.0), np.full(8, INF)
    parts = [(w, Scores(c, c)) for w, c in ((1, bad), (-1, x), (-1, x), (1, x))]
    assert compare(parts, 0.1).failures == (0, 0)
    assert compare(pair(x, x), 0.1).failures == (0, 0)


def test_no_arm_with_failures_is_equivalent_even_with_a_narrow_interval():
    same = np.linspace(3.0, 3.1, 16)
    found = compare(pair(np.r_[same[:-1], INF], same), 1.0)
    assert -1 < found.interval.low <= found.interval.high < 1
    assert found.verdict == "unresolved"


def test_readings_on_two_sides_of_zero_have_no_p():
    """Each reading alone is clear, and they contradict each other."""
    arm = Scores(np.array([-1.0, -1.1, -0.9, -1.0]), np.array([1.0, 1.1, 0.9, 1.0]))
    found = compare([(1, arm), (-1, Scores(np.zeros(4), np.zeros(4)))], 0.1)
    assert (found.p, found.difference, found.verdict) == (1.0, 0.0, "unresolved")
    assert found.interval.low < -1 < 1 < found.interval.high


def test_readings_that_are_infinite_with_two_signs_have_no_middle():
    arm = Scores(np.full(4, -1.0), np.full(4, INF))
    other = Scores(np.zeros(4), np.full(4, INF))
    found = compare([(1, arm), (-1, other)], 0.1)
    assert math.isnan(found.difference)


def test_between_failures_of_both_signs_there_is_no_difference():
    """0 is one of two values, and as good as any."""
    for both in ([INF, -INF], [INF, INF, 1.0, -INF, -INF]):
        found = ranks(np.array(both), 0.05)
        assert (found.p, found.interval) == (1.0, UNKNOWN)
    assert math.isnan(ranks(np.array([INF, -INF]), 0.05).estimate)
    assert ranks(np.array([INF, INF, 1.0, -INF, -INF]), 0.05).estimate == 1.0
    many = ranks(np.r_[[-INF] * 7, [INF] * 2], 0.05)
    assert many.interval == UNKNOWN


def test_the_ends_of_a_rank_interval_are_walsh_averages():
    """Of nine values at level .05 the sixth from either end: 2 P(W ≤ 5) = .039, 2 P(W ≤ 6) = .055."""
    x = np.array([1.0, 2.5, 4.5, 7.0, 10.5, 14.0, 19.0, 26.0, 35.0])
    i, j = np.triu_indices(9)
    walsh = np.sort((x[i] + x[j]) / 2)
    assert ranks(x, 0.05).interval == (walsh[5], walsh[-6])
    assert ranks(x, 0.039).interval == (walsh[4], walsh[-5])
    assert ranks(1e9 * x, 0.05).interval == pytest.approx((1e9 * walsh[5], 1e9 * walsh[-6]))
    six = ranks(x[:6], 2 / 64)  # the level itself is enough
    assert six.interval == (1.0, 14.0)
    failed = np.r_[x, INF, -INF]  # ten averages are -∞, and that of both may be
    assert ranks(failed, 0.05).interval == UNKNOWN  # of eleven values the eleventh from either end
    assert np.isfinite([*ranks(failed, 0.06).interval, ranks(failed, 0.06).estimate]).all()
    always = ranks(np.full(9, -INF), 0.05)
    assert (always.estimate, *always.interval) == (-INF, -INF, -INF)


def test_two_seeds_have_a_deviation():
    found = compare(pair([1.0, 2.0], [0.5, 1.0]), 0.1)
    assert found.deviation == pytest.approx(np.std([0.5, 1.0], ddof=1))
    assert np.isfinite(found.detectable)


def test_the_whole_interval_lies_strictly_within_the_margin():
    exact = compare(pair([1.0] * 6, [0.5] * 6), 0.5)
    assert exact.verdict == "worse"
    at = pair([0.5, -0.5, 0.5, -0.5], np.zeros(4))
    half = compare(at, 1.0).interval.half
    assert compare(at, half).verdict == "unresolved"
    assert compare(at, half * (1 + 1e-9)).verdict == "equivalent"


# Two studies


def test_the_change_of_a_difference_is_welchs():
    rng = np.random.default_rng(7)
    a, b = rng.normal(1, 0.2, 9), rng.normal(0.5, 0.6, 6)
    here, there = (compare(pair(x, 0 * x), 0.1) for x in (a, b))
    test = stats.ttest_ind(a, b, equal_var=False)
    gap, interval = change(here, there)
    assert gap == pytest.approx(a.mean() - b.mean())
    assert interval == pytest.approx(tuple(test.confidence_interval(0.95)))
    wider = change(here, there, comparisons=5)[1]
    assert wider == pytest.approx(tuple(test.confidence_interval(0.99)))
    failed = compare(pair([INF, 1.0, 2.0], np.zeros(3)), 0.1)
    assert change(here, failed)[1] == UNKNOWN
    constant, same = (compare(pair([x, x], [0.5, 0.5]), 0.1) for x in (1.0, 0.5))
    assert change(constant, constant) == (0.0, UNKNOWN)
    assert change(same, same) == (0.0, (0.0, 0.0))


# Simulated studies


@pytest.mark.parametrize("arms", [2, 8])
def test_equal_arms_are_called_different_in_one_study_of_twenty(arms):
    rng, wrong, covered = np.random.default_rng(3), [], []
    for _ in range(600):
        costs = rng.normal(size=(arms, 6)) + rng.normal(size=6)
        found = [compare(pair(arm, costs[0]), 0.01, arms - 1) for arm in costs[1:]]
        wrong.append(any(one.verdict in ("better", "worse") for one in found))
        covered.append(all(one.interval.low <= 0 <= one.interval.high for one in found))
    assert 0.015 < np.mean(wrong) < 0.075  # three standard errors around .045
    assert np.mean(covered) == 1 - np.mean(wrong)


# Detectable differences

# Seeds; pairs with ρ = .5, one comparison and 20; with ρ = .9.
DETECTABLE = [
    (3, "3.3", "14.6", "1.5", "6.6"),
    (5, "1.7", "3.8", ".75", "1.7"),
    (8, "1.2", "2.0", ".52", ".91"),
    (16, ".75", "1.1", ".34", ".51"),
    (32, ".51", ".74", ".23", ".33"),
]
COLUMNS = [(1, 0.5), (20, 0.5), (1, 0.9), (20, 0.9)]


@pytest.mark.parametrize(
    ("n", "comparisons", "rho", "printed"),
    [(n, *column, cell) for n, *cells in DETECTABLE for column, cell in zip(COLUMNS, cells, strict=True)],
)
def test_detectable_difference_as_tabulated(n, comparisons, rho, printed):
    digits = len(printed.partition(".")[2])
    effect = detectable_difference(math.sqrt(2 * (1 - rho)), n, comparisons)
    assert f"{effect:.{digits}f}".lstrip("0") == printed


@pytest.mark.parametrize(("n", "comparisons"), [(2, 1), (3, 20), (5, 1), (32, 20)])
@pytest.mark.parametrize("power", [0.5, 0.8, 0.99])
def test_detectable_difference_has_the_power_without_the_noncentral_t(n, comparisons, power):
    """P(z + c > critical · s), averaged over the quantiles of s."""
    c = detectable_difference(1.0, n, comparisons, power) * math.sqrt(n)
    s = np.sqrt(stats.chi2.ppf((np.arange(20_000) + 0.5) / 20_000, n - 1) / (n - 1))
    assert stats.norm.cdf(c - stats.t.isf(0.025 / comparisons, n - 1) * s).mean() == pytest.approx(power, abs=1e-4)


@pytest.mark.parametrize("power", [0.06, 0.8, 0.999])
@pytest.mark.parametrize("comparisons", [1, 1000, 100_000])
def test_detectable_difference_is_finite_and_falls_with_seeds(comparisons, power):
    effects = [detectable_difference(1.0, n, comparisons, power) for n in (2, 3, 10, 100, 1000)]
    assert np.isfinite(effects).all()
    assert (np.diff(effects) < 0).all()


def test_detectable_difference_is_smooth_where_the_limit_takes_over():
    # With one degree of freedom the critical value is 2·comparisons/(.05·π): 1e4 at 785.4 comparisons.
    ratio = detectable_difference(1.0, 2, 786) / detectable_difference(1.0, 2, 785)
    assert ratio == pytest.approx(786 / 785, abs=1e-3)


def test_detectable_difference_is_each_arms_own():
    """A loud arm does not make a quiet one undetectable."""
    rng = np.random.default_rng(4)
    base = rng.normal(0, 0.01, 8)
    quiet, loud = (compare(pair(rng.normal(0, sd, 8), base), 0.01, 6).detectable for sd in (0.01, 0.2))
    assert loud > 5 * quiet
    assert detectable_difference(2.0, 8) == pytest.approx(2 * detectable_difference(1.0, 8))


def test_what_a_comparison_detects_is_corrected_like_its_interval():
    found = compare(pair(LAEVO, DEXTRO), 0.1, 5, alpha=0.01)
    assert found.detectable == detectable_difference(found.deviation, 10, 5, alpha=0.01)


def test_detectable_difference_at_the_edges():
    assert detectable_difference(1.0, 1) == INF
    assert detectable_difference(0.0, 5) == 0


@pytest.mark.parametrize("wrong", [{"comparisons": 0}, {"power": 0.01}, {"power": 1.0}, {"alpha": 0.0}])
def test_detectable_difference_refuses(wrong):
    with pytest.raises(ValueError, match="detectable_difference"):
        detectable_difference(1.0, 5, **wrong)


# Correlation and doubts


def test_correlation_of_the_pairs_that_are_there():
    samples = np.random.default_rng(5).normal(size=(2, 6))
    assert correlation(*samples) == pytest.approx(np.corrcoef(samples)[0, 1])
    assert correlation(np.array([1, 2, 3, NAN]), np.array([2, 4, 6, 1])) == pytest.approx(1)
    for x, y in (([1, 2], [3, 4]), ([5, 5, 5], [1, 2, 3]), ([INF, NAN, 1, 2], [1, 2, 3, 4])):
        assert correlation(np.array(x, float), np.array(y, float)) is None


def test_mean_correlation_is_the_mean_over_pairs_of_arms():
    arms = [np.array(x, float) for x in ([1, 2, 3], [2, 4, 6], [3, 2, 1])]  # 1·2 is +1, 1·3 and 2·3 are -1
    assert mean_correlation(arms) == pytest.approx(-1 / 3)
    assert mean_correlation([*arms, np.ones(3)]) == pytest.approx(-1 / 3)
    assert mean_correlation(arms[:1]) is None


def test_runs_that_are_not_normal_are_noticed():
    rng = np.random.default_rng(6)
    normal = [normality_p(rng.normal(size=(3, 8))) < 0.02 for _ in range(300)]
    assert np.mean(normal) < 0.05
    two_kinds = 0.1 * rng.normal(size=(1, 8)) + np.array([[0, 0, 0, 2.5, 0, 0, 0, 2.5]])
    assert normality_p(two_kinds) < 0.02
    assert normality_p(np.array([[1.0, INF, NAN, 2.0]])) == normality_p(np.array([[0.0, 0.0, 9.0]])) == 1
    four = np.array([[0.0, 0.1, 0.2, 50.0]])
    assert normality_p(four) == pytest.approx(stats.shapiro(four[0]).pvalue)
    assert normality_p(np.r_[four, rng.normal(size=(1, 4))]) == pytest.approx(2 * stats.shapiro(four[0]).pvalue)
    assert normality_p(np.ones((2, 5))) == 1


def test_an_interval_has_a_half_width():
    assert Interval(1.0, 2.0).half == 0.5


def test_the_deviation_is_that_of_the_reading_that_varies_more():
    """Whichever of both that is."""
    x, y, base = np.random.default_rng(0).normal(size=(3, 8))
    for arm in (Scores(x, 3 * y), Scores(3 * y, x)):
        found = compare([(1, arm), (-1, Scores(base, base))], 0.1)
        assert found.deviation == pytest.approx(np.std(3 * y - base, ddof=1))
        assert found.deviation > 1.3 * np.std(x - base, ddof=1)
        assert found.detectable == detectable_difference(found.deviation, 8, 1)


def test_shares_of_failures_that_differ_in_both_directions_do_not_differ():
    """In one reading all runs of the arm fail and in the other one none, each time against the opposite."""
    none, all_of_them = np.zeros(8), np.full(8, INF)
    found = compare([(1, Scores(none, all_of_them)), (-1, Scores(none, all_of_them))], 0.1)
    assert (found.p_failures, found.verdict) == (1.0, "unresolved")
