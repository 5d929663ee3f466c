"""Engines: cells in processes of their own, on workers that die, beside arms that fail."""

import asyncio
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import chex
import dask.config
import distributed
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from distributed.comm import connect

from transformer.activations.activation import ReLU
from transformer.core.errors import ConfigError
from transformer.core.files import read_sealed, write_sealed
from transformer.data.dataset import load_data
from transformer.data.tokenizers import CharTokenizer
from transformer.models.build import initial_params
from transformer.norms.norm import Norm, RMSNorm
from transformer.runs.mesh import MeshConfig, Shard
from transformer.study import engines, handover, task
from transformer.study.arms import prepared
from transformer.study.cell import Cell
from transformer.study.engines import LOCAL, DaskEngine, Engine, SchedulerEngine, shares
from transformer.study.probes import LongerText
from transformer.study.running import STUDY_FILES, StudyError
from transformer.study.study import Study
from transformer.training.signals import Interrupted

ARMS = {
    "layernorm": {},
    "rmsnorm": {"model.norm": RMSNorm()},
    "relu": {"model.feed_forward.activation": ReLU()},
}


@dataclass(frozen=True)
class Unstable(Norm):
    """A norm that cannot be computed."""

    def parameters(self, d_model):
        return {}

    def __call__(self, x_BLD, params):
        raise RuntimeError("no such\nkernel")


def numbers(report):
    """What a report says of the arms, without the time it took."""
    return [arm | {"seconds": 0.0} for arm in report.to_json()["arms"]]


def test_text_forms():
    """A scheduler may be given by its address alone."""
    assert Engine.parse("local") == LOCAL
    assert Engine.parse("dask(workers=3)") == DaskEngine(3)
    assert (
        Engine.parse("tcp://10.0.0.1:8786")
        == SchedulerEngine("tcp://10.0.0.1:8786")
        == Engine.parse(str(SchedulerEngine("tcp://10.0.0.1:8786")))
    )
    for text, message in {"dsk": "did you mean 'dask'", "dask(workers=0)": "dask.workers: 0 is not a"}.items():
        with pytest.raises(ConfigError, match=message):
            Engine.parse(text)


def test_workers_share_a_machine(monkeypatch):
    """Every core and every GPU has an owner, and none has two while there are enough."""
    monkeypatch.delenv("JAX_NUM_CPU_DEVICES", raising=False)
    places = shares(3, ["4", "5", "6"], range(8))
    assert sorted(core for place in places.values() for core in place.cores) == list(range(8))
    assert [place.environment["CUDA_VISIBLE_DEVICES"] for place in places.values()] == ["4", "5", "6"]
    assert [place.environment["JAX_NUM_CPU_DEVICES"] for place in places.values()] == ["3", "3", "2"]
    assert [place.cores for place in shares(3, [], [7, 9]).values()] == [(7,), (9,), (7,)]


def test_a_failing_arm_does_not_stop_the_others(base, corpus, tmp_path):
    """It is reported with its error, tried again by the next run, and what is finished is not computed again."""
    said = []
    study = Study("x", base, {"layernorm": {}, "bad": {"model.norm": Unstable()}, "rmsnorm": ARMS["rmsnorm"]}, seeds=2)
    report = study.run(tmp_path, data=corpus, say=said.append)
    assert [arm.name for arm in report.arms] == ["layernorm", "rmsnorm"]
    assert report.failed == {"bad": "RuntimeError: no such kernel"}
    assert "- bad failed: RuntimeError: no such kernel" in (tmp_path / "report.md").read_text()
    assert said[-1] == "2 of 3 arms are computed, 1 failed"
    assert "  bad: warning: no signals before training: RuntimeError: no such kernel" in said
    errors = list(tmp_path.glob("cells/*/error.txt"))
    assert len(errors) == 1
    assert "in __call__" in errors[0].read_text()
    times = {p: p.stat().st_mtime_ns for p in tmp_path.glob("runs/*.json")}
    assert study.run(tmp_path, data=corpus, say=said.append).failed == report.failed
    assert {p: p.stat().st_mtime_ns for p in times} == times


def test_without_the_baseline_there_is_nothing_to_compare(base, corpus, tmp_path):
    study = Study("x", base, {"bad": {"model.norm": Unstable()}, "good": {}, "also": ARMS["relu"]}, seeds=2)
    with pytest.raises(StudyError, match=r"baseline bad \(bad: RuntimeError: no such kernel\)"):
        study.run(tmp_path, data=corpus)
    assert len(list(tmp_path.glob("cells/*/result.json"))) == 2


def test_arms_that_come_to_the_same_are_computed_once(base, corpus, tmp_path):
    study = Study("x", base, {"a": {}, "b": {"steps": base.steps}}, seeds=2, noise_floor=False)
    a, b = study.run(tmp_path, data=corpus).arms
    assert a.estimates == b.estimates
    assert len(list(tmp_path.glob("cells/*"))) == 1


def cells(base, corpus, workdir, **more):
    study = Study("x", base, {"a": {}, "b": {"model.norm": RMSNorm(eps=1e-3)}}, noise_floor=False, **more)
    return {
        name: Cell(name, arm.config, arm.replicas(3), arm.data, workdir / "cells", workdir / "runs", study.probes)
        for name, arm in prepared(study, corpus).items()
    }


def test_a_cell_is_handed_over_as_files(base, corpus, tmp_path):
    """Config, replicas, probes, mesh and data come back as they were."""
    cell = cells(base, corpus, tmp_path, probes=(LongerText(3),), learning_rates=(1e-3, 1e-2))["b"]
    cell = dataclasses.replace(cell, mesh=MeshConfig(data=2, rules=(Shard("*kernel", ("data",)),)))
    handover.write(cell)
    back = handover.read(cell.folder)
    assert (back.config, list(back.replicas), tuple(back.probes)) == (cell.config, cell.replicas, tuple(cell.probes))
    assert (back.identity, back.mesh) == (cell.identity, cell.mesh)
    assert (back.folder, back.runs) == (cell.folder, cell.runs)


def test_initial_parameters_are_handed_over_too(base, corpus, tmp_path, monkeypatch):
    """As they are; a file that was damaged, or is another one, is named."""
    cell = cells(base, corpus, tmp_path)["a"]
    initial = initial_params(cell.config.model, jax.random.key(3))
    cell = dataclasses.replace(cell, initial=initial)
    handover.write(cell)
    back = handover.read(cell.folder)
    chex.assert_trees_all_equal(back.initial, jax.device_get(initial))
    assert back.identity == cell.identity
    (path,) = cell.cells.glob("initial-*.npz")
    assert re.fullmatch("|".join(STUDY_FILES), path.relative_to(tmp_path).as_posix())
    with np.load(path) as stored:
        np.savez(path.with_name("other.npz"), **{name: stored[name] + 1 for name in stored.files})
    whole = path.read_bytes()
    path.with_name("other.npz").rename(path)
    with pytest.raises(ConfigError, match=r"^initial: .*initial-\w+\.npz is not what it was when the study began$"):
        handover.read(cell.folder)
    for damaged in (whole[: len(whole) // 2], b"", b"PK"):
        path.write_bytes(damaged)
        with pytest.raises(ConfigError, match=r"^\S+\.npz: is damaged: "):
            handover.read(cell.folder)
    half = jax.tree.map(lambda a: a.astype(jnp.bfloat16), initial)
    with pytest.raises(ConfigError, match=r"^initial: blocks\S+ is bfloat16; other processes read float32$"):
        handover.write(dataclasses.replace(cell, initial=half))
    path.unlink()
    monkeypatch.setenv("TRANSFORMER_UNPACKED", "1000")
    with pytest.raises(ConfigError, match=r"^initial becomes more than 1,000 bytes; \S+=BYTES allows more$"):
        handover.write(cell)


def test_another_process_begins_from_given_parameters_too(base, corpus, tmp_path):
    """As this one does, up to how its program divides the runs."""
    base = base.replace({"steps": 2, "optimizer.warmup_steps": 0})
    initial = jax.tree.map(lambda a: 1.5 * a, initial_params(corpus.complete(base).model, jax.random.key(5)))
    study = Study("on", base, {"a": {}, "b": {"model.dropout": 0.1}}, seeds=2, noise_floor=False)
    here, there = (
        study.run(tmp_path / engine.name, data=corpus, initial=initial, engine=engine, say=str)
        for engine in (LOCAL, DaskEngine(1))
    )
    for one, other in zip(here.arms, there.arms, strict=True):
        np.testing.assert_allclose(one.estimates, other.estimates, rtol=1e-5)


def test_another_process_has_the_tokenizer_that_was_kept(base, tmp_path):
    """As a study of texts that a run's tokenizer reads."""
    own = load_data(base.data)
    kept = CharTokenizer.of("".join(own.tokenizer.characters) + "\u2603")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "tokenizer.json").write_text(kept.definition)
    data = load_data(base.data, tmp_path / "run")
    assert data.fingerprint != own.fingerprint
    cell = cells(base, data, tmp_path)["a"]
    handover.write(cell)
    handover.check_data([cell])
    assert handover.read(cell.folder).data.tokenizer == kept


def test_what_another_process_cannot_know_is_refused(base, corpus, tmp_path):
    """A choice of a function or a notebook, and data that is not what the config says."""

    @dataclass(frozen=True)
    class Mine(Norm):
        def parameters(self, d_model):
            return {}

        def __call__(self, x_BLD, params):
            return x_BLD

    with pytest.raises(ConfigError, match=r"Mine is defined in .*; move it to a module, or use the engine local"):
        handover.write(cells(base.replace({"model.norm": Mine()}), corpus, tmp_path)["a"])
    other = dataclasses.replace(corpus, fingerprint="other")
    strange = list(cells(base, other, tmp_path).values())
    for one in strange:
        handover.write(one)
    with pytest.raises(ConfigError, match=r"not what config\.data describes"):
        handover.check_data(strange)
    cell = cells(base, corpus, tmp_path)["a"]
    handover.write(cell)
    with open(base.data.path, "a") as text:
        text.write("!")
    with pytest.raises(ConfigError, match="is not what it was when the study began"):
        handover.read(cell.folder)


def test_a_folder_brings_no_code_that_is_not_allowed(base, corpus, tmp_path, monkeypatch):
    """Modules that it names are not imported, not even to look, unless they are allowed by name."""
    cell = cells(base, corpus, tmp_path)["a"]
    handover.write(cell)
    path = cell.folder / handover.CELL
    write_sealed(path, {**read_sealed(path), "modules": ["transformer.norms.norm", "planted"]})
    (tmp_path / "planted.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"cell\.json: names the module planted, which would run; --allow planted"):
        handover.read(cell.folder)
    assert not (tmp_path / "ran").exists()
    handover.read(cell.folder, allow=["planted"])
    assert (tmp_path / "ran").exists()


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"no file .*config\.json: all processes of a study need its folder"):
        handover.read(tmp_path / "cells" / "x")


def test_a_scheduler_that_does_not_answer(base, corpus, tmp_path, monkeypatch):
    """One line, in bounded time."""
    monkeypatch.setattr(engines, "CONNECT_SECONDS", 1)
    study, start = Study("x", base, ARMS, seeds=2), time.monotonic()
    with pytest.raises(ConfigError, match=r"engine: no scheduler at tcp://127\.0\.0\.1:9") as error:
        study.run(tmp_path, data=corpus, engine=SchedulerEngine("tcp://127.0.0.1:9"))
    assert "\n" not in str(error.value)
    assert time.monotonic() - start < 10


async def opens(address, security=None):
    """Whether the process at the address speaks with one that has these certificates, or none."""
    arguments = security.get_connection_args("client") if security else {}
    try:
        connection = await connect(address, timeout=20, **arguments)
    except OSError:
        return False
    await connection.close()
    return True


def is_private(folder):
    """Whether a folder of those for temporary files lies in one that nobody else may enter."""
    shared = Path(tempfile.gettempdir())
    top = Path(folder).relative_to(shared).parts[0]
    return (shared / top).stat().st_mode & 0o077 == 0


def test_the_workers_of_this_machine_are_closed_to_its_other_users(monkeypatch):
    """Nothing opens without the key of the run, no page is shown, and no module is taken from a shared folder."""
    seen, before = [], set(sys.path)

    def run(client, cells, where, places):
        worker, about = next(iter(client.scheduler_info()["workers"].items()))
        addresses = [client.cluster.scheduler_address, worker, about["nanny"]]
        other = distributed.Security.temporary()
        for address in addresses:
            assert asyncio.run(opens(address, client.security))
            assert not asyncio.run(opens(address, other))
            assert not asyncio.run(opens(address.replace("tls://", "tcp://")))
        ports = [client.cluster.scheduler.http_server.port, about["services"]["dashboard"]]
        for port in ports:
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=20)
        path = next(iter(client.run(lambda: sys.path).values()))
        new = {folder for folder in (*sys.path, *path) if "dask" in folder} - before
        assert new
        assert all(is_private(folder) for folder in new)
        seen.append(where)
        return iter(())

    monkeypatch.setattr(engines, "_run", run)
    where = (str(Path.cwd()), sys.path[0])
    assert list(DaskEngine(1).run([])) == []
    assert seen == [where]


def test_a_scheduler_without_encryption_is_told(monkeypatch, capsys):
    """In one line, once; with encryption there is nothing to tell, but certificates may be missing."""
    monkeypatch.setattr(engines, "CONNECT_SECONDS", 0.1)
    for _ in range(2):
        with pytest.raises(ConfigError, match="no scheduler at tcp://127"):
            next(SchedulerEngine("tcp://127.0.0.1:7").run([]))
    assert capsys.readouterr().err == (
        "warning: tcp://127.0.0.1:7 is open: whoever reaches it runs code as you; use tls://\n"
    )
    with pytest.raises(ConfigError, match=r"^engine: no certificates for tls://127\.0\.0\.1:7 in distributed\.comm"):
        next(SchedulerEngine("tls://127.0.0.1:7").run([]))
    assert capsys.readouterr().err == ""


def configured(security):
    """Dask's configuration with the certificates of a client."""
    client = {"client.cert": security.tls_client_cert, "client.key": security.tls_client_key}
    tls = {"ca-file": security.tls_ca_file, **client}
    return dask.config.set({f"distributed.comm.tls.{name}": text for name, text in tls.items()})


def test_a_scheduler_with_encryption(monkeypatch, capsys):
    """Whoever has its key in dask's configuration is let in; another key is refused in one line."""
    own, other = distributed.Security.temporary(), distributed.Security.temporary()
    monkeypatch.setattr(engines, "_run", lambda *_: iter(["let in"]))
    with distributed.LocalCluster(n_workers=0, security=own, dashboard_address="127.0.0.1:0") as cluster:
        engine = SchedulerEngine(cluster.scheduler_address)
        with configured(other), pytest.raises(ConfigError, match=r"^engine: no scheduler at tls://.* does not match"):
            next(engine.run([]))
        with configured(own):
            assert list(engine.run([])) == ["let in"]
    assert "warning: tls" not in capsys.readouterr().err


def status(process):
    """State and parent of a process, and what else the kernel says."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def kill_a_worker(workdir, killed):
    """SIGKILL the parent of the first process that has logged a few steps."""
    while not killed:
        for metrics in workdir.glob("cells/*/metrics.jsonl"):
            if metrics.read_bytes().count(b"\n") > 4 and not (metrics.parent / "result.json").exists():
                process = (metrics.parent / ".lock").read_text().split()[1]
                os.kill(int(status(process)[1]), signal.SIGKILL)
                killed.append(metrics.parent)
                break
        time.sleep(0.02)


@pytest.mark.release
def test_a_killed_worker_changes_nothing(base, corpus, tmp_path, monkeypatch):
    """Its cell is computed again by another process, alone and once; the report is that of one process."""
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "2")  # as in this process: numbers are the same on the same devices
    arms = {name: ARMS[name] for name in ("layernorm", "rmsnorm")}
    base, killed = base.replace(steps=500, checkpoint_every=250), []
    study = Study("x", base, arms, seeds=2, noise_floor=False)
    thread = threading.Thread(target=kill_a_worker, args=(tmp_path / "dask", killed), daemon=True)
    thread.start()
    report = study.run(tmp_path / "dask", engine=DaskEngine(2))
    thread.join()
    assert report.failed == {}
    logs = {p.parent: p.read_text().splitlines() for p in tmp_path.glob("dask/cells/*/log.txt")}
    assert len(logs) == len(arms)
    for folder, log in logs.items():
        assert sum("begins" in line for line in log) == (2 if folder in killed else 1)
        assert sum("the result is there" in line for line in log) == 1
        lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
        steps = [(line["step"], line["replica"]) for line in lines]
        assert len(steps[:-2]) == len(set(steps[:-2])) == 2 * 100
    assert numbers(report) == numbers(study.run(tmp_path / "local", data=corpus))


STUDY = """
import sys

import transformer as T
from transformer.study.engines import DaskEngine

if __name__ == "__main__":
    model = T.ModelConfig(num_layers=1, d_model=8, max_length=8, mixer=T.Attention(num_heads=1))
    base = T.RunConfig(model=model, batch_size=2, steps=10**6, steps_per_dispatch=2000)
    T.Study("x", base, {"base": {}, "arm": {"model.norm": T.RMSNorm()}}, seeds=2).run(sys.argv[1], engine=DaskEngine(1))
"""


@pytest.mark.release
def test_ctrl_c_in_a_terminal_saves_the_step_reached(tmp_path):
    """It reaches all processes of the terminal's group at once."""
    (tmp_path / "script.py").write_text(STUDY)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "x")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        while not any(path.stat().st_size > 1000 for path in tmp_path.glob("x/cells/*/metrics.jsonl")):
            assert process.poll() is None
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        assert "Interrupted" in process.communicate(timeout=60)[1]
    (log,) = (path.read_text() for path in tmp_path.glob("x/cells/*/log.txt"))
    assert re.search(r"step [1-9]\d* is saved", log)


def test_a_process_that_ends_without_a_word_has_died(tmp_path, monkeypatch):
    """What an earlier attempt said is not its error."""
    (tmp_path / "error.txt").write_text("of an earlier attempt")
    monkeypatch.setattr(distributed, "get_worker", lambda: SimpleNamespace(name="0"))
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: SimpleNamespace(wait=lambda: 1))
    with pytest.raises(task.Died, match=r"^the process ended with 1, see .*/log\.txt$"):
        task.compute(str(tmp_path), [], (str(tmp_path), str(tmp_path)), {})


CHILD = "import os, sys, time; from transformer.training.signals import die_with; die_with(int(sys.argv[1]))"
PARENT = f"""
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {CHILD!r} + "; print('ready', flush=True); time.sleep(60)",
    str(os.getpid())])
print(child.pid, flush=True)
time.sleep(60)
"""


def is_running(pid):
    try:
        return status(pid)[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_process_ends_with_the_one_that_started_it():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        said = {parent.stdout.readline(), parent.stdout.readline()}
        child = next(int(line) for line in said if line != "ready\n")
        assert is_running(child)
        parent.kill()
    deadline = time.monotonic() + 5
    while is_running(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_stopping_waits_until_a_process_has_saved(monkeypatch, tmp_path):
    saved = tmp_path / "saved"
    slow = (
        "import pathlib, signal, sys, time\n"
        "def save(*_):\n    time.sleep(1)\n    pathlib.Path(sys.argv[1]).touch()\n    sys.exit(75)\n"
        "signal.signal(signal.SIGTERM, save)\nprint(flush=True)\nsignal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", slow, str(saved)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        monkeypatch.setitem(task._running, "cell", process)
        task.stop(["another"])
        assert process.poll() is None
        task.stop(["cell"])
        assert saved.exists()
        assert process.returncode == 75


def test_a_request_to_stop_that_a_cell_missed_stops_before_the_next(tmp_path, base, corpus, monkeypatch):
    """Whatever the cell was at: its runs are stored, and no other begins."""
    computed, compute = [], Cell.compute

    def last_words(self):
        compute(self)
        computed.append(self.title)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Cell, "compute", last_words)
    study = Study("stopped", base, {"a": {}, "b": {"model.num_layers": 2}}, seeds=2)
    with pytest.raises(Interrupted, match=r"^[1-9] cells are not finished; the same command with --resume continues$"):
        study.run(tmp_path / "study", data=corpus)
    assert len(computed) == 1
    monkeypatch.setattr(Cell, "compute", compute)
    assert not study.run(tmp_path / "study", data=corpus).failed


def test_a_study_that_is_stopped_says_how_it_goes_on(tmp_path, base, corpus, monkeypatch):
    """Not by the argument of `train`, which it does not have."""

    def stopped(self):
        error = Interrupted("step 5 is saved")
        error.add_note("In Python: when_not_empty='resume'")
        raise error

    monkeypatch.setattr(Cell, "compute", stopped)
    with pytest.raises(Interrupted, match="step 5 is saved") as caught:
        Study("stopped", base, {"a": {}, "b": {"model.num_layers": 2}}, seeds=2).run(tmp_path / "study", data=corpus)
    assert caught.value.__notes__ == ["In Python: the same study.run goes on"]
