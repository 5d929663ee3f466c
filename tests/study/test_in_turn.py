"""Studies in turn: what is begun first, what gets more seeds, what is kept."""

import dataclasses
import shutil

import pytest

from transformer.study.analyse import read_study
from transformer.study.in_turn import InTurn
from transformer.study.record import read_record
from transformer.study.study import Study

FIELDS = {"seeds": 2, "max_seeds": 4, "noise_floor": False, "learning_rates": (1e-3,)}


def study(name, base, arms, **fields):
    return Study(name, base, {"base": {}, **arms}, **FIELDS | fields)


@pytest.fixture
def in_turn(base, tmp_path):
    """One study whose arms are the same and one that stays open."""
    studies = {
        "same": study("same", base, {"arm": {"model.norm": base.model.norm}}),
        "open": study("open", base, {"arm": {"model.mixer.num_heads": 1}}, margin=1e-9),
    }
    return InTurn(studies, tmp_path / "all", tmp_path / "kept", say=lambda line: None)


def test_all_are_begun_before_any_gets_more_seeds(in_turn):
    """The study that is decided gets no more, the open one all it plans; a later call finds nothing to do."""
    seen = []
    in_turn.say = seen.append
    in_turn.run()
    assert [line.split(" ", 1)[1] for line in seen if ", look " in line] == [
        "same, look 1",
        "open, look 1",
        "open, look 2",
    ]
    seen.clear()
    in_turn.run()
    assert not seen
    assert [len(arm.estimates) for arm in read_study(in_turn.folder / "open").arms] == [4, 4]
    assert in_turn.looked("same") == 1


def test_what_is_open_may_be_another_question_than_the_verdict(in_turn):
    """One study that is decided gets more seeds, and one that is not gets none."""
    decided = dataclasses.replace(in_turn.studies["open"], name="decided", margin=100.0)
    in_turn.studies = {"decided": decided, "open": in_turn.studies["open"]}
    in_turn.unresolved = {"decided": lambda report: list(report.contrasts), "open": lambda report: []}
    in_turn.run()
    assert read_study(in_turn.folder / "decided").unresolved() == []
    assert read_study(in_turn.folder / "open").unresolved() == ["arm"]
    assert (in_turn.looked("decided"), in_turn.looked("open")) == (2, 1)


def test_a_limit_of_time_and_of_looks(in_turn):
    in_turn.run(minutes=0)
    assert not in_turn.folder.exists()
    in_turn.looks = 1
    in_turn.run()
    assert (in_turn.looked("same"), in_turn.looked("open")) == (1, 1)


def test_a_later_call_goes_on_from_the_archives(in_turn, tmp_path):
    """Without the folder, what the archives hold is not computed again, and no look is taken back."""
    in_turn.run()
    shutil.rmtree(in_turn.folder)
    seen = []
    later = InTurn(in_turn.studies, tmp_path / "later", in_turn.archives, say=seen.append)
    later.restore(in_turn.archives)
    assert (later.looked("same"), later.looked("open")) == (1, 2)
    later.run()
    assert not seen
    later.look("open")
    assert "  base: there already" in seen
    assert not (later.folder / "open" / "cells").exists()


def test_a_study_with_a_rate_more_is_asked_again(in_turn):
    """Only the runs at the new rate are computed."""
    in_turn.looks = 1
    in_turn.run()
    there = set((in_turn.folder / "runs").iterdir())
    wider = dataclasses.replace(in_turn.studies["open"], learning_rates=(1e-3, 2e-3))
    in_turn.studies = {**in_turn.studies, "open": wider}
    assert (in_turn.looked("same"), in_turn.looked("open")) == (1, 0)
    in_turn.run()
    assert in_turn.looked("open") == 1
    assert len(set((in_turn.folder / "runs").iterdir()) - there) == 4
    (change,) = read_record(in_turn.folder / "open").plan["changes"]
    assert change["runs_there"] == 4
    assert change["changed"] == [f"arms.{arm}.learning_rates" for arm in sorted(wider.arms)]


def test_a_study_of_other_arms_says_what_was_seen_before(in_turn):
    in_turn.looks = 1
    in_turn.run()
    said, study = [], in_turn.studies["open"]
    other = dataclasses.replace(study, arms={"base": {}, "else": {"model.d_model": 16}})
    other.run(in_turn.folder / "open", runs=in_turn.folder / "runs", looks=1, say=said.append)
    (change,) = read_record(in_turn.folder / "open").plan["changes"]
    assert change["runs_there"] == 4
    assert any(line.startswith("the plan is another one than that of") for line in said)


def test_a_study_that_asks_something_else_has_not_looked(in_turn):
    in_turn.looks = 1
    in_turn.run()
    study = in_turn.studies["open"]
    for change in (
        {"margin": 0.5},
        {"metric": "accuracy"},
        {"tuned_by": "accuracy"},
        {"max_seeds": None},
        {"arms": {**study.arms, "arm": {"model.mixer.num_heads": 1, "model.num_layers": 2}}},
        {"contrasts": {"arm": {"arm": 1.0, "base": -1.0}}},
    ):
        in_turn.studies = {**in_turn.studies, "open": dataclasses.replace(study, **change)}
        assert (in_turn.looked("same"), in_turn.looked("open")) == (1, 0), change


def test_what_fails_does_not_stop_the_others(in_turn, base):
    broken = study("broken", base, {"arm": {"data.path": "nowhere.txt"}})
    in_turn.studies = {"broken": broken, **in_turn.studies}
    in_turn.looks = 1
    in_turn.run()
    assert list(in_turn.failed) == ["broken"]
    assert in_turn.looked("open") == 1
