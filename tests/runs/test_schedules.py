"""Learning-rate schedules: warm-up, their formulas, and where they begin and end."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.runs.schedules import ConstantRate, Cosine, InverseSquareRoot, LinearDecay, Schedule, WarmupStableDecay

TOTAL = 20
SCHEDULES = [cls() for cls in Schedule.variants().values() if cls.__module__.startswith("transformer.")]


def curve(schedule, warmup, total=TOTAL):
    """The factor at steps 0 … total, the number of warm-up steps traced."""
    run = jax.jit(jax.vmap(lambda step, warmup: schedule(step, warmup, total), in_axes=(0, None)))
    return np.asarray(run(jnp.arange(total + 1), jnp.int32(warmup)))


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("warmup", [0, 4])
def test_shape(schedule, warmup):
    """A straight rise to 1 at the end of warm-up, never above 1, never rising again, float32."""
    factors = curve(schedule, warmup)
    assert factors.dtype == np.float32
    np.testing.assert_allclose(factors[: warmup + 1], np.arange(1, warmup + 2) / (warmup + 1), rtol=1e-6)
    assert (np.diff(factors[warmup:]) <= 0).all()
    assert factors.min() >= 0


@pytest.mark.parametrize(
    ("schedule", "end"),
    [
        (ConstantRate(), 1.0),
        (LinearDecay(), 0.0),
        (LinearDecay(final=0.25), 0.25),
        (Cosine(), 0.1),
        (Cosine(final=0.0), 0.0),
        (InverseSquareRoot(), math.sqrt(5 / 21)),
        (WarmupStableDecay(), 0.0),
        (WarmupStableDecay(final=0.5), 0.5),
    ],
    ids=str,
)
def test_end(schedule, end):
    """The factor after the last step."""
    np.testing.assert_allclose(curve(schedule, 4)[TOTAL], end, atol=1e-6)


@pytest.mark.parametrize(
    ("schedule", "formula"),
    [
        (LinearDecay(final=0.2), lambda step: 1 - 0.8 * (step - 4) / 16),
        (Cosine(final=0.2), lambda step: 0.2 + 0.4 * (1 + math.cos(math.pi * (step - 4) / 16))),
        (InverseSquareRoot(), lambda step: math.sqrt(5 / (step + 1))),
        (WarmupStableDecay(decay_fraction=0.25), lambda step: 1.0 if step <= 15 else (20 - step) / 5),
    ],
    ids=["linear", "cosine", "inverse_square_root", "wsd"],
)
def test_formula(schedule, formula):
    """After warm-up the factor is the formula's at every step."""
    np.testing.assert_allclose(curve(schedule, 4)[4:], [formula(step) for step in range(4, 21)], atol=1e-6)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_warmup_longer_than_the_run(schedule):
    """A warm-up that never ends is a straight line, finite everywhere."""
    np.testing.assert_allclose(curve(schedule, 30), np.arange(1, TOTAL + 2) / 31, rtol=1e-6)
    assert np.isfinite(curve(schedule, TOTAL)).all()


def test_stable_phase_gives_way_to_warmup():
    """A decay that would start inside the warm-up starts at its end."""
    np.testing.assert_allclose(curve(WarmupStableDecay(decay_fraction=1.0), 10)[10:], np.linspace(1, 0, 11), atol=1e-6)


@pytest.mark.parametrize("kind", [LinearDecay, Cosine, WarmupStableDecay])
def test_a_learning_rate_does_not_change_its_sign(kind):
    with pytest.raises(ConfigError, match=rf"{kind.name}\.final: -0.1 is negative"):
        kind(final=-0.1)


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.5])
def test_decay_fraction_is_a_share(fraction):
    """A share outside (0, 1] is an error."""
    with pytest.raises(ConfigError, match=r"wsd.decay_fraction: .* is not in \(0, 1\]"):
        WarmupStableDecay(decay_fraction=fraction)


def test_the_decay_of_wsd_is_one_straight_line_down_to_its_end():
    """It takes all of its steps, whatever the last factor is."""
    expected = [1.0 if step <= 15 else 1 - 0.5 * (step - 15) / 5 for step in range(4, 21)]
    np.testing.assert_allclose(curve(WarmupStableDecay(decay_fraction=0.25, final=0.5), 4)[4:], expected, atol=1e-6)
