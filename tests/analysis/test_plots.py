"""Figures hold what they were given."""

import warnings

import numpy as np
import pytest

from transformer.analysis import plots
from transformer.core.errors import ConfigError
from transformer.training.metrics import Curve

RNG = np.random.default_rng(0)
FIGURES = {
    "attention_maps": lambda: plots.attention_maps(RNG.dirichlet(np.ones(5), size=(2, 3, 5)), list("abcde")),
    "loss_curves": lambda: plots.loss_curves({"a": (range(4), RNG.normal(size=(3, 4)))}, reference=("simple", 1.0)),
    "forest": lambda: plots.forest({"a": (0.1, 0.0, 0.2), "b": (0, -1, 1)}, xlabel="difference", margin=0.05),
    "heat_map": lambda: plots.heat_map(RNG.normal(size=(3, 4)), rows=range(3), columns=range(4)),
    "position_similarity": lambda: plots.position_similarity(RNG.normal(size=(6, 4))),
    "learning_rate_curves": lambda: plots.learning_rate_curves({"a": {1e-3: [1, 2], 1e-2: [np.nan]}}),
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_can_be_saved(name, tmp_path):
    FIGURES[name]().savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 3000


def test_a_map_for_every_head_of_every_layer():
    pattern = RNG.dirichlet(np.ones(5), size=(2, 3, 5))
    figure = plots.attention_maps(pattern)
    assert len(figure.axes) == 6
    np.testing.assert_array_equal(figure.axes[4].images[0].get_array(), pattern[1, 1])
    assert figure.axes[4].get_title() == "block 1, head 1"


def test_maps_of_many_tokens_are_no_larger_and_have_some_labels():
    figure = plots.attention_maps(np.ones((1, 2, 58, 58)), [str(i) for i in range(58)])
    own = figure.axes[0]
    assert figure.get_size_inches()[0] < 10
    assert [label.get_text() for label in own.get_xticklabels()] == [str(i) for i in range(0, 58, 3)]
    assert [label.get_text() for label in own.get_yticklabels()] == [str(i) for i in range(0, 58, 3)]


def test_curves_show_the_mean_of_the_replicas_that_are_finite():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = plots.loss_curves({"a": ([1, 2], [[1.0, 2.0], [3.0, np.nan]])})
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_ydata(), [2.0, 2.0])


def test_one_curve_needs_no_name():
    line = plots.loss_curves(Curve(np.array([1, 2]), np.array([[1.0, 2.0]])), ylabel="loss").axes[0].lines[0]
    np.testing.assert_array_equal(line.get_ydata(), [1.0, 2.0])
    assert line.get_label() == "loss"


def test_a_learning_rate_that_always_diverged_has_no_point():
    figure = plots.learning_rate_curves({"a": {1e-3: [1.0, 3.0], 1e-2: [np.nan, np.inf]}})
    line = figure.axes[0].lines[0]
    np.testing.assert_array_equal(line.get_xydata(), [[1e-3, 2.0]])


def test_the_forest_reads_from_the_top():
    figure = plots.forest({"first": (0.1, 0.0, 0.2), "second": (0, -1, 1)}, xlabel="d", verdicts=None)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["second", "first"]


def test_queries_may_be_other_tokens_than_keys():
    own = plots.attention_maps(np.ones((1, 1, 2, 3)), list("abc"), queries=list("xy")).axes[0]
    for axis, expected in ((own.get_xticklabels(), "abc"), (own.get_yticklabels(), "xy")):
        assert "".join(label.get_text() for label in axis) == expected


@pytest.mark.parametrize(
    ("plot", "given", "wrong"),
    [
        (plots.attention_maps, np.ones((2, 3, 5)), r"weights \(N, H, L, S\) of one sequence, .* shape \(2, 3, 5\)"),
        (plots.attention_maps, object(), "of one sequence, are needed, and object is given"),
        (plots.loss_curves, object(), r"such as run\.curve\(\"loss\"\), is needed, and object is given"),
        (plots.loss_curves, {"a": ([1, 2], [[1.0, 2.0, 3.0]])}, "2 steps with 3 values"),
        (plots.heat_map, [1.0, 2.0], r"numbers \(Y, X\), are needed, .* shape \(2,\)"),
        (plots.heat_map, np.zeros((0, 2)), r"shape \(0, 2\) none is finite"),
        (plots.heat_map, [[np.nan, np.nan]], r"shape \(1, 2\) none is finite"),
        (plots.position_similarity, [1.0, 2.0], r"vectors \(L, D\)"),
        (plots.learning_rate_curves, {1e-3: [1.0]}, r"such as \{\"mine\": run\.losses_by_rate\}.* list is given"),
    ],
)
def test_what_no_plot_can_show_is_refused_with_what_is_needed(plot, given, wrong):
    with pytest.raises(ConfigError, match=wrong):
        plot(given)


def test_labels_are_as_many_as_what_they_label():
    maps = np.full((1, 1, 3, 3), 1 / 3)
    assert plots.attention_maps(maps, np.array(["a", "b", "c"])).axes[0].get_xticklabels()[0].get_text() == "a"
    for plot, labels, line in (
        (lambda **own: plots.attention_maps(maps, **own), {"labels": ["a"]}, "attention_maps: labels are 1, and 3 are"),
        (
            lambda **own: plots.heat_map(maps[0, 0], **own),
            {"rows": ["a", "b"]},
            "heat_map: rows are 2, and 3 are",
        ),
    ):
        with pytest.raises(ConfigError, match=line):
            plot(**labels)


@pytest.mark.parametrize(
    ("estimate", "verdict", "line"),
    [
        ((2.0, 0.0, 1.0), "worse", "forest: a: 2 is not in its interval, 0 to 1"),
        ((0.5, 0.0, 1.0), "wors", "forest: a: no verdict 'wors'; did you mean 'worse'"),
    ],
)
def test_what_is_no_estimate_and_no_verdict(estimate, verdict, line):
    with pytest.raises(ConfigError, match=line):
        plots.forest({"a": estimate}, xlabel="loss", verdicts={"a": verdict})


def test_rows_are_named():
    for plot in (plots.dots, plots.forest):
        with pytest.raises(ConfigError, match="in a dict, and list is given"):
            plot([1.0, 2.0], xlabel="loss")
