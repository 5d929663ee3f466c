"""Two real processes on one machine are one run: trained, saved, one killed, started again, gone on with alone."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from transformer.core.values import ConfigError
from transformer.runs.mesh import HostsConfig
from transformer.training.hosts import EXIT_PEER_LOST

SCRIPT = Path(__file__).with_name("on_two_hosts.py")


def run(text, workdir, count=2, last=None, **options):
    """Exit codes and what was said, of each process; `last` are further options of the last one.

    A process that stops itself is killed once the others have ended.
    """
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    cache = {"JAX_COMPILATION_CACHE_DIR": str(Path.home() / ".cache" / "transformer" / "tests")}
    processes = []
    for index in range(count):
        own = json.dumps(options | ((last or {}) if index == count - 1 else {}))
        command = [sys.executable, str(SCRIPT), str(text), str(workdir), str(count), str(index), address, own]
        processes.append(
            subprocess.Popen(
                command, env=os.environ | cache | {"JAX_PLATFORMS": "cpu"}, stderr=subprocess.PIPE, text=True
            )
        )
    said = [processes[0].communicate(timeout=300)[1]]
    if (last or {}).get("signal") == "SIGSTOP":
        processes[-1].kill()
    said += [process.communicate(timeout=300)[1] for process in processes[1:]]
    return [process.returncode for process in processes], said


def lines(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def without_seconds(workdir):
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines(workdir)]


@pytest.mark.release
def test_a_killed_process_costs_nothing(tmp_path):
    """Killed after the evaluation of step 8, before its checkpoint; both go on from step 4, bit for bit."""
    text, whole, cut = tmp_path / "text.txt", tmp_path / "whole", tmp_path / "cut"
    text.write_text("abacabad" * 40)
    codes, said = run(text, whole)
    assert codes == [0, 0], said
    codes, said = run(text, cut, last={"at_step": 8})
    assert codes == [EXIT_PEER_LOST, -9], said
    assert "a process of this run is lost" in said[0]
    assert "start all of them again with --resume" in said[0]
    assert [p.name for p in sorted((cut / "checkpoints").iterdir()) if p.name.isdigit()] == ["00000004"]
    codes, said = run(text, cut)
    assert codes == [0, 0], said
    assert without_seconds(cut) == without_seconds(whole)
    expected, found = (dict(np.load(folder / "params.npz")) for folder in (whole, cut))
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)
    # Alone, from the checkpoint of two processes before the last.
    for folder in (cut / "checkpoints").iterdir():
        if folder.name == "00000012":
            folder.rename(tmp_path / "away")
    codes, said = run(text, cut, count=1)
    assert codes == [0], said
    assert "continues with 1 × 1 × 1 devices after 1 × 2 × 1: the same up to rounding, not bit for bit" in said[0]
    alone = dict(np.load(cut / "params.npz"))
    for name, value in expected.items():
        np.testing.assert_allclose(alone[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.release
def test_a_process_that_hangs_ends_the_others(tmp_path):
    """Within the patience, with what to do."""
    text = tmp_path / "text.txt"
    text.write_text("abacabad" * 40)
    codes, said = run(text, tmp_path / "run", last={"at_step": 8, "signal": "SIGSTOP"}, patience=30)
    assert codes == [EXIT_PEER_LOST, -9], said
    assert "start all of them again with --resume" in said[0]


def test_processes_with_different_runs_are_refused(tmp_path):
    """Before there is a folder."""
    text = tmp_path / "text.txt"
    text.write_text("abacabad" * 40)
    codes, said = run(text, tmp_path / "run", last={"seed": 1})
    assert all(code not in (0, EXIT_PEER_LOST) for code in codes), said
    assert all("the processes were given different runs" in text for text in said)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"count": 2}, "address, count and index belong together"),
        ({"launcher": True, "count": 2, "index": 0, "address": "a:1"}, "give either --hosts.launcher or"),
        ({"count": 2, "index": 2, "address": "a:1"}, r"index: 2 is not in \[0, 2\)"),
        ({"patience": 0}, "patience: 0 is not a positive number"),
    ],
)
def test_hosts_that_make_no_sense_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        HostsConfig(**fields)
