"""Equal parameters and equal operations."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.activations.activation import GLU
from transformer.analysis.counts import parameter_count, train_flops_per_token
from transformer.core.errors import ConfigError
from transformer.mixers.attention.attention import Attention
from transformer.models.config import ModelConfig
from transformer.runs.config import RunConfig
from transformer.study import budget
from transformer.study.arms import prepared
from transformer.study.budget import cost, match
from transformer.study.study import Study

BASE = RunConfig(model=ModelConfig(vocab_size=65, d_model=48, num_layers=2))
GATED = BASE.replace({"model.feed_forward.activation": GLU()})


SHORT = BASE.replace({"model.max_length": 8})
WIDTH = "model.d_model"


def width(config):
    """Of the hidden layer."""
    return config.model.feed_forward.width(config.model)


def test_a_gated_layer_gets_two_thirds_of_the_width():
    """Shazeer 2020: three matrices instead of two."""
    matched = match(GATED, cost(BASE, "parameters"), "parameters")
    assert width(matched) == 128
    assert parameter_count(matched.model) == parameter_count(BASE.model)
    assert width(match(GATED, cost(BASE, "flops"), "flops")) == 128


def test_widths_that_the_model_refuses_are_left_out():
    """Two heads need an even width; on either side the nearest that fits is looked at."""
    base = BASE.replace({"model.mixer.num_heads": 2})
    wide = base.replace({"model.d_model": 64})
    for deep in (2, 3, 4):
        matched = match(base.replace({"model.num_layers": deep}), cost(wide, "parameters"), "parameters", WIDTH)
        near = [base.replace({"model.num_layers": deep, WIDTH: width}) for width in range(2, 80, 2)]
        off = [abs(cost(one, "parameters") - cost(wide, "parameters")) for one in near]
        assert matched == near[off.index(min(off))]


def test_where_the_model_refuses_all_numbers_the_search_ends():
    """No more heads of keys than of queries."""
    with pytest.raises(ConfigError, match=r"^match: model\.mixer\.num_kv_heads is none of \d+ to \d+: .*num_kv_heads"):
        match(BASE, 1e9, "parameters", "model.mixer.num_kv_heads")


@pytest.mark.parametrize(("square", "step"), [(0, 1), (1, 1), (0, 7)])
@given(st.integers(1, 300), st.integers(0, 299), st.integers(1, 600))
def test_the_search_finds_the_first_number_that_reaches_the_target(square, step, slope, below, target):
    """On straight lines, parabolas and stairs; with few costs on straight lines."""
    seen = set()

    def at(n):
        seen.add(n)
        return 1000 + slope * step * -(-n // step) + square * n * n

    reached = 1000 + slope * target - below
    found = budget._first(at, reached)
    assert len(seen) <= 4 or square or step > 1
    assert found == next(n for n in range(1, target + 1) if at(n) >= reached)


def test_depth_and_steps_are_solved_too():
    deep = BASE.replace({"model.num_layers": 9})
    assert match(deep, cost(BASE, "parameters"), "parameters", "num_layers").model.num_layers == 2
    matched = match(deep, cost(BASE, "flops"), "flops", "steps")
    assert abs(cost(matched, "flops") / cost(BASE, "flops") - 1) < 1e-3
    assert train_flops_per_token(matched.model) > 3 * train_flops_per_token(BASE.model)


def test_what_cannot_be_matched_is_refused():
    with pytest.raises(ConfigError, match="does not change the number of parameters"):
        match(GATED, cost(BASE, "parameters"), "parameters", "steps")
    with pytest.raises(ConfigError, match="is the nearest"):
        match(BASE.replace({"model.d_model": 96}), cost(BASE, "parameters"), "parameters")


def test_a_study_matches_its_arms(corpus):
    base = BASE.replace({"model.max_length": 8})
    study = Study(
        "glu", base, {"gelu": {}, "glu": {"model.feed_forward.activation": "glu"}}, seeds=3, match="parameters"
    )
    assert width(study.configs(corpus)["glu"]) == 128
    assert width(study.configs(corpus)["gelu"]) == 192


def test_the_state_that_a_decoder_keeps_is_matched(corpus):
    """Two key-value heads of twice the size remember as much as four."""
    base = BASE.replace({"model.mixer": Attention(num_heads=4)})
    few = base.replace({"model.mixer.num_kv_heads": 2})
    matched = match(few, cost(base, "state"), "state", "model.mixer.head_dim")
    assert matched.model.mixer.head_dim == 24
    assert cost(matched, "state") == cost(base, "state") == 2 * 2 * 48 * base.model.max_length * 4
    with pytest.raises(ConfigError, match="does not change the size of the state"):
        match(few, cost(base, "state"), "state", "steps")


def test_time_is_matched_by_steps_as_it_was_measured_first(base, corpus, tmp_path, monkeypatch):
    measured = []

    def seconds(config, data):
        measured.append(config.model.num_layers)
        return 0.01 * config.model.num_layers

    monkeypatch.setattr(budget, "step_seconds", seconds)
    arms = {"one": {}, "four": {"model.num_layers": 4}}
    study = Study("time", base.replace(steps=100), arms, seeds=2, match="seconds", match_by="steps")
    made = prepared(study, corpus, tmp_path)
    assert [made[name].config.steps for name in arms] == [100, 25]
    assert "steps=25 (equal seconds)" in made["four"].changes
    assert measured == [1, 4]
    prepared(study, corpus, tmp_path)
    assert measured == [1, 4]  # or a study that goes on would be another one
    others = arms | {"four": {"model.num_layers": 2}, "five": {"model.num_layers": 5}}
    more = Study("time", base.replace(steps=100), others, seeds=2, match="seconds", match_by="steps")
    made = prepared(more, corpus, tmp_path)
    assert [made[name].config.steps for name in more.arms] == [100, 50, 20]
    assert measured == [1, 4, 2, 5]  # what has changed, and what is new
    with pytest.raises(ConfigError, match="time is matched by steps"):
        Study("time", base, arms, match="seconds")


def test_a_step_takes_time(base, corpus):
    config = corpus.complete(base)
    assert 0 < budget.step_seconds(config, corpus) < 1


@pytest.mark.parametrize("knob", ["batch_size", "model.mixer.num_heads", "optimizer.warmup_steps"])
def test_a_knob_that_changes_nothing_is_not_turned(knob):
    with pytest.raises(ConfigError, match=rf"^match: {knob} does not change the number of parameters$"):
        match(GATED, cost(BASE, "parameters"), "parameters", knob)


def test_a_knob_is_a_whole_number():
    with pytest.raises(ConfigError, match=r"^match: optimizer\.weight_decay is 0\.1, and a whole number is needed$"):
        match(GATED, cost(BASE, "flops"), "flops", "optimizer.weight_decay")


@pytest.mark.parametrize(
    ("knob", "message"),
    [
        ("dff", "dff: RunConfig has no 'dff'; did you mean 'd_ff'?"),
        ("model.dmodel", "model.dmodel: ModelConfig has no 'dmodel'; did you mean 'd_model'?"),
        ("d_ff", "model.feed_forward.d_ff: none has no 'd_ff'"),
    ],
)
def test_a_knob_that_there_is_not_is_named_with_its_arm(corpus, knob, message):
    study = Study("x", SHORT, {"a": {}, "b": {"model.feed_forward": None}}, match="parameters", match_by=knob)
    with pytest.raises(ConfigError) as error:
        study.configs(corpus)
    assert str(error.value) == f"arm b: match: {message}"


def test_the_time_of_a_step_is_a_share_of_that_of_a_dispatch(base, corpus, monkeypatch):
    """The median of those after the first two, here of five steps each."""
    taken = (50.0, 40.0, 1.0, 9.0, 2.0, 3.0, 4.0)
    clock = iter([at for i, seconds in enumerate(taken) for at in (100.0 * i, 100.0 * i + seconds)])
    monkeypatch.setattr(budget, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    program = SimpleNamespace(put=lambda batches: batches, init=lambda: None, train=lambda state, _: (state, {}))
    monkeypatch.setattr(budget, "make_program", lambda config, replicas: program)
    assert budget.step_seconds(corpus.complete(base), corpus) == pytest.approx(3.0 / 5)
