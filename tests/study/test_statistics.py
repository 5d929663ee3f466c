import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from transformer.study.statistics import (
    Interval,
    PairedComparison,
    compare_paired,
    equivalence_p,
    holm,
    mean_interval,
    pooled_correlation,
    share_interval,
    smallest_detectable_effect,
    verdict,
)

pytestmark = pytest.mark.filterwarnings("error")

EVERYTHING = Interval(-math.inf, math.inf)
NAN, INF = math.nan, math.inf

# Student 1908: hours of sleep gained with each of two drugs by the same ten patients.
DEXTRO = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
LAEVO = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]


def comparison(difference: float, standard_error: float, n: int = 5) -> PairedComparison:
    deviation = standard_error * math.sqrt(n)
    return PairedComparison(n, difference, EVERYTHING, 0.5, 0.0, deviation)


# Intervals


def test_mean_interval_is_the_textbook_one():
    # 1.58 ± 2.2622 · 1.2300/√10
    assert mean_interval(np.subtract(LAEVO, DEXTRO)) == pytest.approx((0.7001, 2.4599), abs=1e-4)
    # t(.95, 2) = 2.9200; the mean is 2, the standard error 1/√3
    assert mean_interval([1, 2, 3], confidence=0.9) == pytest.approx((2 - 1.68586, 2 + 1.68586), abs=1e-4)


@pytest.mark.parametrize("n", [2, 5, 10])
def test_mean_interval_covers_the_mean_as_often_as_it_says(n):
    samples = np.random.default_rng(0).normal(3.0, 2.0, (2000, n))
    low, high = np.array([mean_interval(x) for x in samples]).T
    assert np.mean((low < 3) & (high > 3)) == pytest.approx(0.95, abs=0.015)  # three standard errors


@pytest.mark.parametrize("values", [[], [1.0], [NAN, 1.0], [INF, 1.0], [NAN, NAN]])
def test_mean_interval_of_fewer_than_two_values_is_the_whole_line(values):
    assert mean_interval(values) == EVERYTHING


def test_mean_interval_leaves_out_diverged_runs_and_is_a_point_for_equal_values():
    assert mean_interval([1.0, NAN, 2.0, INF, 3.0]) == mean_interval([1.0, 2.0, 3.0])
    assert mean_interval([0.1, 0.1, 0.1]) == pytest.approx((0.1, 0.1), abs=1e-15)


@pytest.mark.parametrize("confidence", [0, 1, 95])
def test_mean_interval_wants_a_probability(confidence):
    with pytest.raises(ValueError, match="confidence"):
        mean_interval([1, 2], confidence)


# Paired comparisons


def test_compare_paired_on_students_sleep_data():
    result = compare_paired(LAEVO, DEXTRO)
    assert result.n == 10
    assert result.difference == pytest.approx(1.58)
    assert result.p == pytest.approx(0.00283, abs=5e-6)  # t = 4.0621 with 9 degrees of freedom
    assert result.interval == pytest.approx((0.7001, 2.4599), abs=1e-4)
    assert result.standard_deviation == pytest.approx(1.2300, abs=5e-5)
    assert result.standard_error == pytest.approx(0.38896, abs=5e-6)
    assert result.correlation == pytest.approx(0.79517, abs=1e-5)


def test_compare_paired_changes_sign_with_the_arms():
    ab, ba = compare_paired(LAEVO, DEXTRO), compare_paired(DEXTRO, LAEVO)
    assert (ab.difference, ab.p, ab.correlation) == pytest.approx((-ba.difference, ba.p, ba.correlation))
    assert ab.interval == pytest.approx((-ba.interval.high, -ba.interval.low))


def test_compare_paired_agrees_with_scipy():
    x, y = np.random.default_rng(1).normal(size=(2, 7))
    result, test = compare_paired(x, y), stats.ttest_rel(x, y)
    assert result.p == pytest.approx(test.pvalue)
    assert result.interval == pytest.approx(tuple(test.confidence_interval(0.95)))
    assert result.correlation == pytest.approx(np.corrcoef(x, y)[0, 1])


def test_compare_paired_drops_pairs_with_a_diverged_run():
    arm, baseline = [1.0, NAN, 2.0, 4.0, INF, 3.0], [1.5, 2.0, NAN, 3.0, 1.0, 2.5]
    assert compare_paired(arm, baseline) == compare_paired([1.0, 4.0, 3.0], [1.5, 3.0, 2.5])


@pytest.mark.parametrize(
    ("arm", "baseline", "n", "difference"),
    [([], [], 0, NAN), ([1.0], [3.0], 1, -2.0), ([NAN, 1.0], [1.0, INF], 0, NAN)],
)
def test_fewer_than_two_pairs_decide_nothing(arm, baseline, n, difference):
    result = compare_paired(arm, baseline)
    assert (result.n, result.interval, result.p) == (n, EVERYTHING, 1.0)
    assert result.difference == pytest.approx(difference, nan_ok=True)
    assert math.isnan(result.correlation)
    assert math.isnan(result.standard_error)
    assert equivalence_p(result, margin=10.0) == 1.0
    assert verdict(result, result.p, margin=10.0) == "unresolved"


def test_two_pairs_have_no_correlation_but_an_interval():
    result = compare_paired([1.0, 2.0], [1.0, 1.0])
    assert math.isnan(result.correlation)
    assert result.interval == pytest.approx((0.5 - 12.7062 / 2, 0.5 + 12.7062 / 2), abs=1e-4)


def test_pairs_without_variance():
    same = compare_paired([0.1, 0.2, 0.4], [0.1, 0.2, 0.4])
    assert (same.difference, same.p, same.interval, same.standard_deviation) == (0, 1, (0, 0), 0)
    assert same.correlation == pytest.approx(1)
    shifted = compare_paired([0.1, 0.1, 0.1], [0.0, 0.0, 0.0])  # numpy finds a deviation of 1e-17
    assert (shifted.p, shifted.standard_deviation) == (0, 0)
    assert shifted.interval == (shifted.difference, shifted.difference) == pytest.approx((0.1, 0.1))
    constant = compare_paired([0.1, 0.1, 0.1], [1.0, 2.0, 3.0])
    assert math.isnan(constant.correlation)


def test_compare_paired_wants_vectors_of_one_length():
    with pytest.raises(ValueError, match=r"arm \(3,\) and baseline \(1,\)"):
        compare_paired([1, 2, 3], [1])
    with pytest.raises(ValueError, match="vectors"):
        compare_paired(np.ones((2, 2)), np.ones((2, 2)))


def test_a_comparison_cannot_be_edited():
    with pytest.raises(dataclasses.FrozenInstanceError):
        compare_paired(LAEVO, DEXTRO).p = 0.0  # pyright: ignore[reportAttributeAccessIssue]


# Corrections


@pytest.mark.parametrize(
    ("p", "corrected"),
    [
        # .01·3, .02·2 and .04·1; then the same where the running maximum has to act.
        ([0.04, 0.01, 0.02], [0.04, 0.03, 0.04]),
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
        ([0.7, 0.6], [1.0, 1.0]),
        ([0.02, 0.02], [0.04, 0.04]),
        ([0.03], [0.03]),
        ([], []),
    ],
)
def test_holm_on_literal_examples(p, corrected):
    assert holm(p) == pytest.approx(corrected)


def test_holm_is_monotone_between_p_and_bonferroni():
    p = np.random.default_rng(2).uniform(0, 0.2, 12)
    corrected = np.array(holm(p.tolist()))
    assert (np.diff(corrected[np.argsort(p)]) >= 0).all()
    assert ((p <= corrected) & (corrected <= np.minimum(1, 12 * p))).all()


def test_holm_keeps_the_chance_of_any_false_rejection():
    p = np.random.default_rng(3).uniform(size=(2000, 10))
    assert np.mean([min(holm(row.tolist())) < 0.05 for row in p]) == pytest.approx(0.05, abs=0.015)
    assert np.mean(p.min(1) < 0.05) > 0.35


# Equivalence and verdicts


def test_equivalence_p_on_literal_values():
    # Bounds ±1, difference .5, standard error .25: t = 2 to the near bound, 6 to the far one.
    assert equivalence_p(comparison(0.5, 0.25), margin=1.0) == pytest.approx(0.05806, abs=1e-5)
    assert equivalence_p(comparison(-0.5, 0.25), margin=1.0) == pytest.approx(0.05806, abs=1e-5)
    assert equivalence_p(comparison(1.0, 0.25), margin=1.0) == pytest.approx(0.5)
    assert equivalence_p(comparison(1.5, 0.25), margin=1.0) == pytest.approx(1 - 0.05806, abs=1e-5)


def test_equivalence_p_is_the_larger_of_two_one_sided_tests():
    result = compare_paired(LAEVO, DEXTRO)
    differences = np.subtract(LAEVO, DEXTRO)
    _, below = stats.ttest_1samp(differences, 2.5, alternative="less")
    _, above = stats.ttest_1samp(differences, -2.5, alternative="greater")
    assert equivalence_p(result, 2.5) == pytest.approx(np.max([below, above]))


def test_equivalence_is_the_interval_of_twice_alpha_within_the_margin():
    result, ninety = compare_paired(LAEVO, DEXTRO), mean_interval(np.subtract(LAEVO, DEXTRO), 0.9)
    assert equivalence_p(result, ninety.high) == pytest.approx(0.05)


def test_equivalence_without_variance():
    assert equivalence_p(comparison(0.5, 0.0), margin=1.0) == 0
    assert equivalence_p(comparison(1.0, 0.0), margin=1.0) == 1
    assert equivalence_p(comparison(-2.0, 0.0), margin=1.0) == 1


@pytest.mark.parametrize("margin", [0.0, -1.0, NAN])
def test_equivalence_wants_a_margin(margin):
    with pytest.raises(ValueError, match="margin"):
        equivalence_p(comparison(0.0, 1.0), margin)


@pytest.mark.parametrize(
    ("difference", "standard_error", "p_corrected", "expected"),
    [
        (-2.0, 0.1, 0.01, "better"),
        (+2.0, 0.1, 0.01, "worse"),
        (-0.5, 0.1, 0.01, "better"),  # significant and within the margin
        (+0.5, 0.1, 0.01, "worse"),
        (-0.1, 0.1, 0.60, "equivalent"),
        (+0.1, 0.1, 0.05, "equivalent"),  # not below alpha
        (-2.0, 0.9, 0.20, "unresolved"),
        (+0.1, 0.9, 0.90, "unresolved"),
    ],
)
def test_verdict(difference, standard_error, p_corrected, expected):
    assert verdict(comparison(difference, standard_error), p_corrected, margin=1.0) == expected


def test_verdict_holds_both_tests_to_alpha():
    near = comparison(0.5, 0.25)  # equivalence p .058
    assert verdict(near, 0.06, margin=1.0, alpha=0.05) == "unresolved"
    assert verdict(near, 0.06, margin=1.0, alpha=0.0599) == "equivalent"
    assert verdict(near, 0.06, margin=1.0, alpha=0.07) == "worse"


# Power

# Seeds; two independent samples, one comparison and 20; pairs with ρ = .5, one and 20; with ρ = .9.
DETECTABLE = [
    (3, "3.1", "6.9", "3.3", "14.6", "1.5", "6.6"),  # the last is 6.5502
    (5, "2.0", "3.4", "1.7", "3.8", ".75", "1.7"),
    (8, "1.5", "2.3", "1.2", "2.0", ".52", ".91"),
    (16, "1.0", "1.5", ".75", "1.1", ".34", ".51"),
    (32, ".71", "1.0", ".51", ".74", ".23", ".33"),
]
COLUMNS = [(1, None), (20, None), (1, 0.5), (20, 0.5), (1, 0.9), (20, 0.9)]


@pytest.mark.parametrize(
    ("n", "comparisons", "correlation", "printed"),
    [(n, *column, cell) for n, *cells in DETECTABLE for column, cell in zip(COLUMNS, cells, strict=True)],
)
def test_smallest_detectable_effect_as_tabulated(n, comparisons, correlation, printed):
    digits = len(printed.partition(".")[2])
    effect = smallest_detectable_effect(n, comparisons, correlation)
    assert f"{effect:.{digits}f}".lstrip("0") == printed


def test_the_cell_that_rounds_either_way():
    assert smallest_detectable_effect(3, 20, 0.9) == pytest.approx(6.5502, abs=1e-4)


@pytest.mark.parametrize(("n", "comparisons", "correlation"), [(2, 1, None), (3, 20, 0.9), (5, 1, 0.5), (32, 20, None)])
@pytest.mark.parametrize("power", [0.5, 0.8, 0.99])
def test_smallest_detectable_effect_has_the_power_without_the_noncentral_t(n, comparisons, correlation, power):
    """P(z + c > critical · s), averaged over the quantiles of s."""
    freedom = 2 * n - 2 if correlation is None else n - 1
    unit = math.sqrt(2 * (1 - (correlation or 0)) / n)
    c = smallest_detectable_effect(n, comparisons, correlation, power) / unit
    s = np.sqrt(stats.chi2.ppf((np.arange(20_000) + 0.5) / 20_000, freedom) / freedom)
    assert stats.norm.cdf(c - stats.t.isf(0.025 / comparisons, freedom) * s).mean() == pytest.approx(power, abs=1e-4)


def test_smallest_detectable_effect_is_found_as_often_as_it_says():
    effect = smallest_detectable_effect(5, correlation=0.5)
    cov = [[1, 0.5], [0.5, 1]]
    pairs = np.random.default_rng(4).multivariate_normal([effect, 0], cov, (2000, 5))
    found = stats.ttest_rel(pairs[..., 0], pairs[..., 1], axis=1).pvalue < 0.05
    assert found.mean() == pytest.approx(0.8, abs=0.027)  # three standard errors


@pytest.mark.parametrize("correlation", [None, 0.5])
@pytest.mark.parametrize("power", [0.06, 0.8, 0.999])
@pytest.mark.parametrize("comparisons", [1, 1000, 100_000])
def test_smallest_detectable_effect_is_finite_and_falls_with_seeds(comparisons, power, correlation):
    effects = [smallest_detectable_effect(n, comparisons, correlation, power) for n in (2, 3, 10, 100, 1000)]
    assert np.isfinite(effects).all()
    assert (np.diff(effects) < 0).all()


def test_smallest_detectable_effect_is_smooth_where_the_limit_takes_over():
    # With one degree of freedom the critical value is 2·comparisons/(.05·π): 1e4 at 785.4 comparisons.
    ratio = smallest_detectable_effect(2, 786, 0.0) / smallest_detectable_effect(2, 785, 0.0)
    assert ratio == pytest.approx(786 / 785, abs=1e-3)


def test_smallest_detectable_effect_at_the_edges():
    assert smallest_detectable_effect(1) == smallest_detectable_effect(0, 20, 0.9) == math.inf
    assert smallest_detectable_effect(5, correlation=1.0) == 0
    assert math.isnan(smallest_detectable_effect(5, correlation=NAN))


@pytest.mark.parametrize(
    "wrong", [{"comparisons": 0}, {"power": 0.01}, {"power": 1.0}, {"alpha": 0.0}, {"correlation": 2}]
)
def test_smallest_detectable_effect_refuses(wrong):
    with pytest.raises(ValueError, match="smallest_detectable_effect"):
        smallest_detectable_effect(5, **wrong)


# Pooled correlation


def test_pooled_correlation_is_the_mean_over_pairs_of_arms():
    # 1·2 is +1, 1·3 and 2·3 are -1.
    assert pooled_correlation([[1, 2, 3], [2, 4, 6], [3, 2, 1]]) == pytest.approx(-1 / 3)
    samples = np.random.default_rng(5).normal(size=(4, 6))
    assert pooled_correlation(samples) == pytest.approx(np.asarray(np.corrcoef(samples))[np.triu_indices(4, 1)].mean())


def test_pooled_correlation_leaves_out_diverged_runs_and_undefined_pairs():
    arms = [[1, 2, 3, NAN], [2, 4, 6, 1], [5, 5, 5, 5], [INF, NAN, 1, 2]]
    assert pooled_correlation(arms) == pytest.approx(1)  # only the first two have three seeds and a spread


@pytest.mark.parametrize("arms", [[[1, 2, 3]], [[1, 2], [3, 4]], [[1, 1, 1], [1, 2, 3]], np.full((3, 5), NAN)])
def test_pooled_correlation_is_nan_where_undefined(arms):
    assert math.isnan(pooled_correlation(arms))


def test_pooled_correlation_wants_arms_and_seeds():
    with pytest.raises(ValueError, match="arms, seeds"):
        pooled_correlation([1, 2, 3])


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
