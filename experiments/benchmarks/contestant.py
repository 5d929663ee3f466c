"""One contestant of a speed comparison: a process that runs work when it is told to.

It builds, warms up, prints `ready`, then for each line with a number on standard input does that
many units of work and prints the seconds. Started by `experiments.benchmarks.interleave`.
"""

import sys
import time
from collections.abc import Callable

import numpy as np

from transformer.core import runtime
from transformer.runs.config import RunConfig, grid
from transformer.runs.presets import PRESETS

Work = Callable[[int], None]


def recipe() -> RunConfig:
    return PRESETS["nanogpt-cpu"].replace({"model.vocab_size": 65})


def random_tokens(config: RunConfig, *leading: int) -> np.ndarray:
    shape = (*leading, config.batch_size, config.model.max_length + 1)
    return np.random.default_rng(0).integers(0, config.model.vocab_size or 1, shape).astype(np.int32)


def ours(config: RunConfig, num_replicas: int) -> Work:
    """Training steps of all replicas, dispatched as by the training loop."""
    import jax

    from transformer.training.program import make_program

    program = make_program(config, grid(range(num_replicas)))
    state = program.init()
    tokens = random_tokens(config, num_replicas, config.steps_per_dispatch)

    def work(steps: int) -> None:
        nonlocal state
        for _ in range(steps // config.steps_per_dispatch):
            state, _ = program.train(state, {"tokens": tokens})
        jax.block_until_ready(state)

    return work


def torch_gpt(config: RunConfig, compiled: bool) -> Work:
    import torch

    from experiments.benchmarks.torch_gpt import GPT, adamw, train_step

    torch.manual_seed(0)
    model = GPT(config)
    logits_of = torch.compile(model) if compiled else model
    optimizer = adamw(model, config)
    tokens = torch.from_numpy(random_tokens(config)).long()

    def work(steps: int) -> None:
        for step in range(steps):
            train_step(model, logits_of, optimizer, config, tokens, step)

    return work


def x_transformers(config: RunConfig) -> Work:
    import torch
    from x_transformers import Decoder, TransformerWrapper

    from experiments.benchmarks.torch_gpt import adamw, train_step

    m = config.model
    assert m.attention is not None
    H, _, K, _ = m.attention.sizes(m)
    torch.manual_seed(0)
    layers = Decoder(dim=m.d_model, depth=m.num_layers, heads=H, attn_dim_head=K, attn_flash=True)
    model = TransformerWrapper(
        num_tokens=m.vocab_size, max_seq_len=m.max_length, attn_layers=layers, tie_embedding=True
    )
    logits_of = torch.compile(model)
    optimizer = adamw(model, config)
    tokens = torch.from_numpy(random_tokens(config)).long()

    def work(steps: int) -> None:
        for step in range(steps):
            train_step(model, logits_of, optimizer, config, tokens, step)

    return work


def matmul(size: int = 1024) -> Work:
    """Products of square float32 matrices, 2 · size³ operations each."""
    import jax

    product = jax.jit(lambda a: a @ a * (1 / size))
    a = jax.random.normal(jax.random.key(0), (size, size))

    def work(count: int) -> None:
        x = a
        for _ in range(count):
            x = product(x)
        x.block_until_ready()

    return work


def small(config: RunConfig) -> RunConfig:
    """The config with d 64 and 2 layers, at which a single run cannot use two cores fully."""
    return config.replace({"model.d_model": 64, "model.num_layers": 2})


CONTESTANTS: dict[str, Callable[[], Work]] = {
    "ours": lambda: ours(recipe(), 1),
    "ours bfloat16": lambda: ours(recipe().replace({"model.dtype": "bfloat16"}), 1),
    "ours 24 replicas": lambda: ours(recipe(), 24),
    "ours small": lambda: ours(small(recipe()), 1),
    "ours small 24 replicas": lambda: ours(small(recipe()), 24),
    "torch eager": lambda: torch_gpt(recipe(), compiled=False),
    "torch compiled": lambda: torch_gpt(recipe(), compiled=True),
    "x-transformers compiled": lambda: x_transformers(recipe()),
    "matmul": matmul,
}


def main() -> None:
    runtime.start()  # the same allocator settings for everyone
    work = CONTESTANTS[sys.argv[1]]()
    work(10)
    print("ready", flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        work(int(line))
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
