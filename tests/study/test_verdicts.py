"""A small draw of the simulated studies: verdicts hold as often as the report says."""

import dataclasses

import numpy as np
import pytest

from experiments.benchmarks.statistics import Case, draw, library, simulate
from transformer.study.statistics import Interval

CASES = [
    Case(2, 6, "near"),
    Case(4, 6, "one"),
    Case(2, 6, "many", spread="rising"),
    Case(2, 12, fails=0.2),
    Case(2, 24, "near", looks=3),
    Case(2, 32, shift=1.0, margin=1.0),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verdicts_hold_in_simulated_studies(case):
    row = simulate(case, 250)
    assert row.outcome == "ok", row.text()


def test_an_arm_that_fails_more_often_and_one_that_is_worse_are_found():
    assert simulate(Case(2, 12, fails_more=0.5), 100).power > 0.4
    assert simulate(Case(2, 12, shift=2.0), 100).power > 0.95
    assert simulate(Case(2, 24, looks=3, shift=1.0), 100).power > 0.6


def uncorrected(case, costs_ARS):
    """A procedure with a fault: it takes each comparison for the only one."""
    found, warned = library(case, costs_ARS)
    narrow = [
        dataclasses.replace(
            one,
            verdict="worse" if one.difference > 0 else "better",
            interval=Interval(one.difference - 0.5 * one.interval.half, one.difference + 0.5 * one.interval.half),
        )
        if one.p / (case.arms - 1) < 0.05
        else one
        for one in found
    ]
    return narrow, warned


def test_the_simulation_finds_a_procedure_without_correction():
    assert simulate(Case(8, 6), 150, uncorrected).outcome == "MISSED"


def test_a_case_is_drawn_as_described():
    rng = np.random.default_rng(0)
    costs = np.stack([draw(Case(4, 4000, "near", correlation=0.6, shift=1.0), rng) for _ in range(3)])
    np.testing.assert_allclose(costs.mean((0, 3))[0], [0, 0.5, 1], atol=0.05)
    np.testing.assert_allclose(costs.mean((0, 3))[3], [1, 1.5, 2], atol=0.05)
    assert np.corrcoef(costs[0, 0, 0], costs[0, 1, 0])[0, 1] == pytest.approx(0.6, abs=0.05)
    failed = np.isinf(draw(Case(2, 4000, fails=0.2, fails_more=0.3), rng)).mean((1, 2))
    np.testing.assert_allclose(failed, [0.2, 0.5], atol=0.03)
