"""Real processes on one machine are one run: trained, saved, one killed, gone on with by two, by one and by four."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.runs.mesh import HostsConfig
from transformer.training import processes
from transformer.training.metrics import read_metrics
from transformer.training.processes import EXIT_PEER_LOST, LISTEN

SCRIPT = Path(__file__).with_name("on_two_hosts.py")


def free_port():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def run(text, workdir, count=2, last=None, **options):
    """Exit codes and what was said, of each process; `last` are further options of the last one.

    A process that stops itself is killed once the others have ended.
    """
    address = f"localhost:{free_port()}"
    cache = {"JAX_COMPILATION_CACHE_DIR": str(Path.home() / ".cache" / "transformer" / "tests")}
    started = []
    for index in range(count):
        own = json.dumps(options | ((last or {}) if index == count - 1 else {}))
        command = [sys.executable, str(SCRIPT), str(text), str(workdir), str(count), str(index), address, own]
        started.append(
            subprocess.Popen(
                command, env=os.environ | cache | {"JAX_PLATFORMS": "cpu"}, stderr=subprocess.PIPE, text=True
            )
        )
    said = [started[0].communicate(timeout=300)[1]]
    if (last or {}).get("signal") == "SIGSTOP":
        started[-1].kill()
    said += [process.communicate(timeout=300)[1] for process in started[1:]]
    return [process.returncode for process in started], said


def lines(workdir):
    return read_metrics(workdir)


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
    # From the checkpoint of two processes before the last, alone and with four.
    (cut / "checkpoints" / "00000012").rename(tmp_path / "away")
    for count in (1, 4):
        other = shutil.copytree(cut, tmp_path / str(count))
        codes, said = run(text, other, count=count)
        assert codes == [0] * count, said
        change = f"continues with 1 × {count} × 1 × 1 devices after 1 × 2 × 1 × 1"
        assert f"{change}: the same up to rounding, not bit for bit" in said[0]
        gone_on = dict(np.load(other / "params.npz"))
        for name, value in expected.items():
            np.testing.assert_allclose(gone_on[name], value, rtol=1e-4, atol=1e-5)


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


CONNECT = """
import socket, sys
from transformer.runs.mesh import HostsConfig
from transformer.training import processes

port = int(sys.argv[1])
processes.connect(HostsConfig(address=f"127.0.0.1:{port}", count=1, index=0))
for host in ("127.0.0.1", "127.0.0.2", "::1"):
    try:
        socket.create_connection((host, port), timeout=5).close()
        print(host)
    except OSError:
        pass
"""


def test_the_coordinator_listens_where_it_is_told():
    """At the address given and at no other of this machine, because it asks for no password."""
    environment = {name: value for name, value in os.environ.items() if name != LISTEN} | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", CONNECT, str(free_port())]
    said = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert said.stdout.split() == ["127.0.0.1"], said.stderr


@pytest.fixture
def given(monkeypatch):
    """What JAX is given where a process would join the others."""
    given = {}
    processes.connect.cache_clear()
    monkeypatch.delenv(LISTEN, raising=False)
    monkeypatch.setattr("jax.distributed.initialize", lambda address, **options: given.update(options))
    return given


def test_an_address_at_which_nothing_can_listen(given):
    """JAX is not asked; one line says what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=rf"^hosts: cannot listen at {address}: its port is taken, .* {LISTEN}"):
            processes.connect(HostsConfig(address=address, count=2, index=0))
        assert not given
        processes.connect(HostsConfig(address=address, count=2, index=1))  # which does not listen
    assert given["process_id"] == 1


def test_a_name_without_an_address(given, monkeypatch):
    def getaddrinfo(*_):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(ConfigError, match=r"^hosts: node7 has no address \(Name or service not known\)"):
        processes.connect(HostsConfig(address="node7:1234", count=2, index=0))


def test_the_first_process_may_listen_elsewhere_than_the_others_connect(given, monkeypatch):
    """Behind the address of a service, which is not the machine's own."""
    elsewhere = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv(LISTEN, elsewhere)
    processes.connect(HostsConfig(address="a:1", count=2, index=0))
    assert given["coordinator_bind_address"] == elsewhere


@pytest.mark.parametrize(("host", "told"), [("node7", True), ("localhost", False), ("127.0.0.1", False)])
def test_a_name_that_means_this_machine_alone(given, monkeypatch, capsys, host, told):
    """The others could not connect, and would wait without a word; who writes the loopback address means it."""
    monkeypatch.setattr(socket, "getaddrinfo", lambda _, port: [(socket.AF_INET, None, None, "", ("127.0.0.1", port))])
    processes.connect(HostsConfig(address=f"{host}:{free_port()}", count=2, index=0))
    assert (f"{host} is 127.0.0.1 here, which no other machine reaches" in capsys.readouterr().err) == told


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"count": 2}, "address, count and index belong together"),
        ({"launcher": True, "count": 2, "index": 0, "address": "a:1"}, "give either --hosts.launcher or"),
        ({"count": 2, "index": 2, "address": "a:1"}, r"index: 2 is not in \[0, 2\)"),
        ({"patience": 0}, "patience: 0 is not a positive number"),
        ({"count": 2, "index": 0, "address": "a"}, "address: 'a' is not host:port"),
        ({"count": 2, "index": 0, "address": ":1234"}, "address: ':1234' is not host:port"),
        ({"count": 2, "index": 0, "address": "a:65536"}, "address: 'a:65536' is not host:port"),
    ],
)
def test_hosts_that_make_no_sense_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        HostsConfig(**fields)


def test_a_process_that_no_launcher_started(given, monkeypatch):
    def refuse(*_, **__):
        raise ValueError("coordinator_address should be defined.")

    monkeypatch.setattr("jax.distributed.initialize", refuse)
    with pytest.raises(ConfigError, match=r"^hosts: no launcher started this process; start it with srun or mpirun"):
        processes.connect(HostsConfig(launcher=True))
