"""Time from the start of a process to the end of the first training step, to the front door, and to the help."""

import argparse
import subprocess
import sys
import tempfile
import time

from experiments.benchmarks.record import Table

FIRST_STEP = """
import sys
from pathlib import Path
from transformer.core import runtime
runtime.start(cache=Path(sys.argv[1]))
import jax
from experiments.benchmarks.contestant import random_tokens, recipe
from transformer.runs.config import grid
from transformer.training.program import make_program
config = recipe().replace(steps_per_dispatch=1)
program = make_program(config, grid([0]))
jax.block_until_ready(program.train(program.init(), {"tokens": random_tokens(config, 1, 1)}))
"""
COMMANDS = {
    "first step of the recipe, nothing compiled before": ("-c", FIRST_STEP),
    "first step of the recipe, compiled programs on disk": ("-c", FIRST_STEP),
    "import jax, flax and optax": ("-c", "import jax, flax.nnx, optax"),
    "the same, and what trains and decodes": (
        "-c",
        "import jax, flax.nnx, optax, transformer as T; T.RunConfig; T.train; T.generate",
    ),
    "import transformer": ("-c", "import transformer"),
    "python -m experiments.language_model --help": ("-m", "experiments.language_model", "--help"),
}


def measure(arguments: argparse.Namespace) -> dict[str, Table]:
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as cache:
            for name, command in COMMANDS.items():
                more = (cache,) if FIRST_STEP in command else ()
                start = time.perf_counter()
                subprocess.run([sys.executable, *command, *more], check=True, stdout=subprocess.DEVNULL)
                times[name].append(time.perf_counter() - start)
    rows = tuple((name, own) for name, own in times.items())
    return {"startup": Table("Start of a process", ("", "s"), (0, 2), rows)}
