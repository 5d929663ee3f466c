"""Rotary positions: how fast each pair turns, with all scalings, as the papers say in numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.positions.rotary import LinearScaling, Llama3Scaling, NTKScaling, RoPE, RoPE2D, XPos, YaRN, YaRNByPair


@pytest.mark.parametrize("kind", [LinearScaling, NTKScaling, YaRN, YaRNByPair, Llama3Scaling])
@pytest.mark.parametrize("factor", [0.0, 0.5])
def test_scaling_is_for_longer_texts(kind, factor):
    assert kind(factor=1.0).factor == 1
    with pytest.raises(ConfigError, match=rf"{kind.name}\.factor: {factor} is less than 1, .*; use none"):
        kind(factor=factor)


def turned(rope, head_dim, pairs):
    """(radians per position of each pair, their new lengths, the features behind them), from queries at position 1."""
    x_K = jnp.concatenate([jnp.ones(pairs), jnp.zeros(pairs), jnp.arange(1.0, head_dim - 2 * pairs + 1)])
    at_one = jnp.ones((1, 1), jnp.int32)
    query_K, key_K = (
        np.asarray(jax.jit(way)(x_K[None, None, None], at_one, {}), np.float64)[0, 0, 0]
        for way in (rope.to_query, rope.to_key)
    )
    np.testing.assert_array_equal(query_K, key_K)
    cos_F, sin_F, rest = np.split(query_K, [pairs, 2 * pairs])
    return np.arctan2(sin_F, cos_F), np.hypot(cos_F, sin_F), rest


SCALED = [
    # θᵢ = 10000^(-2i/8), of all positions divided by 4
    (LinearScaling(4.0), 10_000.0, 8, {0: 0.25, 1: 0.025, 2: 0.0025, 3: 0.00025}, 1.0),
    # the same of base 10000 · 4^(8/6): the first as it was, the last a quarter
    (NTKScaling(4.0), 10_000.0, 8, {0: 1.0, 1: 0.062996052, 2: 0.0039685026, 3: 0.00025}, 1.0),
    # pairs that turn 326, 103, 32.6, 10.3, 3.3, 1.03, 0.33 and 0.10 times over 2048 tokens
    (
        YaRN(4.0),
        10_000.0,
        16,
        {0: 1.0, 1: 0.31622777, 2: 0.1, 3: 0.015026498, 4: 0.0030466516, 5: 0.00079292138, 6: 2.5e-4, 7: 7.9056942e-5},
        1.1386294,
    ),
    # the same pairs: 32 turns are at 2.016 and one at 5.026, so of 2 to 6 the share of the third is 1/4
    (
        YaRNByPair(4.0),
        10_000.0,
        16,
        {0: 1.0, 1: 0.31622777, 2: 0.1, 3: 0.025693506, 4: 0.00625, 5: 0.0013834965, 6: 2.5e-4, 7: 7.9056942e-5},
        1.1386294,
    ),
    # and without rounding (3 - 2.016) / (5.026 - 2.016)
    (
        YaRNByPair(4.0, whole=False, sharpening=1.25),
        10_000.0,
        16,
        {2: 0.1, 3: 0.023870192, 4: 0.0050569715, 5: 0.00081129038, 6: 2.5e-4},
        1.25,
    ),
    # the published model: pairs 29 to 34 of 64 turn between 4 times and once over 8192 tokens
    (
        Llama3Scaling(),
        500_000.0,
        128,
        {0: 1.0, 1: 0.81461723, 28: 0.003211446, 29: 0.0021665708, 30: 0.0013718936, 32: 0.00052484616}
        | {34: 0.00017850781, 35: 9.5562124e-5, 36: 7.7846553e-5, 63: 3.068926e-7},
        1.0,
    ),
]


@pytest.mark.parametrize(("scaling", "base", "head_dim", "expected", "length"), SCALED, ids=[str(s[0]) for s in SCALED])
def test_scaled_frequencies_in_numbers(scaling, base, head_dim, expected, length):
    """Chen et al. 2023, bloc97 2023, Peng et al. 2023 (with queries and keys longer by 0.1 ln 4 + 1), Llama 3.1."""
    angles_F, lengths_F, _ = turned(RoPE(base=base, scaling=scaling), head_dim, head_dim // 2)
    np.testing.assert_allclose(angles_F[list(expected)], list(expected.values()), rtol=1e-5)
    np.testing.assert_allclose(lengths_F, length, rtol=1e-6)


@pytest.mark.parametrize("scaling", [None, LinearScaling(2.0), YaRNByPair(1.0, sharpening=1.5)], ids=str)
def test_a_fraction_of_the_features_has_frequencies_of_its_own(scaling):
    """A quarter of 32 features are four pairs, which turn as those of a head of 8 do (GPT-NeoX); the others stay.

    They also stay as long as they are where the turned ones grow.
    """
    angles_F, lengths_F, rest = turned(RoPE(fraction=0.25, scaling=scaling), 32, 4)
    factor = 2.0 if scaling == LinearScaling(2.0) else 1.0
    np.testing.assert_allclose(angles_F, np.array([1.0, 0.1, 0.01, 0.001]) / factor, rtol=1e-5)
    np.testing.assert_allclose(lengths_F, scaling.temperature() if scaling else 1.0, rtol=1e-6)
    np.testing.assert_array_equal(rest, np.arange(1, 25))


def test_a_ramp_by_pair_needs_pairs_of_several_speeds():
    rope = RoPE(base=1.0, scaling=YaRNByPair())
    with pytest.raises(ConfigError, match=r"yarn_by_pair: with base 1\.0 later pairs are not slower .*; use yarn"):
        turned(rope, 8, 4)


def test_xpos_decays_over_its_own_distance():
    turned = XPos(decay_base=4.0).to_query(jnp.ones((1, 1, 1, 2)), jnp.array([[8]]), {})
    np.testing.assert_allclose(jnp.linalg.norm(turned), np.sqrt(2) * (0.4 / 1.4) ** 2, rtol=1e-5)


def test_the_first_patch_is_not_turned():
    x = jnp.ones((1, 1, 1, 8))
    np.testing.assert_array_equal(RoPE2D().on_grid(columns=3, first=2).to_query(x, jnp.array([[2]]), {}), x)
