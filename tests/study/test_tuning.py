"""The choice of a learning rate: by all seeds, by the other half of them, and through failures."""

import numpy as np
import pytest

from transformer.study.comparison import compare
from transformer.study.tuning import Tuning

INF = np.inf


def tuning(costs, give_up=-INF, rates=(1e-3, 3e-3, 1e-2, 3e-2, 0.1), shown=None):
    costs = np.asarray(costs, float)
    return Tuning(rates[: len(costs)], costs, costs if shown is None else np.asarray(shown, float), give_up)


def test_each_half_of_the_seeds_is_scored_at_the_rate_that_the_other_chooses():
    costs = [[1.0, 5.0, 3.0, 5.0], [2.0, 2.0, 4.0, 4.0]]  # seeds 0 and 2 choose the first rate, 1 and 3 the second
    found = tuning(costs)
    assert found.chosen == 1
    assert found.chosen_by_others.tolist() == [1, 0, 1, 0]
    np.testing.assert_array_equal(found.scores.best, [2.0, 2.0, 4.0, 4.0])
    np.testing.assert_array_equal(found.scores.held, [2.0, 5.0, 4.0, 5.0])


def test_what_others_choose_does_not_depend_on_the_seed():
    rng = np.random.default_rng(0)
    costs = rng.normal(size=(3, 7))
    before = tuning(costs).chosen_by_others
    costs[:, 3] += 100 * rng.normal(size=3)
    assert tuning(costs).chosen_by_others[3] == before[3]


def test_the_choice_is_made_by_other_numbers_than_those_reported():
    found = tuning([[1.0, 1.0], [2.0, 2.0]], shown=[[7.0, 7.0], [5.0, 5.0]])
    assert found.chosen == 0
    np.testing.assert_array_equal(found.scores.best, [7.0, 7.0])


def test_one_failure_does_not_ban_a_rate_that_is_better_by_enough():
    """One of six runs fails and the others are .5 better; a model that has learned nothing costs 4."""
    safe, bold = np.full(6, 2.0), np.array([1.5, 1.5, INF, 1.5, 1.5, 1.5])
    assert tuning([safe, bold], give_up=4.0).chosen == 1
    assert tuning([safe, bold], give_up=40.0).chosen == 0
    assert np.isinf(tuning([safe, bold], give_up=4.0).scores.best).sum() == 1


def test_a_failure_costs_no_less_than_the_worst_run():
    """Where losses above a guess are normal, as while a task is not yet learned, failing is still the worst."""
    assert tuning([[9.0, 9.0], [INF, 1.0]], give_up=4.0).chosen == 1
    assert tuning([[9.0, 9.0], [INF, 9.5]], give_up=4.0).chosen == 0


def test_an_arm_of_failures_alone_has_a_rate():
    found = tuning(np.full((3, 4), INF))
    assert found.chosen == 0
    assert np.isinf(found.scores.held).all()


def test_a_single_seed_and_the_first_seeds():
    assert tuning([[1.0], [2.0]]).chosen_by_others.tolist() == [0]
    costs = [[1.0, 5.0, 5.0], [2.0, 2.0, 2.0]]
    assert tuning(costs).chosen == 1
    assert tuning(costs).first(1).chosen == 0
    shown = np.array([[7.0, 8.0, 9.0], [4.0, 5.0, 6.0]])
    some = tuning(costs, give_up=40.0, shown=shown).first(2)
    assert (some.rates, some.give_up) == ((1e-3, 3e-3), 40.0)
    np.testing.assert_array_equal(some.choosing_RS, np.array(costs)[:, :2])
    np.testing.assert_array_equal(some.costs_RS, shown[:, :2])


@pytest.mark.parametrize(
    ("costs", "doubts"),
    [
        ([[1, 1.1], [2, 2.1], [3, 3.1]], ["best rate 0.001 is the lowest tried"]),
        ([[3, 3.1], [2, 2.1], [1, 1.1]], ["best rate 0.01 is the highest tried"]),
        ([[3, 3.1], [1, 1.1], [2, 2.1]], []),
        ([[3, 3], [1, 1], [1, 1], [2, 2]], ["rates tie: 0.003 and 0.01"]),
        ([[3, 3], [1, 1], [1, 1], [1, 1], [2, 2]], ["rates tie: 0.003 and 0.01, 0.03"]),
        (
            [[1, 5, 3, 5], [2, 2, 4, 4], [9, 9, 9, 9]],
            ["rate 0.003 is not sure: the two halves of the seeds choose 0.003 and 0.001, and means count both"],
        ),
        ([[1, 2]], []),
        (
            [[1, 5, 1], [2, 2, 2], [9, 9, 9]],
            ["rate 0.003 is not sure: the two halves of the seeds choose 0.003 and 0.001, and means count both"],
        ),
    ],
)
def test_a_reader_is_told_of_edges_ties_and_seeds_that_disagree(costs, doubts):
    assert tuning(costs).doubts() == doubts


def test_noise_in_the_choice_makes_no_finding():
    """Arms equal in distribution whose two best rates are .7 deviations apart, 6 seeds: error and coverage hold."""
    rng, wrong = np.random.default_rng(1), []
    gaps = np.array([0.0, 0.7, 1.0])[:, None]
    for _ in range(500):
        scores = [tuning(gaps + rng.normal(size=(3, 6))).scores for _ in range(4)]
        found = [compare([(1, one), (-1, scores[0])], 0.01, 3) for one in scores[1:]]
        wrong.append(any(not one.interval.low <= 0 <= one.interval.high for one in found))
    assert np.mean(wrong) < 0.055


def test_a_failure_is_never_free():
    """Where what a guess costs is not known, it costs as much as the worst run."""
    costs = np.array([[2.05, 2.1], [2.06, 2.4], [np.inf, np.inf]])
    assert Tuning((1e-3, 1e-2, 1e6), costs, costs, give_up=np.inf).chosen == 0
    assert Tuning((1e-3, 1e6), costs[1:], costs[1:]).chosen == 0
