"""24 replicas in one program against 24 single runs one after another, compilation not counted.

python -m experiments.benchmarks.replicas [--rounds 5] [--also PYTHON]
"""

import argparse
import sys

from experiments.benchmarks.interleave import Contestant, race, show, spread

REPLICAS = 24
SIZES = {"nanogpt-cpu": "ours", "d 64, 2 layers": "ours small"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--also", help="another Python interpreter with this package installed")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    rows = []
    for python in (sys.executable, arguments.also) if arguments.also else (sys.executable,):
        for size, name in SIZES.items():
            contestants = {
                "single": Contestant(name, 60, python),
                "replicas": Contestant(f"{name} {REPLICAS} replicas", 10, python),
            }
            times = race(contestants, arguments.rounds)
            ratio = [many / (REPLICAS * one) for many, one in zip(times["replicas"], times["single"], strict=True)]
            single, many = (spread([1e3 * t for t in times[k]], 1) for k in ("single", "replicas"))
            rows.append([size, python, single, many, spread(ratio)])
    columns = [
        "size",
        "Python",
        "single, ms a step",
        f"{REPLICAS} replicas, ms a step",
        f"replicas / {REPLICAS} singles",
    ]
    show("median (lowest–highest) over rounds", columns, rows)


if __name__ == "__main__":
    main()
