"""How failed seeds are counted."""

from types import SimpleNamespace

from experiments.heads import failures


def test_a_seed_has_failed_above_the_bound_or_diverged():
    arm = SimpleNamespace(estimates=[0.0, 0.19, 0.21, float("nan"), 0.7])
    assert failures(arm) == 3
