"""A run of several processes, each with its own devices: which they are, which one writes, and the loss of one.

All processes run the same command with the same folder, and the devices of all are one mesh. The first
process writes logs; arrays are saved by all processes, each its own part. When a process ends or hangs, the others
end too, within `patience` seconds, and all are started again together with `--resume`.
"""

import contextlib
import functools
import ipaddress
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from transformer.core.errors import ConfigError, text_of
from transformer.runs.mesh import HostsConfig

EXIT_PEER_LOST = 76
"""Exit code of a process whose peer has ended or hangs: all together continue with --resume."""

LISTEN = "JAX_COORDINATOR_BIND_ADDRESS"
"""JAX's variable of where the first process listens, if that is not the address at which the others reach it."""

_SIGNS = ("Gloo", "NCCL", "UNAVAILABLE", "DEADLINE_EXCEEDED", "coordination service")
"""Words in the message of a collective operation or barrier when a process does not respond."""


@functools.cache
def connect(config: HostsConfig) -> None:
    """Join the other processes; call it before the first array. Called again, it does nothing.

    JAX's coordinator has no password, so the first process lets it listen at the given address alone.

    Raises:
      ConfigError: the launcher does not name other processes, or they cannot be reached.
    """
    if not config.several:
        return
    listen = os.environ.get(LISTEN) or config.address
    explicit: dict[str, Any] = {"coordinator_bind_address": listen}
    if not config.launcher:
        explicit |= {"num_processes": config.count, "process_id": config.index}
    # JAX would abort without saying what to do; the watchdog should act first.
    explicit["heartbeat_timeout_seconds"] = 2 * config.patience
    if listen and config.index == 0:
        _check_listen(listen)
    try:
        jax.distributed.initialize(config.address, **explicit)
    except (ValueError, RuntimeError) as error:
        reason = text_of(error)
        if "start RPC server" in reason:
            reason = (
                f"cannot listen at {listen}: its port is taken, or it is not of this machine; {LISTEN} sets another"
            )
        if "should be defined" in reason:
            reason = "no launcher started this process; start it with srun or mpirun, or give --hosts.address"
        raise ConfigError(f"hosts: {reason}") from None


def _check_listen(listen: str) -> None:
    """Raise `ConfigError` where nothing can listen, because JAX would crash; say so where no other machine connects."""
    name, _, port = listen.rpartition(":")
    host = name.strip("[]")
    try:
        places = {place[:2]: family for family, *_, place in socket.getaddrinfo(host, int(port))}
    except OSError as error:
        raise ConfigError(f"hosts: {host} has no address ({error.strerror})") from None
    own = [place[0] for place, family in places.items() if _can_listen(place, family)]
    if not own:
        why = "its port is taken, or it is not an address of this machine"
        raise ConfigError(f"hosts: cannot listen at {listen}: {why}; {LISTEN} sets another")
    if host not in ("localhost", *own) and all(ipaddress.ip_address(address).is_loopback for address in own):
        print(f"hosts: {host} is {own[0]} here, which no other machine reaches; give its address", file=sys.stderr)


def _can_listen(place: tuple, family: int) -> bool:
    try:
        socket.create_server(place, family=family).close()
    except OSError:
        return False
    return True


def is_writer() -> bool:
    """Whether this is the process that writes logs and manifests."""
    return jax.process_index() == 0


def barrier(name: str) -> None:
    """Wait until all processes have reached this point."""
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(name)


def fetch(tree: Any) -> Any:
    """Whole arrays on the host, also from devices of other processes; all processes call it together.

    Arrays that each process has of its own are put one behind the other.
    """
    if jax.process_count() == 1:
        return jax.device_get(tree)
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(tree, tiled=True)


def any_host(flag: bool) -> bool:
    """Whether `flag` is True in any process; all processes call it together."""
    return bool(fetch(np.array([flag])).any())


def in_first(action: Callable[[], Any]) -> None:
    """Run `action` in the process that writes; where it raises `ConfigError`, all processes do."""
    refusal = None
    if is_writer():
        try:
            action()
        except ConfigError as error:
            refusal = error
    if any_host(refusal is not None):
        raise refusal or ConfigError("hosts: the first process refuses the run, and says why")


def check_same(sha256: str) -> None:
    """Raise `ConfigError` where processes were given different runs."""
    if len(np.unique(fetch(np.frombuffer(bytes.fromhex(sha256), np.uint8)[None]), axis=0)) > 1:
        raise ConfigError("hosts: the processes were given different runs; all have to have the same options and data")


class Watchdog:
    """Ends the process after `patience` seconds without a `beat`, because a peer that hangs sends no error."""

    def __init__(self, patience: float):
        self._patience, self._ended = patience, threading.Event()
        self.beat()

    def beat(self) -> None:
        """Record that something has happened."""
        self._last = time.monotonic()

    def watch(self) -> None:
        while not self._ended.wait(min(1.0, self._patience / 4)):
            if time.monotonic() - self._last > self._patience:
                lost(f"nothing has happened for {self._patience:g} s")

    def end(self) -> None:
        self._ended.set()


@contextlib.contextmanager
def watched(patience: float) -> Iterator[Watchdog]:
    """A watchdog over a run of several processes, with a clear message where one of them is lost."""
    dog = Watchdog(patience)
    if jax.process_count() == 1:
        yield dog
        return
    threading.Thread(target=dog.watch, daemon=True).start()
    try:
        yield dog
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        if any(sign in str(error) for sign in _SIGNS):
            lost(str(error).splitlines()[0])
        raise
    finally:
        dog.end()


def lost(why: str) -> None:
    """End at once, because JAX's exit handlers would wait for the lost process."""
    print(f"a process of this run is lost ({why}); start all of them again with --resume", file=sys.stderr, flush=True)
    os._exit(EXIT_PEER_LOST)
