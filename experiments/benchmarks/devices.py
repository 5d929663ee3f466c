"""Eight runs as replicas over eight devices of one process, against one run on one device and against eight processes.

The devices are simulated: they share the cores of this machine, which limits the gain. Calls of compiled programs
and collective operations in them, which do not depend on the machine, are counted too.

    python -m experiments.benchmarks.devices [--rounds 3] [--steps 100]
"""

import argparse
import os
import re
import subprocess
import sys
import time

from experiments.benchmarks.interleave import show, spread

RUNS = 8
MODES = {"one run, one device": (1, 1), "8 replicas, 8 devices": (RUNS, RUNS), "8 processes": (1, 1)}


def work(replicas: int, steps: int) -> None:
    """Print the seconds of `steps` steps of all replicas, the calls made, and the collective operations of a call."""
    import jax

    from experiments.benchmarks.contestant import random_tokens, recipe, small
    from transformer.runs.config import grid
    from transformer.training.program import make_program

    config = small(recipe())
    program = make_program(config, grid(range(replicas)))
    data = program.put({"tokens": random_tokens(config, replicas, config.steps_per_dispatch)})
    text = program.train.lower(program.abstract_state, data).compile().as_text()
    state, _ = jax.block_until_ready(program.train(program.init(), data))
    print("ready", flush=True)
    sys.stdin.readline()
    calls, started = steps // config.steps_per_dispatch, time.perf_counter()
    for _ in range(calls):
        state, _ = program.train(state, data)
    jax.block_until_ready(state)
    collectives = len(re.findall(r" (?:all-[a-z-]+|reduce-scatter|collective-permute)\(", text))
    print(time.perf_counter() - started, calls, collectives, flush=True)


def timed(mode: str, steps: int) -> tuple[float, int, int]:
    """(steps per second of all runs together, calls, collective operations)."""
    replicas, devices = MODES[mode]
    command = [
        sys.executable,
        "-m",
        "experiments.benchmarks.devices",
        "--replicas",
        str(replicas),
        "--steps",
        str(steps),
    ]
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
    return count * replicas * steps / seconds, calls, collectives


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--replicas", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.replicas:
        from transformer.core import runtime

        runtime.start()
        work(arguments.replicas, arguments.steps)
        return
    found = {mode: [] for mode in MODES}
    for _ in range(arguments.rounds):
        for mode in MODES:
            found[mode].append(timed(mode, arguments.steps))
    rows = [[mode, spread([one[0] for one in all_], 0), *map(str, all_[0][1:])] for mode, all_ in found.items()]
    columns = ["", "model steps a second", "calls", "collective operations in a call"]
    show("d 64, 2 layers; median (lowest–highest) over rounds", columns, rows)


if __name__ == "__main__":
    main()
