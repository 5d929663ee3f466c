"""Studies in turn: what is begun first, what gets more seeds, what is kept."""

import dataclasses
import shutil

import pytest

from transformer.core.errors import ConfigError
from transformer.core.files import WriteError
from transformer.study.analyse import read_study
from transformer.study.archive import SUFFIX, Archives, archived
from transformer.study.cell import Cell
from transformer.study.probes import LongerText
from transformer.study.record import STUDY, read_record
from transformer.study.study import Study
from transformer.study.study_queue import StudyQueue
from transformer.training.signals import Interrupted

FIELDS = {"seeds": 2, "max_seeds": 4, "noise_floor": False, "learning_rates": (1e-3,)}


def study(name, base, arms, **fields):
    return Study(name, base, {"base": {}, **arms}, **FIELDS | fields)


@pytest.fixture
def queue(base, tmp_path):
    """One study whose arms are the same and one that stays open."""
    studies = {
        "same": study("same", base, {"arm": {"model.norm": base.model.norm}}),
        "open": study("open", base, {"arm": {"model.mixer.num_heads": 1}}, margin=1e-9),
    }
    return StudyQueue(studies, tmp_path / "all", tmp_path / "kept", say=lambda line: None)


def test_all_are_begun_before_any_gets_more_seeds(queue):
    """The study that is decided gets no more, the open one all it plans; a later call finds nothing to do."""
    seen = []
    queue.say = seen.append
    queue.run()
    assert [line.split(" ", 1)[1] for line in seen if ", look " in line] == [
        "same, look 1",
        "open, look 1",
        "open, look 2",
    ]
    seen.clear()
    queue.run()
    assert not seen
    assert [len(arm.estimates) for arm in read_study(queue.folder / "open").arms] == [4, 4]
    assert queue.looked("same") == 1


def test_what_is_open_may_be_another_question_than_the_verdict(queue):
    """One study that is decided gets more seeds, and one that is not gets none."""
    decided = dataclasses.replace(queue.studies["open"], name="decided", margin=100.0)
    queue.studies = {"decided": decided, "open": queue.studies["open"]}
    queue.unresolved = {"decided": lambda report: list(report.contrasts), "open": lambda report: []}
    queue.run()
    assert read_study(queue.folder / "decided").unresolved() == []
    assert read_study(queue.folder / "open").unresolved() == ["arm"]
    assert (queue.looked("decided"), queue.looked("open")) == (2, 1)


def test_a_limit_of_time_and_of_looks(queue):
    queue.run(minutes=0)
    assert not queue.folder.exists()
    queue.looks = 1
    queue.run()
    assert (queue.looked("same"), queue.looked("open")) == (1, 1)
    with pytest.raises(ConfigError, match=r"^looks: 0 is not a positive number$"):
        dataclasses.replace(queue, looks=0)
    for minutes in (-1.0, float("nan")):
        with pytest.raises(ConfigError, match=r"^minutes: .* is not a time$"):
            queue.run(minutes)


def test_a_signal_says_how_it_goes_on(queue):
    def stopped(name, **_):
        raise Interrupted("step 2 is saved in cells/a; the same command with --resume continues")

    queue.look = stopped
    with pytest.raises(Interrupted, match=r"^same: what is computed is kept; the same command goes on$"):
        queue.run()


def test_a_later_call_goes_on_from_the_archives(queue, tmp_path):
    """Without the folder, what the archives hold is not computed again, and no look is taken back."""
    queue.run()
    shutil.rmtree(queue.folder)
    seen = []
    later = StudyQueue(queue.studies, tmp_path / "later", queue.archives, say=seen.append)
    later.restore(queue.archives)
    assert (later.looked("same"), later.looked("open")) == (1, 2)
    later.run()
    assert not seen
    later.look("open")
    assert "  base: there already" in seen
    assert not (later.folder / "open" / "cells").exists()


def test_a_study_with_a_rate_more_is_asked_again(queue):
    """Only the runs at the new rate are computed."""
    queue.looks = 1
    queue.run()
    there = set((queue.folder / "runs").iterdir())
    wider = dataclasses.replace(queue.studies["open"], learning_rates=(1e-3, 2e-3))
    queue.studies = {**queue.studies, "open": wider}
    assert (queue.looked("same"), queue.looked("open")) == (1, 0)
    queue.run()
    assert queue.looked("open") == 1
    assert len(set((queue.folder / "runs").iterdir()) - there) == 4
    (change,) = read_record(queue.folder / "open").plan["changes"]
    assert change["runs_there"] == 4
    assert change["changed"] == [f"arms.{arm}.learning_rates" for arm in sorted(wider.arms)]


def test_a_study_of_other_arms_says_what_was_seen_before(queue):
    queue.looks = 1
    queue.run()
    said, study = [], queue.studies["open"]
    other = dataclasses.replace(study, arms={"base": {}, "else": {"model.d_model": 16}})
    other.run(queue.folder / "open", runs=queue.folder / "runs", looks=1, say=said.append)
    (change,) = read_record(queue.folder / "open").plan["changes"]
    assert change["runs_there"] == 4
    assert any(line.startswith("the plan is another one than that of") for line in said)


def test_a_study_that_asks_something_else_has_not_looked(queue):
    queue.looks = 1
    queue.run()
    study = queue.studies["open"]
    for change in (
        {"margin": 0.5},
        {"metric": "accuracy"},
        {"tuned_by": "accuracy"},
        {"max_seeds": None},
        {"arms": {**study.arms, "arm": {"model.mixer.num_heads": 1, "model.num_layers": 2}}},
        {"contrasts": {"arm": {"arm": 1.0, "base": -1.0}}},
        {"base": study.base.replace(steps=study.base.steps + 1)},
        {"fails_above": 2.0},
        {"first_seed": 1},
        {"recipes": False},
        {"match": "parameters"},
        {"probes": (LongerText(2),)},
    ):
        queue.studies = {**queue.studies, "open": dataclasses.replace(study, **change)}
        assert (queue.looked("same"), queue.looked("open")) == (1, 0), change
    queue.studies = {**queue.studies, "open": dataclasses.replace(study, question="Which?", noise_floor=True)}
    assert queue.looked("open") == 1


def test_a_damaged_record_is_written_again(queue):
    queue.looks = 1
    queue.run()
    (queue.folder / "open" / STUDY).write_text("{}")
    assert (queue.looked("open"), queue.urgency("open")) == (0, float("inf"))
    queue.run()
    assert (queue.looked("open"), queue.failed) == (1, {})


def test_what_fails_does_not_stop_the_others(queue, base):
    broken = study("broken", base, {"arm": {"data.path": "nowhere.txt"}})
    queue.studies = {"broken": broken, **queue.studies}
    queue.looks = 1
    queue.run()
    assert list(queue.failed) == ["broken"]
    assert queue.looked("open") == 1


def test_an_arm_that_failed_is_tried_again_by_a_later_call_alone(queue, monkeypatch):
    compute, failing = Cell.compute, ["arm"]

    def sometimes(cell):
        if cell.title.startswith(tuple(failing)):
            raise WriteError("the disk is full")
        compute(cell)

    monkeypatch.setattr(Cell, "compute", sometimes)
    arms = {"arm": {"model.mixer.num_heads": 1}, "other": {"model.num_layers": 2}}
    queue.studies, queue.looks = {"three": study("three", queue.studies["open"].base, arms)}, 1
    queue.run()
    assert queue.failed == {"three": "arm: WriteError: the disk is full"}
    queue.run()
    assert queue.failed == {"three": "arm: WriteError: the disk is full"}
    failing[:] = ["none"]
    queue.run()
    assert queue.failed == {}
    assert [arm.name for arm in read_study(queue.folder / "three").arms] == ["base", "arm", "other"]
    assert [len(arm.seeds) for arm in archived(queue.archives / f"three{SUFFIX}").arms.values()] == [2, 2, 2]


def test_an_arm_that_always_fails_keeps_no_seeds_from_the_others(queue, monkeypatch):
    compute, looks = Cell.compute, []

    def sometimes(cell):
        if cell.title.startswith("arm"):
            raise WriteError("the disk is full")
        compute(cell)

    monkeypatch.setattr(Cell, "compute", sometimes)
    arms = {"arm": {"model.mixer.num_heads": 1}, "other": {"model.num_layers": 2}}
    queue.studies = {"three": study("three", queue.studies["open"].base, arms, margin=1e-9)}

    def say(line):
        looks.extend([line.split(" ", 1)[1]] if ", look " in line else [])
        assert len(looks) < 5, "it looks again and again"

    queue.say, queue.looks = say, 1
    queue.run()
    assert looks == ["three, look 1"]
    queue.looks = None
    queue.run()
    assert looks[1:] == ["three, look 1", "three, look 2"]
    queue.run()
    assert looks[3:] == ["three, look 2"]


def test_a_damaged_run_of_what_was_not_packed_is_computed_again(queue):
    queue.looks = 1
    queue.run()
    (queue.archives / f"open{SUFFIX}").unlink()
    (run, *_) = (name for row in read_record(queue.folder / "open").arms["arm"].files for name in row)
    (queue.folder / "runs" / run).write_text("{")
    with pytest.warns(UserWarning, match="it is computed again"):
        queue.run()
    assert queue.failed == {}
    assert Archives(queue.archives).report("open").contrasts


def test_a_study_of_other_arms_that_was_not_packed_is_packed(queue):
    """Of as many runs as the one that its archive has."""
    queue.looks = 1
    queue.run()
    other = dataclasses.replace(queue.studies["open"], arms={"base": {}, "else": {"model.d_model": 8}})
    other.run(queue.folder / "open", runs=queue.folder / "runs", looks=1, say=lambda line: None)
    queue.studies = {"open": other}
    queue.run()
    assert list(archived(queue.archives / f"open{SUFFIX}").arms) == ["base", "else"]


def test_what_a_killed_call_did_not_pack_is_packed_by_the_next(queue, tmp_path):
    """And what is packed already is not written again, nor by a folder that knows less."""
    queue.run()
    for name in ("same", "open"):
        (queue.archives / f"{name}{SUFFIX}").unlink()
    queue.run()
    assert Archives(queue.archives).names() == ["open", "same"]
    less = dataclasses.replace(queue, folder=tmp_path / "less", looks=1, archives=None)
    less.run()
    before = {path: path.stat().st_mtime_ns for path in queue.archives.rglob("*.xz")}
    dataclasses.replace(less, archives=queue.archives).run()
    assert {path: path.stat().st_mtime_ns for path in queue.archives.rglob("*.xz")} == before
