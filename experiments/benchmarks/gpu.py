"""One GPU: training steps of GPT-2 124M, and attention of long texts, against PyTorch with its own flash attention.

Everything is bfloat16 but for the parameters of what is trained. Attention is compared in one process, so JAX must
not take the memory of the whole GPU:

    XLA_PYTHON_CLIENT_PREALLOCATE=false XLA_FLAGS=--xla_gpu_enable_triton_gemm=false \\
        python -m experiments.benchmarks gpu --only training
"""

import argparse
import subprocess
from collections.abc import Callable
from typing import Any

from experiments.benchmarks import contestant
from experiments.benchmarks.decoding import timed
from experiments.benchmarks.interleave import Contestant, Running, ratios
from experiments.benchmarks.record import Table
from transformer.analysis.counts import train_flops_per_token
from transformer.analysis.hardware import HARDWARE

SIZE, STEPS = "gpt2", 20
OURS = {"ours, fused": "ours, fused", "ours, exact": "ours, all bfloat16"}
PEER = "torch compiled, bfloat16"
LENGTHS = {1024: ("fused", "in blocks", "exact"), 8192: ("fused", "in blocks"), 65_536: ("fused",)}
"""What is measured at each: exact scores of longer texts fill the memory, and blocks are many small kernels."""
TOKENS, HEADS, HEAD_DIM = 65_536, 12, 64


def measure(arguments: argparse.Namespace) -> dict[str, Table]:
    tables = {"training": training, "attention": attention}
    chosen = {name: make for name, make in tables.items() if name.startswith(arguments.only)}
    return {f"gpu, {name}": make(arguments.rounds) for name, make in chosen.items()}


def device() -> str:
    """The name of the GPU."""
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(query, check=True, capture_output=True, text=True).stdout.strip()


def training(rounds: int) -> Table:
    config = contestant.SIZES[SIZE]()
    names = OURS | {PEER: PEER}
    times = {label: alone(Contestant(name, STEPS, size=SIZE), rounds) for label, name in names.items()}
    tokens = config.batch_size * config.model.max_length
    flops = train_flops_per_token(config.model) * tokens
    peak = HARDWARE["h100"].flops
    rows = tuple(
        (
            label,
            [1e3 * t for t in own],
            ratios(times, label, PEER),
            [1e-3 * tokens / t for t in own],
            [100 * flops / t / peak for t in own],
        )
        for label, own in times.items()
    )
    columns = ("", "ms", f"time / {PEER}", "thousand tokens/s", "% of 989 TFLOP/s")
    title = f"Training step of GPT-2 124M, {config.batch_size} sequences of {config.model.max_length:,}, {device()}"
    return Table(title, columns, (0, 1, 2, 0, 1), rows)


def alone(one: Contestant, rounds: int) -> list[float]:
    """Seconds per unit in each round, with the memory of the GPU to itself."""
    running = Running(one)
    times = [running.seconds() for _ in range(rounds)]
    running.end()
    return times


def attention(rounds: int) -> Table:
    """Values and gradients of causal attention, by length."""
    rows = []
    for length, names in LENGTHS.items():
        works = {name: _our_gradient(name, length) for name in names} | {"torch": _torch_gradient(length)}
        times = timed(works, rounds)
        cells = [[1e3 * t / REPEATED for t in times[name]] if name in times else "" for name in (*COLUMNS, "torch")]
        rows.append((f"{length:,} tokens", *cells, ratios(times, "fused", "torch")))
    title = f"Causal attention, {HEADS} heads of {HEAD_DIM}, {TOKENS:,} tokens in all, values and gradients, {device()}"
    columns = ("", *(f"{name}, ms" for name in COLUMNS), "torch (flash), ms", "fused / torch")
    return Table(title, columns, (0, 2, 2, 2, 2, 2), tuple(rows))


COLUMNS = ("fused", "in blocks", "exact")
REPEATED = 5
"""Times that a round does the same, with one wait."""


def _our_gradient(name: str, length: int) -> Callable[[], object]:
    import jax
    import jax.numpy as jnp

    from transformer.functional.attention import attention
    from transformer.functional.chunked_attention import chunked_attention
    from transformer.functional.fused_attention import fused_attention
    from transformer.functional.masks import Causal, Tokens

    function = {"fused": fused_attention, "in blocks": chunked_attention, "exact": attention}[name]
    shape, tokens = (TOKENS // length, length, HEADS, HEAD_DIM), Tokens.first(length)
    q, k, v, to_out = (jax.random.normal(key, shape, jnp.bfloat16) for key in jax.random.split(jax.random.key(0), 4))

    def run(q, k, v, to_out):
        out, back = jax.vjp(lambda *qkv: function(*qkv, queries=tokens, keys=tokens, mask=Causal()).out, q, k, v)
        return out, back(to_out)

    program = jax.jit(run)
    return lambda: jax.block_until_ready([program(q, k, v, to_out) for _ in range(REPEATED)])


def _torch_gradient(length: int) -> Callable[[], object]:
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    from experiments.benchmarks.torch_gpt import torch_device

    where: dict[str, Any] = {"device": torch_device(), "dtype": torch.bfloat16}
    shape = (TOKENS // length, HEADS, length, HEAD_DIM)
    q, k, v = (torch.randn(shape, **where, requires_grad=True) for _ in range(3))
    to_out = torch.randn(shape, **where)

    def work():
        for _ in range(REPEATED):
            out = scaled_dot_product_attention(q, k, v, is_causal=True)
            torch.autograd.grad(out, (q, k, v), to_out)
        if where["device"] == "cuda":
            torch.cuda.synchronize()

    return work
