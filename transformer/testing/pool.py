"""Checks side by side, in processes of their own."""

import concurrent.futures
import gc
import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from rich.progress import track

from transformer.testing.check import Checked
from transformer.testing.subject import QUICK


def run(check: Callable[[Any], Checked], choices: Sequence[Any], what: str, workers: int) -> list[Checked]:
    """Check them side by side, each process on its own."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, context, initializer=prepare) as pool:
        return list(track(pool.map(check, choices), description=what, total=len(choices)))


def prepare() -> None:
    """As in the tests, a dtype that is promoted in silence is an error, and there are two devices.

    What is imported is no garbage. All is compiled quickly, also what is no program of a `Subject`; XLA reads it
    with the first program.
    """
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags(QUICK)])
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_num_cpu_devices", 2)
    gc.freeze()


def flags(options: Mapping[str, Any]) -> list[str]:
    """Options of the compiler as words of the variable XLA_FLAGS."""
    return [f"--{name}={str(value).lower()}" for name, value in options.items()]
