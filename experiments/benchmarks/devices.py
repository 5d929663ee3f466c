"""Eight runs as replicas over eight devices of one process, against one run on one device and against eight processes.

The devices are simulated: they share the cores of this machine, which limits the gain. Calls of compiled programs
and collective operations in them, which do not depend on the machine, are counted too.
"""

import argparse
import os
import re
import subprocess
import sys
import time

from experiments.benchmarks.record import Table

RUNS, STEPS = 8, 100
MODES = {"one run, one device": (1, 1), "8 replicas, 8 devices": (RUNS, RUNS), "8 processes": (1, 1)}


def work(replicas: int) -> None:
    """Print the seconds of STEPS steps of all replicas, the calls made, and the collective operations of a call."""
    import jax

    from experiments.benchmarks.contestant import SIZES, random_tokens
    from transformer.runs.config import grid
    from transformer.training.program import make_program

    config = SIZES["small"]()
    program = make_program(config, grid(range(replicas)))
    data = program.put({"tokens": random_tokens(config, replicas, config.steps_per_dispatch)})
    text = program.train.lower(program.abstract_state, data).compile().as_text()
    state, _ = jax.block_until_ready(program.train(program.init(), data))
    print("ready", flush=True)
    sys.stdin.readline()
    calls, started = STEPS // config.steps_per_dispatch, time.perf_counter()
    for _ in range(calls):
        state, _ = program.train(state, data)
    jax.block_until_ready(state)
    collectives = len(re.findall(r" (?:all-[a-z-]+|reduce-scatter|collective-permute)\(", text))
    print(time.perf_counter() - started, calls, collectives, flush=True)


def timed(mode: str) -> tuple[float, int, int]:
    """(steps per second of all runs together, calls, collective operations)."""
    replicas, devices = MODES[mode]
    command = [sys.executable, "-m", "experiments.benchmarks.devices", str(replicas)]
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": str(devices)}
    count = RUNS if mode == "8 processes" else 1
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, env=environment, **pipes) for _ in range(count)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate()[0].split() for process in processes]
    seconds = max(float(line[0]) for line in said)
    calls, collectives = (sum(int(line[i]) for line in said) for i in (1, 2))
    return count * replicas * STEPS / seconds, calls, collectives


def measure(arguments: argparse.Namespace) -> dict[str, Table]:
    found = {mode: [] for mode in MODES}
    for _ in range(arguments.rounds):
        for mode in MODES:
            found[mode].append(timed(mode))
    rows = tuple((mode, [one[0] for one in all_], *map(str, all_[0][1:])) for mode, all_ in found.items())
    columns = ("", "steps a second", "calls of a program", "collective operations in a call")
    return {"devices": Table("Eight runs at once, d 64, 2 layers", columns, (0, 0, 0, 0), rows)}


if __name__ == "__main__":
    from transformer.core import runtime

    runtime.start()
    work(int(sys.argv[1]))
