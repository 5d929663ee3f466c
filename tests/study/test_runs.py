"""A run in its file: what names it, and the metrics of its sums."""

import dataclasses
import json

import numpy as np
import pytest

from tests.study.made import run as made_run
from transformer.core.errors import ConfigError
from transformer.study.cell import short
from transformer.study.runs import ArmRuns, Run


def test_a_run_is_named_by_its_config_rate_seed_and_data(base, corpus, tmp_path):
    config = corpus.complete(base)
    arm = ArmRuns(config, corpus, tmp_path)
    path = arm.path(3, 1e-3)
    assert ArmRuns(config.replace({"optimizer.learning_rate": 0.5}), corpus, tmp_path).path(3, 1e-3) == path
    others = [
        arm.path(4, 1e-3),
        arm.path(3, 2e-3),
        ArmRuns(config.replace(steps=11), corpus, tmp_path).path(3, 1e-3),
        ArmRuns(config, dataclasses.replace(corpus, fingerprint="other"), tmp_path).path(3, 1e-3),
    ]
    assert len({path, *others}) == 5
    assert arm.path(3, 1) == arm.path(3, 1.0)


def test_a_run_is_read_as_it_was_written_and_keeps_its_probes(base, corpus, tmp_path):
    arm = ArmRuns(corpus.complete(base), corpus, tmp_path / "runs")
    assert arm.read(0, 1e-3) is None
    run = dataclasses.replace(made_run(0, 1e-3, 2.0, 0.5), probes={"a": 1.0}, probe_hashes={"a": "x"})
    arm.write(run)
    assert arm.read(0, 1e-3) == run
    arm.write(dataclasses.replace(run, probes={"b": 2.0}, probe_hashes={"b": "y"}))
    both = arm.read(0, 1e-3)
    assert (both.probes, both.probe_hashes) == ({"a": 1.0, "b": 2.0}, {"a": "x", "b": "y"})


CURVE = {"step": [1, 2], "loss": [4.0, None]}


@pytest.mark.parametrize("change", [{}, {"step": [1]}, {"step": [1], "loss": []}, {**CURVE, "more": [1, 2]}])
def test_a_curve_has_a_step_and_a_loss_for_each_point(change):
    with pytest.raises(ConfigError, match="its curve is not"):
        dataclasses.replace(made_run(0, 1e-3, 2.0, 0.5), curve=change)


def test_metrics_are_ratios_of_sums():
    run = Run(
        seed=0, learning_rate=1e-3, loss=[2.0, 6.0], labels=[1.0, 2.0], correct=[1.0, 0.0], exact=[1.0, 1.0],
        sequences=[2.0, 2.0], diverged_at=None, curve=CURVE, seconds=1.0, cell="c", probes={"p": 7.0, "none": None},
    )  # fmt: skip
    assert run.metric("loss") == pytest.approx(8 / 3)
    assert run.metric("loss", slice(1, None)) == pytest.approx(3)
    assert run.metric("accuracy") == pytest.approx(1 / 3)
    assert run.metric("exact_match") == pytest.approx(0.5)
    assert run.metric("p") == 7.0
    assert np.isnan(run.metric("none"))
    with pytest.raises(ConfigError, match=r"^metric: 'acuracy' was not measured; did you mean 'accuracy'"):
        run.metric("acuracy")
    np.testing.assert_allclose(run.by_batch(), [2, 3])
    for change in ({"diverged_at": 3}, {"loss": [None, 1.0]}, {"labels": [0.0, 0.0]}):
        assert np.isnan(dataclasses.replace(run, **change).metric("loss"))
    assert np.isnan(dataclasses.replace(run, labels=[0.0, 2.0]).by_batch()[0])
    assert json.loads(json.dumps(dataclasses.asdict(run)))["loss"] == [2.0, 6.0]


@pytest.mark.parametrize("number", [np.float32(2.19), np.float64(2.190000057220459), 1024.0, np.float32(1e-30)])
def test_stored_numbers_have_the_digits_of_float32(number):
    """Read again they are the same float32, in at most nine digits; what is not finite is None."""
    stored = short(number)
    assert np.float32(stored) == np.float32(number)
    assert len(f"{stored!r}".partition("e")[0].replace(".", "").lstrip("0")) <= 9
    assert short(np.float32("nan")) is None
    assert short(-np.inf) is None
