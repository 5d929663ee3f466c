"""Runs checks in parallel processes."""

import concurrent.futures
import gc
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax

from transformer.testing.check import Checked
from transformer.testing.subject import QUICK
from transformer.training.progress import counted


def make_pool(workers: int) -> concurrent.futures.Executor:
    """Separate processes, each ready to check."""
    context = multiprocessing.get_context("spawn")
    return concurrent.futures.ProcessPoolExecutor(workers, context, initializer=prepare)


def start(
    pool: concurrent.futures.Executor, check: Callable[[Any], Checked], choices: Sequence[Any], what: str
) -> Iterable[Checked]:
    """Begin to check all choices in parallel; the results, with their number while they are waited for."""
    return counted(pool.map(check, choices), what, len(choices))


def prepare() -> None:
    """Set a process up as in the tests: implicit dtype promotion is an error, and there are two devices.

    Imported objects are frozen out of garbage collection, which is rare, because programs are many small objects that
    live long. Quick compilation is set for every program; XLA reads the flags when the first one compiles.
    """
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags(QUICK)])
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_num_cpu_devices", 2)
    gc.freeze()
    gc.set_threshold(20_000)
    threading.Thread(target=_end_with, args=(multiprocessing.parent_process(),), daemon=True).start()


def _end_with(parent: Any) -> None:
    """End this process when the one that started it is gone, which may have been killed; it would wait forever."""
    parent.join()
    os._exit(1)


def flags(options: Mapping[str, Any]) -> list[str]:
    """Options of the compiler in the form of the variable XLA_FLAGS."""
    return [f"--{name}={str(value).lower()}" for name, value in options.items()]
