"""Training steps (forward, backward, update) against PyTorch, x-transformers, Hugging Face and flax's own layers."""

import argparse
import sys
from pathlib import Path

from experiments.benchmarks.contestant import SIZES
from experiments.benchmarks.interleave import Contestant, race
from experiments.benchmarks.record import Table
from transformer.analysis.counts import train_flops_per_token

UNITS = {"recipe": 50, "middle": 4, "large": 1}
OURS = ("ours", "ours, bfloat16 products", "ours, all bfloat16")
PEERS = ("torch compiled", "x-transformers compiled", "torch eager", "Hugging Face GPT-2", "flax nnx")
BFLOAT16_PEERS = ("torch compiled, bfloat16", "x-transformers compiled, bfloat16")
"""Contestants where the processor multiplies bfloat16: elsewhere a step of theirs takes seconds."""


def measure(arguments: argparse.Namespace) -> dict[str, Table]:
    return {f"training, {size}": _of_size(size, arguments) for size in UNITS if size.startswith(arguments.only)}


def _of_size(size: str, arguments: argparse.Namespace) -> Table:
    config, units = SIZES[size](), UNITS[size]
    # Each contestant of the large size is started again in each round, so there are only those that may be the fastest.
    few = size == "large"
    ours, peers = (OURS[:2], {"float32": PEERS[:2]}) if few else (OURS, {"float32": PEERS})
    if multiplies_bfloat16():
        peers["bfloat16"] = BFLOAT16_PEERS
    pythons = {"": sys.executable} | ({", other Python": arguments.also} if arguments.also else {})
    own = {f"{name}{other}": (name, python) for name in ours for other, python in pythons.items()}
    contestants = {label: Contestant(name, units, python, size) for label, (name, python) in own.items()}
    contestants |= {name: Contestant(name, units, arguments.peers, size) for names in peers.values() for name in names}
    contestants["matmul"] = Contestant("matmul", 100)
    times = race(contestants, arguments.rounds, together=not few)
    rate = [2 * 1024**3 / t for t in times.pop("matmul")]
    model = config.model
    flops = train_flops_per_token(model) * config.batch_size * model.max_length
    fastest = [[min(times[p][i] for p in names) for i in range(arguments.rounds)] for names in peers.values()]
    rows = []
    for label, values in times.items():
        against = [[a / b for a, b in zip(values, best, strict=True)] for best in fastest]
        share = [flops / t / r for t, r in zip(values, rate, strict=True)]
        rows.append((label, [1e3 * t for t in values], *against, share))
    title = (
        f"Training step, d {model.d_model}, {model.num_layers} layers, {config.batch_size} sequences of "
        f"{model.max_length}, {flops / 1e9:.3g} GFLOP"
    )
    columns = (
        "",
        "ms",
        *(f"time / fastest {dtype} peer" for dtype in peers),
        "share of the rate of a 1024³ float32 product",
    )
    return Table(title, columns, (0, 1, *[2] * len(peers), 2), tuple(rows))


def multiplies_bfloat16() -> bool:
    """Whether the processor has instructions for it."""
    about = Path("/proc/cpuinfo")
    return about.exists() and not {"avx512_bf16", "amx_bf16"}.isdisjoint(about.read_text().split())
