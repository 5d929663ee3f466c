"""Check every option of the six families in every context, and every pair of independent ones.

python -m transformer.testing              everything, on all cores
python -m transformer.testing --part 2/6   the second of six parts of both, which together are everything
python -m transformer.testing --catalogue  write transformer/CATALOGUE.md
python -m transformer.testing --topology v5e:2x2   compile every option for those devices (extra tpu), and run nothing
python -m transformer.testing --topology h100:4    the same for GPUs (extra cuda)
python -m transformer.testing --device     run every option on the GPU or TPU of this machine, against NumPy
"""

import argparse
import functools
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
from rich.console import Console
from rich.table import Table

from transformer.analysis.hardware import Topology
from transformer.testing.catalogue import PATH, catalogue
from transformer.testing.check import Checked, check_choices, check_combination
from transformer.testing.covering import Covering, cover, merged
from transformer.testing.elsewhere import check_elsewhere
from transformer.testing.here import check_here
from transformer.testing.options import FACTORS, FAMILIES
from transformer.testing.pool import make_pool, start

UNTUNED = "--xla_gpu_enable_triton_gemm=false --xla_gpu_autotune_level=0"
"""Products on a GPU by cuBLAS alone, and none tried out: many small programs run once."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", type=_part, default=(1, 1), metavar="K/N", help="the K-th of N parts; all by default")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--topology", help="compile the options for devices that are not here")
    parser.add_argument("--device", action="store_true", help="run the options on the accelerator that is here")
    parser.add_argument("--catalogue", action="store_true", help="write the catalogue and check nothing")
    arguments = parser.parse_args()
    if arguments.catalogue:
        PATH.write_text(catalogue(cover(FACTORS)))
        return
    began = time.monotonic()
    options = {str(option): option for values in FAMILIES.values() for option in values}
    alone = part(list(options.values()), *arguments.part)
    if arguments.topology:
        sys.exit(elsewhere(arguments.topology, alone, arguments.workers))
    if arguments.device:
        sys.exit(here(alone, arguments.workers))
    with make_pool(arguments.workers) as pool:
        first = start(pool, check_choices, alone, "options")
        covering = cover(FACTORS)  # while options are checked
        together = part([merged(FACTORS, row) for row in covering.rows], *arguments.part)
        second = start(pool, check_combination, together, "combinations")
        done = [*first, *second]
    report(covering, len(alone), len(together), done, time.monotonic() - began)
    sys.exit(any(one.failed for one in done))


def elsewhere(topology: str, alone: Sequence[Any], workers: int) -> bool:
    """Whether any option does not compile for the devices of a topology."""
    there = Topology.named(topology)
    if not there.compiles:
        install = f"pip install -e '.[{there.platform}]'"
        raise SystemExit(f"error: topology: no compiler for {topology} is installed; {install}")
    os.environ["JAX_PLATFORMS"] = "cpu"  # the processes take no device, and JAX asks for no driver of one
    return checked(functools.partial(check_elsewhere, topology), alone, workers, topology)


def here(alone: Sequence[Any], workers: int) -> bool:
    """Whether any option computes something else on the accelerator of this machine."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # the processes share its memory
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {UNTUNED}"
    if (device := jax.devices()[0]).platform == "cpu":
        raise SystemExit("error: device: JAX sees no GPU or TPU here")
    return checked(check_here, alone, workers, device.device_kind)


def checked(check: Callable[..., Any], alone: Sequence[Any], workers: int, what: str) -> bool:
    """Whether any option fails a check, which is made in processes of its own, and said."""
    began = time.monotonic()
    with make_pool(workers) as pool:
        done = list(start(pool, check, alone, what))
    say(done, time.monotonic() - began)
    return any(one.failed for one in done)


def part(every: Sequence[Any], k: int, n: int) -> Sequence[Any]:
    """The k-th of n parts that together are all: every n-th, from the k-th on."""
    return every[k - 1 :: n]


def _part(text: str) -> tuple[int, int]:
    k, slash, n = text.partition("/")
    if not (slash and k.isdecimal() and n.isdecimal() and 1 <= int(k) <= int(n)):
        raise argparse.ArgumentTypeError(f"{text!r} is not K/N, such as 2/6")
    return int(k), int(n)


def report(covering: Covering, alone: int, together: int, done: Sequence[Checked], seconds: float) -> None:
    """Print the options, the checks and the failures."""
    console = Console()
    table = Table("family", "options", title="The catalogue")
    for name, values in FAMILIES.items():
        table.add_row(name, str(len(values)))
    console.print(table)
    console.print(
        f"{covering.pairs} pairs of options of different kinds in {len(covering.rows)} combinations; "
        f"{len(covering.refused)} more pairs are refused with a reason; {alone} options and {together} combinations "
        "were checked",
        highlight=False,
    )
    say(done, seconds)


def say(done: Sequence[Checked], seconds: float) -> None:
    """Print the failures, and counts."""
    console = Console()
    for one in done:
        for failure in one.failed:
            console.print(f"FAILED {' '.join(f'{n}={v}' for n, v in one.choices.items())}: {failure}", markup=False)
    passed, failed = (sum(len(getattr(one, name)) for one in done) for name in ("passed", "failed"))
    console.print(f"{passed + failed} checks, {failed} failed, {seconds:.0f} s", highlight=False)


if __name__ == "__main__":
    main()
