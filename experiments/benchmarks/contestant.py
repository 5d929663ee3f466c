"""One contestant of a speed comparison: a process that runs work when it is told to.

It builds, warms up, prints `ready`, then for each line with a number on standard input does that
many units of work and prints the seconds. Started by `experiments.benchmarks.interleave`.
"""

import sys
import time
from collections.abc import Callable

import numpy as np

from transformer.core import runtime
from transformer.mixers.attention.backends import Chunked, Fused
from transformer.runs.config import RunConfig, grid
from transformer.runs.presets import PRESETS

Work = Callable[[int], None]


def recipe() -> RunConfig:
    return PRESETS["nanogpt-cpu"].replace({"model.vocab_size": 65})


def of_size(d_model: int, num_layers: int, num_heads: int, length: int, batch_size: int) -> RunConfig:
    """The recipe with a larger model and its own batch, one step at a time, and scores in blocks."""
    sizes = {"d_model": d_model, "num_layers": num_layers, "max_length": length, "mixer.num_heads": num_heads}
    config = recipe().replace({f"model.{name}": size for name, size in sizes.items()})
    config = config.replace({"model.mixer.backend": Chunked(128)})
    return config.replace(batch_size=batch_size, steps_per_dispatch=1)


def gpt2() -> RunConfig:
    """The published 124M (Radford et al. 2019), as nanoGPT trains it: no biases, bfloat16 but for parameters."""
    sizes = {"num_layers": 12, "d_model": 768, "max_length": 1024, "vocab_size": 50_304, "mixer.num_heads": 12}
    model = recipe().model.replace(sizes | {"dtype": "bfloat16"})
    return recipe().replace(model=model, batch_size=12, steps_per_dispatch=5, matmul_precision=None)


SIZES: dict[str, Callable[[], RunConfig]] = {
    "recipe": recipe,
    "small": lambda: recipe().replace({"model.d_model": 64, "model.num_layers": 2}),
    "middle": lambda: of_size(384, 6, 6, 256, 4),
    "large": lambda: of_size(768, 12, 12, 512, 4),
    "gpt2": gpt2,
}
"""The recipe, d 64 x 2 layers (at which a single run cannot use two cores fully), d 384 x 6, d 768 x 12, GPT-2."""


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


def torch_gpt(config: RunConfig, compiled: bool, bfloat16: bool = False) -> Work:
    import torch

    from experiments.benchmarks.torch_gpt import GPT

    torch.manual_seed(0)
    model = GPT(config)
    return of_torch(model, model, config, compiled, bfloat16)


def x_transformers(config: RunConfig, bfloat16: bool = False) -> Work:
    import torch
    from x_transformers import Decoder, TransformerWrapper

    m = config.model
    assert m.attention is not None
    H, _, K, _ = m.attention.sizes(m)
    torch.manual_seed(0)
    layers = Decoder(dim=m.d_model, depth=m.num_layers, heads=H, attn_dim_head=K, attn_flash=True)
    model = TransformerWrapper(
        num_tokens=m.vocab_size, max_seq_len=m.max_length, attn_layers=layers, tie_embedding=True
    )
    return of_torch(model, model, config, compiled=True, bfloat16=bfloat16)


def hugging_face(config: RunConfig) -> Work:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel  # pyright: ignore

    m = config.model
    assert m.attention is not None
    torch.manual_seed(0)
    sizes = {"n_positions": m.max_length, "n_embd": m.d_model, "n_layer": m.num_layers, "n_head": m.attention.num_heads}
    dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    own = GPT2Config(vocab_size=m.vocab_size, activation_function="gelu", **sizes, **dropout, **ends)
    model = GPT2LMHeadModel(own)
    return of_torch(model, lambda tokens: model(tokens, use_cache=False).logits, config, compiled=False)


def of_torch(model, logits_of, config: RunConfig, compiled: bool, bfloat16: bool = False) -> Work:
    """Training steps of a PyTorch model, loss and gradient of which are compiled or not."""
    import torch

    from experiments.benchmarks.torch_gpt import adamw, next_token_loss, torch_device, train_step

    device = torch_device()
    model.to(device)
    optimizer = adamw(model, config)
    tokens = torch.from_numpy(random_tokens(config)).long().to(device)
    loss = next_token_loss(logits_of, bfloat16)
    loss = torch.compile(loss) if compiled else loss

    def work(steps: int) -> None:
        for step in range(steps):
            train_step(model, loss, optimizer, config, tokens, step)
        if device == "cuda":
            torch.cuda.synchronize()

    return work


def flax_nnx(config: RunConfig) -> Work:
    """A GPT of flax's own layers, trained by optax as flax's examples do, several steps a dispatch as ours."""
    import jax

    from experiments.benchmarks.nnx_gpt import make_train

    train, state = make_train(config)
    tokens = random_tokens(config, config.steps_per_dispatch)

    def work(steps: int) -> None:
        nonlocal state
        for _ in range(steps // config.steps_per_dispatch):
            state = train(state, tokens)
        jax.block_until_ready(state)

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


CONTESTANTS: dict[str, Callable[[RunConfig], Work]] = {
    "ours": lambda config: ours(config.replace(matmul_precision="float32"), 1),
    "ours, bfloat16 products": lambda config: ours(config.replace(matmul_precision="bfloat16"), 1),
    "ours, all bfloat16": lambda config: ours(config.replace({"model.dtype": "bfloat16"}), 1),
    "ours, fused": lambda config: ours(config.replace({"model.mixer.backend": Fused()}), 1),
    "ours, 24 replicas": lambda config: ours(config, 24),
    "ours, single": lambda config: ours(config, 1),
    "torch eager": lambda config: torch_gpt(config, compiled=False),
    "torch compiled": lambda config: torch_gpt(config, compiled=True),
    "torch compiled, bfloat16": lambda config: torch_gpt(config, compiled=True, bfloat16=True),
    "x-transformers compiled": x_transformers,
    "x-transformers compiled, bfloat16": lambda config: x_transformers(config, bfloat16=True),
    "Hugging Face GPT-2": hugging_face,
    "flax nnx": flax_nnx,
    "matmul": lambda _: matmul(),
}


def main() -> None:
    runtime.start()  # the same allocator settings for everyone
    name, size = sys.argv[1:]
    config = SIZES[size]()
    work = CONTESTANTS[name](config)
    work(config.steps_per_dispatch)
    work(config.steps_per_dispatch)
    print("ready", flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        work(int(line))
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
