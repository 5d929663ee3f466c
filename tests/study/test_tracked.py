"""A study in a tracker: a group of runs that have the names of its arms."""

import dataclasses

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from transformer.core.errors import ConfigError
from transformer.core.folders import check_own
from transformer.norms.norm import RMSNorm
from transformer.study import handover
from transformer.study.arms import prepared
from transformer.study.cell import Cell
from transformer.study.engines import DaskEngine
from transformer.study.plan import PLAN
from transformer.study.running import STUDY_FILES
from transformer.study.study import Study
from transformer.training.tensorboard_tracker import TensorBoard
from transformer.training.wandb_tracker import WandB

ARMS = {"layernorm": {}, "rmsnorm": {"model.norm": RMSNorm()}}
FILES = {f"{arm}/seed {seed}" for arm in ARMS for seed in (0, 1)}


def study(base):
    return Study("norms", base, ARMS, seeds=2, noise_floor=False)


def shown(folder):
    """The folders with event files below one, each with its steps."""
    found = {path.parent for path in folder.rglob("events*")}
    return {
        str(path.relative_to(folder)): [e.step for e in EventAccumulator(str(path)).Reload().Scalars("loss")]
        for path in found
    }


def test_arms_are_runs_of_one_group(base, corpus, tmp_path):
    """In the folder of the study, or in one that several share."""
    tracker = TensorBoard(folder=str(tmp_path / "shared"))
    study(base).run(tmp_path / "study", data=corpus, log=[TensorBoard(), tracker])
    assert shown(tmp_path / "study" / "tensorboard") == {path: [5, 10] for path in FILES}
    assert shown(tmp_path / "shared" / "norms").keys() == FILES
    check_own(tmp_path / "study", PLAN, STUDY_FILES)


def test_a_tracker_may_have_names_of_its_own(tmp_path):
    tracker = WandB(group="night").within("norms", "rmsnorm", tmp_path)
    assert tracker == WandB(group="night", title="rmsnorm")
    assert WandB().within("norms", "rmsnorm", tmp_path).group == "norms"


def test_workers_show_what_they_train(base, tmp_path):
    study(base).run(tmp_path / "study", engine=DaskEngine(1), log=[TensorBoard()])
    assert shown(tmp_path / "study" / "tensorboard") == {path: [5, 10] for path in FILES}


def test_a_cell_is_handed_over_with_its_trackers(base, corpus, tmp_path):
    arm = prepared(study(base), corpus)["rmsnorm"]
    cell = Cell("a", arm.config, arm.replicas(2), arm.data, tmp_path / "cells", tmp_path / "runs")
    cell = dataclasses.replace(cell, trackers=(WandB(project="p", title="rmsnorm"), TensorBoard()))
    handover.write(cell)
    assert handover.read(cell.folder).trackers == cell.trackers


def test_what_is_no_tracker_is_refused_first(base, corpus, tmp_path):
    with pytest.raises(ConfigError, match="log: 'wandb' is no tracker"):
        study(base).run(tmp_path / "study", data=corpus, log=["wandb"])
    assert not (tmp_path / "study").exists()
