"""Power laws, best sizes, and their intervals over seeds, on losses whose law is known."""

import numpy as np
import pytest

import transformer as T
from tests.study import made
from transformer.core.errors import ConfigError
from transformer.study.budget import cost
from transformer.study.designs import IsoFlop, Ladder
from transformer.study.scaling import best_size, best_sizes, estimated, fit_power_law, jackknife, ladder_laws


@pytest.mark.parametrize("exponent", [0.1, 0.25, 0.4])
@pytest.mark.parametrize("floor", [0.0, 0.5, 1.5, 2.5, 3.3])
def test_a_power_law_is_found(floor, exponent):
    """Also where a law without a floor is nearer than those with somewhat too low ones."""
    sizes = np.geomspace(1e5, 3e7, 6)
    law = fit_power_law(sizes.tolist(), (floor + 20 * sizes**-exponent).tolist(), floor=floor > 0)
    assert (law.floor, law.coefficient, law.exponent) == pytest.approx((floor, 20, exponent), rel=2e-2)
    assert law(1e8) == pytest.approx(floor + 20 * 1e8**-exponent, rel=1e-2)


def test_a_law_needs_sizes():
    assert fit_power_law([1, 10], [2.0, 1.0]).floor == 0
    with pytest.raises(ConfigError, match="1 different sizes cannot tell 2 numbers"):
        fit_power_law([1, 1, 1], [3.0, 2.5, 2.0])
    with pytest.raises(ConfigError, match="2 different sizes cannot tell 3 numbers"):
        fit_power_law([1, 10], [2.0, 1.0], floor=True)
    for sizes, losses, number in (([0, 10], [2.0, 1.0], "0"), ([1, 10], [2.0, -1.0], "-1")):
        with pytest.raises(ConfigError, match=f"{number} has no logarithm"):
            fit_power_law(sizes, losses)


def test_the_best_size_is_the_vertex_of_a_parabola_in_log_size():
    sizes = [1e4, 1e5, 1e6, 1e7]
    losses = [2 + 0.1 * np.log(n / 3e5) ** 2 for n in sizes]
    assert best_size(sizes, losses) == pytest.approx(3e5)
    assert best_size(sizes, [4.0, 3.0, 2.0, 0.5]) == np.inf


def test_the_jackknife_of_a_mean_is_the_sample():
    """And the interval of an exponent covers the truth about as often as it says."""
    losses = np.random.default_rng(0).normal(3, 0.1, (2, 7))
    np.testing.assert_allclose(jackknife(lambda mean: mean[0], losses), losses[0])
    rng, sizes, hits = np.random.default_rng(1), np.array([1e4, 1e5, 1e6]), []
    for _ in range(200):
        drawn = 20 * sizes[:, None] ** -0.2 + 0.02 * rng.normal(size=(3, 8))
        found = estimated(lambda mean: fit_power_law(sizes.tolist(), mean.tolist()).exponent, drawn)
        hits.append(found.interval.low <= 0.2 <= found.interval.high)
    assert 0.89 < np.mean(hits) < 0.99


def test_laws_of_a_study(tmp_path):
    ladder = Ladder({"a": {}, "b": {}}, {"s": {}, "m": {}, "l": {}})
    rng, noise = np.random.default_rng(2), 0.002 * np.random.default_rng(3).normal(size=6)
    sizes = {"s": 1e4, "m": 1e5, "l": 1e6}
    arms = {
        f"{arm} @ {size}": 8 * n**-exponent + noise + 1e-4 * rng.normal(size=6)
        for size, n in sizes.items()
        for arm, exponent in (("a", 0.05), ("b", 0.07))
    }
    record = made.record(tmp_path, arms, contrasts=ladder.design.contrasts)
    for name, arm in record.arms.items():
        object.__setattr__(arm, "parameters", int(sizes[name[-1]]))
    report = made.analyse(tmp_path, record)
    laws = ladder_laws(report, ladder)
    assert laws["a"].exponent.value == pytest.approx(0.05, abs=1e-3)
    assert laws["a"].against_baseline is None
    gap = laws["b"].against_baseline
    assert gap.value == pytest.approx(0.02, abs=2e-3)
    assert gap.interval.low > 0
    assert laws["b"].sizes == [10_000, 100_000, 1_000_000]
    three = Ladder({"a": {}, "b": {}, "c": {}}, ladder.sizes)
    arms |= {f"c @ {size}": arms[f"b @ {size}"] + 0.1 for size in sizes}
    arms["a @ m"][2] = np.nan
    record = made.record(tmp_path / "failed", arms, contrasts=three.design.contrasts)
    for name, arm in record.arms.items():
        object.__setattr__(arm, "parameters", int(sizes[name[-1]]))
    alone = ladder_laws(made.analyse(tmp_path / "failed", record), three)
    assert list(alone) == ["b", "c"]
    assert alone["b"].against_baseline is alone["c"].against_baseline is None  # nothing takes the baseline's place


def test_slices_of_equal_operations(tmp_path):
    base = T.preset("tiny").replace({"model.vocab_size": 64})
    widths = {f"d {d}": {"model.d_model": d} for d in (16, 32, 64)}
    slices = IsoFlop(base, widths, (1e11, 4e11))
    design = slices.design
    steps = {name: changes["steps"] for name, changes in design.arms.items()}
    assert steps["d 16 @ 4e+11 FLOP"] == pytest.approx(4 * steps["d 16 @ 1e+11 FLOP"], abs=4)
    assert steps["d 16 @ 1e+11 FLOP"] > 2 * steps["d 32 @ 1e+11 FLOP"]
    assert design.contrasts["d 32 @ 1e+11 FLOP"] == {"d 32 @ 1e+11 FLOP": 1.0, "d 16 @ 1e+11 FLOP": -1.0}
    with pytest.raises(ConfigError, match="operations are less than a step"):
        _ = IsoFlop(base, widths, (1.0,)).design
    with pytest.raises(ConfigError, match=r"isoflop\.budgets: 100\.0 and 104\.0 have the same two digits"):
        IsoFlop(base, widths, (100.0, 104.0))
    short = T.AlgorithmicRun(
        model=base.model, data=T.AlgorithmicConfig(task=T.Sort(items=3), examples=200, validation_examples=50)
    )
    data = T.load_data(short.data)
    with pytest.raises(ConfigError, match=r"isoflop\.data: examples have 8 tokens, not max_length; give data="):
        IsoFlop(short, widths, (1e11,))
    counted = IsoFlop(short, widths, (1e11,), data).design.arms
    spent = {name: cost(short.replace(changes), "flops", data) for name, changes in counted.items()}
    assert list(spent.values()) == pytest.approx([1e11] * 3, rel=0.01)
    rng, n = np.random.default_rng(4), {"d 16": 1e4, "d 32": 4e4, "d 64": 1.6e5}
    arms = {
        slices.name(size, budget): 2 + 0.1 * np.log(count / best) ** 2 + 1e-3 * rng.normal(size=5)
        for budget, best in ((1e11, 3e4), (4e11, 6e4))
        for size, count in n.items()
    }
    record = made.record(tmp_path, arms)
    for name, arm in record.arms.items():
        object.__setattr__(arm, "parameters", int(n[name.partition(" @")[0]]))
    found = best_sizes(made.analyse(tmp_path, record), slices)
    for budget, best in ((1e11, 3e4), (4e11, 6e4)):
        assert found[budget].value == pytest.approx(best, rel=0.02)
        assert found[budget].interval.low < best < found[budget].interval.high


def test_what_is_better_when_higher_has_no_law_of_losses(tmp_path):
    ladder, slices = Ladder({"a": {}}, {"s": {}, "m": {}}), IsoFlop(T.preset("tiny"), {}, ())
    arms = {f"a @ {size}": np.ones(3) for size in ladder.sizes}
    record = made.record(tmp_path, arms, metric="exact_match", exact=arms)
    report = made.analyse(tmp_path, record)
    for found, design in ((ladder_laws, ladder), (best_sizes, slices)):
        with pytest.raises(ConfigError, match=f"{found.__name__}: made compares exact_match, which is no loss"):
            found(report, design)


def test_an_estimate_that_some_seeds_do_not_have_has_no_interval():
    losses_NS = np.array([[2.0, 2.1, 2.2], [1.0, 1.1, 1.0], [2.0, 2.2, 2.1]])

    def first_seed_only(losses_N):
        return 1.0 if losses_N[0] != losses_NS[0, 1:].mean() else np.inf

    assert estimated(lambda losses_N: losses_N[0], losses_NS).interval.half < 1
    assert estimated(first_seed_only, losses_NS).interval == (-np.inf, np.inf)


def test_noise_does_not_take_the_floor_away():
    """Distances of losses, not of what is left of them above a floor, in which noise grows; and intervals say so."""
    sizes, rng, exponents, covered = np.array([29e3, 62e3, 105e3, 230e3, 400e3]), np.random.default_rng(0), [], 0
    for _ in range(10):
        losses_NS = 1.5 + 8 * sizes[:, None] ** -0.25 + rng.normal(0, 0.01, (5, 8))
        law = estimated(lambda losses: fit_power_law(sizes.tolist(), losses.tolist()).exponent, losses_NS)
        exponents.append(law.value)
        covered += law.interval.low <= 0.25 <= law.interval.high
    assert np.median(exponents) == pytest.approx(0.25, abs=0.04)
    assert covered >= 8
