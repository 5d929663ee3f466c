"""Checks side by side, in processes of their own."""

import concurrent.futures
import gc
import multiprocessing
from collections.abc import Callable, Sequence
from typing import Any

import jax
from rich.progress import track

from transformer.testing.check import Checked


def run(check: Callable[[Any], Checked], choices: Sequence[Any], what: str, workers: int) -> list[Checked]:
    """Check them side by side, each process on its own."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, context, initializer=prepare) as pool:
        return list(track(pool.map(check, choices), description=what, total=len(choices)))


def prepare() -> None:
    """A dtype that is promoted in silence is an error, as in the tests; what is imported is no garbage."""
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    gc.freeze()
