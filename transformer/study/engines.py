"""Engines: the cells of a study are computed in this process, or in separate processes on many machines."""

import abc
import functools
import glob
import logging
import os
import signal
import ssl
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from transformer.core.checks import check_positive
from transformer.core.errors import ConfigError, one_line, text_of
from transformer.core.values import Variant
from transformer.study import handover
from transformer.study.cell import Cell
from transformer.study.task import Place, compute, stop
from transformer.study.view import View
from transformer.training.environment import cores
from transformer.training.signals import Interrupted, StopRequest

CONNECT_SECONDS = 10
RETRIES = 2
"""How often a cell is restarted whose process was killed; killed workers do not count."""


class Engine(Variant):
    """Computes the cells of a study."""

    @abc.abstractmethod
    def run(self, cells: Sequence[Cell]) -> Iterator[tuple[Cell, str | None]]:
        """Yields each cell as it ends, with its error in one line if it failed; the others continue.

        Raises:
          ConfigError: the engine cannot compute any cell; nothing has been computed.
          Interrupted: a signal asked to stop; the states are saved.
        """

    @classmethod
    def parse(cls, text: str, where: str = "") -> Self:
        """The engine of a text form; the address of a scheduler alone is one too."""
        return super().parse(f"scheduler({text!r})" if "://" in text and "(" not in text else text, where)


@dataclass(frozen=True)
class LocalEngine(Engine):
    """One cell after another in this process.

    Nothing has to be started or imported twice, and variants may be defined in a notebook.
    """

    name = "local"

    def run(self, cells):
        with StopRequest() as request:
            for left, cell in zip(reversed(range(len(cells))), cells, strict=True):
                yield cell, cell.attempt()
                if request.requested:
                    raise Interrupted(_left(left))


LOCAL = LocalEngine()


@dataclass(frozen=True)
class DaskEngine(Engine):
    """Workers on this machine, each with its share of the devices; needs the extra `dask`."""

    name = "dask"
    workers: int | None = None
    """Number of workers; None: one for each GPU, or without a GPU one for each core."""

    def __post_init__(self):
        if self.workers is not None:
            check_positive(self, "workers")

    def run(self, cells):
        gpus, where = _gpus(), _where()
        count = min(self.workers or len(gpus) or os.cpu_count() or 1, max(len(cells), 1))
        with _local_cluster(count) as client:
            yield from _run(client, cells, where, shares(count, gpus, cores()))


@dataclass(frozen=True)
class SchedulerEngine(Engine):
    """The workers of a running scheduler, which see the folder of the study under the same path."""

    name = "scheduler"
    address: str
    """`tls://host:port` with certificates in dask's configuration, or `tcp://host:port` without encryption."""

    def run(self, cells):
        _, distributed = _libraries()
        _warn_without_encryption(self.address)
        with ExitStack() as stack:
            try:
                client = stack.enter_context(distributed.Client(self.address, timeout=CONNECT_SECONDS))
            except (TypeError, FileNotFoundError, PermissionError, ssl.SSLError) as error:
                why = f"no certificates for {self.address} in distributed.comm.tls of dask's configuration"
                raise ConfigError(f"engine: {why} ({text_of(error)})") from None
            except (OSError, ValueError, RuntimeError) as error:
                raise ConfigError(f"engine: no scheduler at {self.address} ({text_of(error)})") from None
            if not client.scheduler_info()["workers"]:
                print(f"{self.address} has no workers yet: waiting for them", file=sys.stderr)
            yield from _run(client, cells, _where(), {})


@functools.cache
def _warn_without_encryption(address: str) -> None:
    """Say once for each address that it is open; a command may run many studies."""
    if not address.startswith(("tls://", "wss://")):
        print(f"warning: {address} is open: whoever reaches it runs code as you; use tls://", file=sys.stderr)


@contextmanager
def _local_cluster(count: int) -> Iterator[Any]:
    """A client of new workers on this machine, which the other users of the machine cannot reach.

    All its processes share a key that is made here and kept in memory. Their folder is private because each of
    them, this one included, imports from it first; pages that anyone could read are not served.
    """
    dask, distributed = _libraries()
    try:
        security = distributed.Security.temporary()
    except ImportError:
        raise ConfigError("engine: cryptography is missing: pip install 'transformer[dask]'") from None
    log = logging.getLogger("distributed")
    log.setLevel(logging.WARNING)
    with ExitStack() as stack:
        private = tempfile.TemporaryDirectory(prefix="transformer-", ignore_cleanup_errors=True)
        settings = {
            "temporary-directory": stack.enter_context(private),
            "distributed.scheduler.http.routes": [],
            "distributed.worker.http.routes": [],
            "distributed.nanny.pre-spawn-environ.DASK_LOGGING__DISTRIBUTED": "warning",
        }
        stack.enter_context(dask.config.set(settings))
        cluster = stack.enter_context(
            distributed.LocalCluster(
                n_workers=count,
                threads_per_worker=1,
                host="127.0.0.1",
                security=security,
                dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": False},
                memory_limit=0,
            )
        )
        client = stack.enter_context(distributed.Client(cluster))

        class Uninterrupted(distributed.WorkerPlugin):
            """Lets a Ctrl-C in a terminal, which reaches workers too, pass by: the study alone answers it."""

            def setup(self, worker):
                signal.signal(signal.SIGINT, signal.SIG_IGN)

        client.register_plugin(Uninterrupted())
        stack.callback(log.setLevel, logging.ERROR)  # workers that end slowly are not worth a message
        yield client


def shares(count: int, gpus: Sequence[str], cores: Sequence[int]) -> dict[str, Place]:
    """The part of this machine that each of `count` workers owns, by the number of the worker."""
    places = {}
    for i in range(count):
        own = tuple(cores[i::count]) or (cores[i % len(cores)],)
        devices = os.environ.get("JAX_NUM_CPU_DEVICES", str(len(own)))
        visible = {"CUDA_VISIBLE_DEVICES": gpus[i % len(gpus)]} if gpus else {}
        places[str(i)] = Place({"JAX_NUM_CPU_DEVICES": devices, **visible}, own)
    return places


def _gpus() -> list[str]:
    """The names of the GPUs that this process may use, found without starting JAX, which would occupy them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name]
    return [str(i) for i in range(len(glob.glob("/dev/nvidia[0-9]*")))]


def _where() -> tuple[str, str]:
    """The working directory and the folder of the script; asked before a cluster puts its own folder on the path."""
    return str(Path.cwd()), sys.path[0]


def _run(
    client: Any, cells: Sequence[Cell], where: tuple[str, str], places: dict[str, Place]
) -> Iterator[tuple[Cell, str | None]]:
    """Submit the cells and wait for them; the scheduler gives those of a dead worker to another."""
    modules = [handover.write(cell) for cell in cells]
    handover.check_data(cells)
    folders = [str(cell.folder.resolve()) for cell in cells]
    waiting = {
        client.submit(compute, folder, allowed, where, places, key=f"cell-{folder}", retries=RETRIES): cell
        for cell, folder, allowed in zip(cells, folders, modules, strict=True)
    }
    with StopRequest() as request, View(cells) as view:
        while waiting:
            for future in [f for f in waiting if f.done()]:
                cell = waiting.pop(future)
                view.end(cell)
                yield cell, _error(future)
            if request.requested:
                client.cancel(list(waiting))
                client.run(stop, folders, on_error="ignore")  # a worker that is lost has nothing to stop
                raise Interrupted(_left(len(waiting)))
            view.wait()


def _left(count: int) -> str:
    return f"{count} cells are not finished; the same command with --resume continues"


def _error(future: Any) -> str | None:
    if future.status == "finished":
        return future.result()
    if future.status == "error":
        return one_line(future.exception())
    return f"the scheduler lost it ({future.status})"


def _libraries() -> tuple[Any, Any]:
    try:
        import dask.config
        import distributed
    except ImportError:
        raise ConfigError("engine: dask is missing: pip install 'transformer[dask]'") from None
    return dask, distributed
