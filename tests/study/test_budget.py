"""Equal parameters and equal operations."""

import pytest

from transformer.activations.activation import GLU
from transformer.analysis.counts import parameter_count, train_flops_per_token
from transformer.core.values import ConfigError
from transformer.models.config import ModelConfig
from transformer.runs.config import RunConfig
from transformer.study.budget import cost, match
from transformer.study.study import Study

BASE = RunConfig(model=ModelConfig(vocab_size=65, d_model=48, num_layers=2))
GATED = BASE.replace({"model.feed_forward.activation": GLU()})


def width(config):
    """Of the hidden layer."""
    return config.model.feed_forward.width(config.model)


def test_a_gated_layer_gets_two_thirds_of_the_width():
    """Shazeer 2020: three matrices instead of two."""
    matched = match(GATED, BASE, "parameters")
    assert width(matched) == 128
    assert parameter_count(matched.model) == parameter_count(BASE.model)
    assert width(match(GATED, BASE, "flops")) == 128


def test_a_width_may_be_a_multiple():
    """The nearest multiple; where none is near enough, its cost is named."""
    assert width(match(GATED, BASE, "parameters", multiple=64)) == 128
    assert width(match(GATED, BASE, "parameters", multiple=5)) == 130
    with pytest.raises(ConfigError, match="d_ff = 96 costs"):
        match(GATED, BASE, "parameters", multiple=96)


def test_depth_and_steps_are_solved_too():
    deep = BASE.replace({"model.num_layers": 9})
    assert match(deep, BASE, "parameters", "num_layers").model.num_layers == 2
    matched = match(deep, BASE, "flops", "steps")
    assert abs(cost(matched, "flops") / cost(BASE, "flops") - 1) < 1e-3
    assert train_flops_per_token(matched.model) > 3 * train_flops_per_token(BASE.model)


def test_what_cannot_be_matched_is_refused():
    with pytest.raises(ConfigError, match="does not change the number of parameters"):
        match(GATED, BASE, "parameters", "steps")
    with pytest.raises(ConfigError, match="is the nearest"):
        match(BASE.replace({"model.d_model": 96}), BASE, "parameters")


def test_a_study_matches_its_arms(corpus):
    base = BASE.replace({"model.max_length": 8})
    study = Study(
        "glu", base, {"gelu": {}, "glu": {"model.feed_forward.activation": "glu"}}, seeds=3, match="parameters"
    )
    assert width(study.configs(corpus)["glu"]) == 128
    assert width(study.configs(corpus)["gelu"]) == 192
