"""Training speed at the shapes of nanogpt-cpu against PyTorch and x-transformers (extra `parity`).

    python -m experiments.benchmarks.training [--also PYTHON] [--rounds 7]

`--also` adds our step under another interpreter, with another version of JAX.
"""

import argparse

from experiments.benchmarks.contestant import recipe
from experiments.benchmarks.interleave import Contestant, race, ratios, show, spread
from transformer.analysis.counts import train_flops_per_token


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--also", help="another Python interpreter with this package installed")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    peers = ("torch eager", "torch compiled", "x-transformers compiled")
    contestants = {name: Contestant(name, 50) for name in ("ours", "ours bfloat16", *peers)}
    if arguments.also:
        for name in ("ours", "ours bfloat16"):
            contestants[f"{name}, other Python"] = Contestant(name, 50, arguments.also)
    contestants["matmul"] = Contestant("matmul", 200)
    times = race(contestants, arguments.rounds)
    fastest = [min(times[p][i] for p in peers) for i in range(arguments.rounds)]
    config = recipe()
    flops = train_flops_per_token(config.model) * config.batch_size * config.model.max_length
    rate = [2 * 1024**3 / t for t in times["matmul"]]
    rows = []
    for name, values in times.items():
        if name != "matmul":
            against = [a / b for a, b in zip(values, fastest, strict=True)]
            share = [flops / t / r for t, r in zip(values, rate, strict=True)]
            rows.append([name, spread([1e3 * t for t in values], 1), spread(against), spread(share)])
    columns = ["contestant", "ms a step", "time / fastest peer", "share of the matmul rate"]
    show("median (lowest–highest) over rounds", columns, rows)
    print(f"matmul {spread([r / 1e9 for r in rate], 0)} GFLOP/s; the step is {flops / 1e9:.2f} GFLOP")
    for peer in peers:
        print(f"ours / {peer}: {spread(ratios(times, 'ours', peer))}")


if __name__ == "__main__":
    main()
