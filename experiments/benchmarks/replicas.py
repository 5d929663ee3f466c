"""24 replicas in one program against 24 single runs one after another, compilation not counted."""

import argparse
import sys

from experiments.benchmarks.interleave import Contestant, race
from experiments.benchmarks.record import Table

REPLICAS = 24
NAMES = {"recipe": "d 128, 4 layers", "small": "d 64, 2 layers"}


def measure(arguments: argparse.Namespace) -> dict[str, Table]:
    rows = []
    for python in (sys.executable, arguments.also) if arguments.also else (sys.executable,):
        for size, name in NAMES.items():
            contestants = {
                "single": Contestant("ours, single", 60, python, size),
                "replicas": Contestant(f"ours, {REPLICAS} replicas", 10, python, size),
            }
            times = race(contestants, arguments.rounds)
            ratio = [many / (REPLICAS * one) for many, one in zip(times["replicas"], times["single"], strict=True)]
            single, many = ([1e3 * t for t in times[k]] for k in ("single", "replicas"))
            rows.append((name + (", other Python" if python != sys.executable else ""), single, many, ratio))
    columns = ("", "single run, ms a step", f"{REPLICAS} runs, ms a step", f"{REPLICAS} runs / {REPLICAS} single runs")
    return {"replicas": Table(f"{REPLICAS} runs in one program", columns, (0, 1, 1, 2), tuple(rows))}
