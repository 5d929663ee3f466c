"""Designs: which arms they have and what their contrasts measure, on losses whose effects are known."""

import numpy as np
import pytest

import transformer as T
from tests.study import made
from transformer.core.errors import ConfigError
from transformer.study.designs import IsoFlop, Ladder, add_one_in, between, factorial, leave_one_out

FACTORS = {
    "norm": {"model.norm": T.RMSNorm()},
    "position": {"model.position": T.RoPE()},
    "width": {"model.d_model": 32},
}


def test_between_names_every_difference_by_its_path():
    old = T.preset("tiny")
    new = old.replace(
        {
            "model.norm": T.RMSNorm(),
            "model.mixer.num_kv_heads": 1,
            "model.head.tied": False,
            "optimizer.weight_decay": 0.3,
            "optimizer.learning_rate": 5.0,
        }
    )
    factors = between(old, new)
    assert factors == {
        "norm": {"model.norm": T.RMSNorm()},
        "mixer.num_kv_heads": {"model.mixer.num_kv_heads": 1},
        "head.tied": {"model.head.tied": False},
        "optimizer.weight_decay": {"optimizer.weight_decay": 0.3},
    }
    every = {path: value for changes in factors.values() for path, value in changes.items()}
    assert old.replace({**every, "optimizer.learning_rate": 5.0}) == new
    assert between(old, old) == {}


def test_add_one_in_and_leave_one_out():
    added, left = add_one_in(FACTORS), leave_one_out(FACTORS)
    assert (added.baseline, list(added.arms)) == ("base", ["base", "+ norm", "+ position", "+ width", "all"])
    assert added.arms["+ norm"] == FACTORS["norm"]
    assert (left.baseline, list(left.arms)) == ("all", ["all", "− norm", "− position", "− width", "base"])
    assert left.arms["− norm"] == FACTORS["position"] | FACTORS["width"]
    assert left.arms["base"] == added.arms["base"] == {}
    assert len(left.arms["all"]) == len(added.arms["all"]) == 3


def test_a_factorial_measures_main_effects_and_interactions(tmp_path):
    design = factorial(FACTORS)
    assert len(design.arms) == 8
    assert list(design.contrasts) == [
        "main effect: norm",
        "main effect: position",
        "main effect: width",
        "interaction: norm × position",
        "interaction: norm × width",
        "interaction: position × width",
    ]
    rng, losses = np.random.default_rng(0), {}
    for name in design.arms:
        on = [factor in name.split(" + ") for factor in FACTORS]
        loss = 3 - 0.2 * on[0] + 0.1 * on[1] + 0.3 * (on[0] and on[1])
        losses[name] = loss + 1e-4 * rng.normal(size=6)
    found = made.report(tmp_path, losses, contrasts=design.contrasts, baseline="base").contrasts
    assert found["main effect: norm"].difference == pytest.approx(-0.2 + 0.15, abs=1e-3)
    assert found["main effect: position"].difference == pytest.approx(0.1 + 0.15, abs=1e-3)
    assert found["interaction: norm × position"].difference == pytest.approx(0.3, abs=1e-3)
    assert found["interaction: norm × position"].verdict == "worse"
    assert found["main effect: width"].verdict == found["interaction: norm × width"].verdict == "equivalent"


@pytest.mark.parametrize("count", [1, 7])
def test_a_factorial_has_two_to_six_factors(count):
    with pytest.raises(ConfigError, match=f"factorial: {count} factors"):
        factorial({str(i): {f"model.x{i}": 1} for i in range(count)})


@pytest.mark.parametrize("design", [add_one_in, leave_one_out, factorial])
def test_factors_that_are_no_changes_are_refused(design):
    with pytest.raises(ConfigError, match=r"^factor model\.norm: list is given; its changes are a dict, as in \{'rms'"):
        design({"model.norm": ["layernorm", "rmsnorm"], "model.position": ["rope", "alibi"]})
    with pytest.raises(ConfigError, match=r"^factors: a dict is needed, such as .* and list is given$"):
        design([{"model.norm": "rmsnorm"}, {"model.position": "alibi"}])


@pytest.mark.parametrize("names", [("base", "x"), ("a", "b", "a + b")])
def test_combinations_of_one_name_are_refused(names):
    changes = ({"steps": 2}, {"batch_size": 2}, {"seed": 1})
    with pytest.raises(ConfigError, match=r"^factorial: two combinations would be called '(base|a \+ b)'; give"):
        factorial(dict(zip(names, changes, strict=False)))


@pytest.mark.parametrize("design", [add_one_in, leave_one_out])
def test_one_factor_has_no_others(design):
    """Alone, last and together it would be the same arm."""
    for count in (0, 1):
        with pytest.raises(ConfigError, match=rf"^{design.__name__}: {count} factors?; of fewer than two, arms are"):
            design(dict(list(FACTORS.items())[:count]))


@pytest.mark.parametrize(("arms", "sizes"), [(("a", "a @ b"), ("c", "b @ c")), (("a @ b", "a"), ("b @ c", "c"))])
def test_two_arms_of_one_name_at_two_sizes_are_refused(arms, sizes):
    changes = {"steps": 1}, {"steps": 2}
    with pytest.raises(ConfigError, match=r"^ladder: two arms would be called 'a @ b @ c'; give"):
        Ladder(dict(zip(arms, changes, strict=True)), {size: {} for size in sizes})


@pytest.mark.parametrize(
    ("budgets", "message"),
    [
        ((1e9, np.nan), "nan is not a positive number"),
        ((np.inf,), "inf is not a positive number"),
        ((0.0,), "0.0 is not a positive number"),
        (1e9, "1000000000.0 is not tuple"),
        (("1e9",), "'1e9' is not float"),
    ],
)
def test_budgets_that_are_no_numbers_of_operations_are_refused(budgets, message):
    with pytest.raises(ConfigError, match=rf"^isoflop\.budgets: {message}"):
        IsoFlop(T.RunConfig(), sizes={"a": {}}, budgets=budgets)


def test_designs_of_nothing_are_refused():
    for arms, sizes in (({}, {"x": {}}), ({"a": {}, "b": {}}, {})):
        with pytest.raises(ConfigError, match=r"^ladder: \d arms at \d sizes"):
            Ladder(arms, sizes=sizes)
    with pytest.raises(ConfigError, match=r"^factor x: int is given"):
        Ladder({"a": {}, "b": {}}, sizes={"x": 32})
    with pytest.raises(ConfigError, match=r"^isoflop: 1 sizes at 0 budgets"):
        _ = IsoFlop(T.RunConfig(), sizes={"a": {}}, budgets=()).design


@pytest.mark.parametrize("path", ["model.norm", "model.norm.eps", "model"])
def test_factors_that_change_the_same_thing_are_refused(path):
    with pytest.raises(ConfigError, match=f"factor other: it changes {path}, and another factor changes model.norm"):
        leave_one_out({"norm": {"model.norm": 1}, "other": {path: 2}, "third": {"steps": 1}})


def test_a_ladder_compares_arms_at_each_size():
    ladder = Ladder({"a": {}, "b": {"model.norm": 1}}, {"small": {"model.d_model": 8}, "large": {"model.d_model": 16}})
    design = ladder.design
    assert list(design.arms) == ["a @ small", "b @ small", "a @ large", "b @ large"]
    assert design.arms["b @ large"] == {"model.norm": 1, "model.d_model": 16}
    assert design.contrasts == {
        "b @ small": {"b @ small": 1.0, "a @ small": -1.0},
        "b @ large": {"b @ large": 1.0, "a @ large": -1.0},
    }


def test_an_arm_and_a_size_may_have_one_name():
    arms = Ladder({"a": {}, "deep": {"model.norm": 1}}, {"deep": {"model.num_layers": 4}}).design.arms
    assert arms == {"a @ deep": {"model.num_layers": 4}, "deep @ deep": {"model.norm": 1, "model.num_layers": 4}}
