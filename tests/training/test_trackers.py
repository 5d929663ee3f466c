"""Trackers: they show the rows of metrics.jsonl, go on with a run that is resumed, and never stop one."""

import importlib.util
import struct
from dataclasses import dataclass

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto.wandb_internal_pb2 import Record

from transformer.core.errors import ConfigError
from transformer.core.folders import check_own
from transformer.runs.config import Replica, grid
from transformer.runs.optimizer import OptimizerConfig
from transformer.training import trackers
from transformer.training.loop import train
from transformer.training.metrics import read_metrics
from transformer.training.tensorboard_tracker import TensorBoard
from transformer.training.trackers import RunInfo, Tracker, replica_names
from transformer.training.trackio_tracker import Trackio
from transformer.training.wandb_tracker import WandB
from transformer.training.workdir import CONFIG, RUN_FILES

REPLICAS = (Replica(seed=0), Replica(seed=1))
SEEN = []
"""What the trackers of these tests were told."""


@dataclass(frozen=True, kw_only=True)
class Told(Tracker):
    """Keeps what it is told, and fails where it is to."""

    fails: str = ""

    def start(self, run):
        self.hear("start", run.step)
        return self

    def log(self, step, values):
        self.hear("log", step, values)

    def end(self, result):
        self.hear("end", result)

    def hear(self, *what):
        if self.fails == what[0]:
            raise OSError("no route\nto host")
        SEEN.append(what)


@pytest.fixture(autouse=True)
def nothing_seen():
    SEEN.clear()


@pytest.fixture
def long(config):
    return config.replace(evaluate_every=5, checkpoint_every=5)


def stop_at(step):
    """A hook that kills the run as late as it can before a step is saved."""

    def hook(done, _state):
        if done == step:
            raise KeyboardInterrupt

    return hook


def rows(workdir, name, replica):
    """(step, value) of metrics.jsonl."""
    lines = [line for line in read_metrics(workdir) if line["replica"] == replica and name in line]
    return [(line["step"], np.float32(line[name])) for line in lines]


def wandb_records(path):
    """The records of a file of wandb: blocks of 32 KiB, in which parts have a checksum, a length and a kind."""
    data, at, whole = path.read_bytes(), 7, b""
    assert data[:4] == b":W&B"
    while at + 7 <= len(data):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # the whole of a record, or its last part
            record = Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def test_rows_are_those_of_the_file(long, corpus, tmp_path):
    """Each with the name of its replica, and at the end what came out."""
    outcome = train(long, REPLICAS, corpus, tmp_path / "run", log=[Told()])
    assert SEEN[0] == ("start", 0)
    shown = [
        {"step": step, "replica": int(name.removeprefix("seed "))} | dict(values)
        for what, step, by_name in SEEN[1:-1]
        for name, values in by_name.items()
        if what == "log"
    ]
    assert shown == read_metrics(tmp_path / "run")
    found = {f"seed {i}": {"validation_loss": float(loss)} for i, loss in enumerate(outcome.validation_loss)}
    assert SEEN[-1] == ("end", found)


def test_a_run_that_is_stopped_has_no_result_and_goes_on(long, corpus, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(long, REPLICAS, corpus, tmp_path / "run", log=[Told()], on_steps=stop_at(10))
    assert SEEN[-1] == ("end", None)
    SEEN.clear()
    train(long, REPLICAS, corpus, tmp_path / "run", log=[Told()], when_not_empty="resume")
    assert SEEN[0] == ("start", 5)
    assert [step for what, step, *_ in SEEN[1:-1]] == [10, 10, 12, 12]


@pytest.mark.parametrize("moment", ["start", "log", "end"])
def test_a_tracker_that_fails_loses_nothing(config, corpus, tmp_path, capsys, moment):
    """It is named in one line, another one sees all, and the numbers are the same."""
    plain = train(config, REPLICAS, corpus, tmp_path / "plain")
    run = train(config, REPLICAS, corpus, tmp_path / "run", log=[Told(fails=moment), Told()])
    np.testing.assert_array_equal(run.validation_loss, plain.validation_loss)
    assert read_metrics(tmp_path / "run") == read_metrics(tmp_path / "plain")
    said = "told shows no more, metrics.jsonl goes on (OSError: no route to host)"
    assert capsys.readouterr().err.count(f"{tmp_path / 'run'}: {said}\n") == 1
    assert SEEN[-1][0] == "end"
    assert [what for what, *_ in SEEN].count("end") == 1


def test_a_missing_package_is_one_line_before_anything_is_made(config, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for tracker, extra in ((TensorBoard(), "tensorboard"), (WandB(), "wandb"), (Trackio(), "trackio")):
        with pytest.raises(ConfigError, match=rf"^log: {extra} is missing: pip install 'transformer\[{extra}\]'$"):
            train(config, REPLICAS, corpus, tmp_path / "run", log=[tracker])
    with pytest.raises(ConfigError, match=r"^log: 'wandb' is no tracker; TensorBoard\(\) is one$"):
        train(config, REPLICAS, corpus, tmp_path / "run", log=["wandb"])
    with pytest.raises(ConfigError, match=r"^log: 'wandb' is no list of trackers; \[TensorBoard\(\)\] is one$"):
        train(config, REPLICAS, corpus, tmp_path / "run", log="wandb")
    assert not (tmp_path / "run").exists()


def test_names_of_replicas():
    """By what they differ in, the config's numbers filled in."""
    optimizer = OptimizerConfig(learning_rate=1e-2)
    assert replica_names([Replica(seed=7)], optimizer) == ("",)
    assert replica_names(grid([0, 2]), optimizer) == ("seed 0", "seed 2")
    two = replica_names([Replica(), Replica(learning_rate=1e-3)], optimizer)
    assert two == ("learning rate 0.01", "learning rate 0.001")


def test_a_run_keeps_its_key_until_it_is_overwritten(config, corpus, tmp_path):
    how = {"log": [TensorBoard()]}
    train(config, REPLICAS, corpus, tmp_path / "run", **how)
    key = RunInfo(tmp_path / "run", {}, ()).key
    train(config, REPLICAS, corpus, tmp_path / "run", when_not_empty="resume", **how)
    assert RunInfo(tmp_path / "run", {}, ()).key == key
    train(config, REPLICAS, corpus, tmp_path / "run", when_not_empty="overwrite", **how)
    assert RunInfo(tmp_path / "run", {}, ()).key != key
    assert len(list(tmp_path.glob("run/tensorboard/*/*"))) == 2
    (tmp_path / "run" / trackers.TRACKED).write_text("x")
    assert len(RunInfo(tmp_path / "run", {}, ()).key) == 8


def test_tensorboard(long, corpus, tmp_path):
    """A curve for each replica, without what a killed run had shown after its last checkpoint."""
    workdir = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(long, REPLICAS, corpus, workdir, log=[TensorBoard()], on_steps=stop_at(12))
    run = RunInfo(workdir, {}, ("seed 0", "seed 1"), 10)
    ahead = TensorBoard().start(run)
    ahead.log(11, {"seed 0": {"loss": 99.0}})
    ahead.end(None)
    train(long, REPLICAS, corpus, workdir, log=[TensorBoard()], when_not_empty="resume")
    for replica in (0, 1):
        found = EventAccumulator(str(workdir / "tensorboard" / f"seed {replica}")).Reload()
        for name in ("loss", "grad_norm", "learning_rate", "validation_loss"):
            assert [(e.step, e.value) for e in found.Scalars(name)] == rows(workdir, name, replica), name
    check_own(workdir, CONFIG, RUN_FILES)


def test_tensorboard_elsewhere(config, corpus, tmp_path):
    """In folders of group, title and replica, whatever is in their names; a run alone needs none of its own."""
    tracker = TensorBoard(folder=str(tmp_path / "logs"), group="a/b", title="big")
    train(config, REPLICAS, corpus, tmp_path / "run", log=[tracker])
    assert [path.name for path in tmp_path.glob("logs/a-b/big/*")] == ["seed 0", "seed 1"]
    train(config, REPLICAS[:1], corpus, tmp_path / "alone", log=[TensorBoard()])
    assert EventAccumulator(str(tmp_path / "alone" / "tensorboard")).Reload().Scalars("loss")


def test_wandb(long, corpus, tmp_path, monkeypatch):
    """A run of one id, with a series for each replica; offline, where each part has a file."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    workdir, how = tmp_path / "run", {"log": [WandB(project="p", group="night")]}
    with pytest.raises(KeyboardInterrupt):
        train(long, REPLICAS, corpus, workdir, on_steps=stop_at(10), **how)
    train(long, REPLICAS, corpus, workdir, when_not_empty="resume", **how)
    parts = [list(wandb_records(path)) for path in sorted(workdir.glob("wandb/offline-run-*/*.wandb"))]
    assert len(parts) == 2
    begun = [record.run for part in parts for record in part if record.HasField("run")]
    key = RunInfo(workdir, {}, ()).key
    assert {(r.run_id, r.project, r.run_group, r.display_name) for r in begun} == {(key, "p", "night", "run")}
    assert {item.key for run in begun for item in run.config.update} >= {"model", "steps"}
    shown = [record.history for part in parts for record in part if record.HasField("history")]
    items = [("/".join(item.nested_key) or item.key, float(item.value_json)) for h in shown for item in h.item]
    for replica in (0, 1):
        values = [np.float32(value) for name, value in items if name == f"loss/seed {replica}"]
        assert values == [value for _, value in rows(workdir, "loss", replica)]
    ended = [record.exit.exit_code for part in parts for record in part if record.HasField("exit")]
    assert ended == [1, 0]
    check_own(workdir, CONFIG, RUN_FILES)


def test_trackio(long, corpus, tmp_path, monkeypatch):
    """A run that goes on in the data base of this machine."""
    import trackio.sqlite_storage
    import trackio.utils

    for module in (trackio, trackio.utils, trackio.sqlite_storage):
        monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "base")
    workdir, how = tmp_path / "run", {"log": [Trackio(project="p", title="arm", group="study")]}
    with pytest.raises(KeyboardInterrupt):
        train(long, REPLICAS, corpus, workdir, on_steps=stop_at(10), **how)
    train(long, REPLICAS, corpus, workdir, when_not_empty="resume", **how)
    (run,) = trackio.Api().runs("p")
    assert run.name == f"arm {RunInfo(workdir, {}, ()).key}"
    assert run.config["steps"] == 12
    assert run.config["_Group"] == "study"
    logged = trackio.sqlite_storage.SQLiteStorage.get_logs("p", run.name)
    shown = [(row["step"], np.float32(row["loss/seed 1"])) for row in logged if "loss/seed 1" in row]
    assert sorted(shown) == rows(workdir, "loss", 1)
