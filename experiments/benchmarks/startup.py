"""Time from the start of the process to the end of the first training dispatch, for a first and a second run.

python -m experiments.benchmarks.startup [--rounds 5]
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from experiments.benchmarks.interleave import spread

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    first, again = [], []
    for _ in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as cache:
            for times in (first, again):
                start = time.perf_counter()
                subprocess.run([sys.executable, "-c", FIRST_STEP, str(Path(cache))], check=True)
                times.append(time.perf_counter() - start)
    print(f"first run {spread(first, 1)} s, second run {spread(again, 1)} s")


if __name__ == "__main__":
    main()
