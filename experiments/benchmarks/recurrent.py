"""Recurrences in chunks against their steps and against softmax attention; layers against those of `transformers`."""

import argparse
import functools
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from experiments.benchmarks.record import Table
from transformer import pretrained
from transformer.analysis.counts import cache_bytes
from transformer.core import runtime
from transformer.core.modules import split
from transformer.functional.chunked_attention import chunked_attention
from transformer.functional.linear_recurrences import Erase, Update, linear_recurrence, linear_step
from transformer.functional.masks import Causal, Tokens
from transformer.inference.generate import generate
from transformer.mixers.attention.attention import Attention
from transformer.mixers.mixer import Context, Mixer
from transformer.mixers.recurrent.delta import GatedDeltaNet
from transformer.mixers.recurrent.mamba2 import Mamba2
from transformer.models.build import pure_model
from transformer.models.config import ModelConfig

HEADS, SIZE = 4, 64
LENGTHS = (1024, 4096)
LAYER_LENGTH, WIDTH = 1024, 256
CONTEXTS, NEW = (128, 8192), 64


def updates(length: int) -> dict[str, Update]:
    """Updates of several mixers, with normal queries and values, and keys of length 1."""
    rng = np.random.default_rng(0)
    shape = (1, length, HEADS, SIZE)
    q, k, v, other, features = (jnp.asarray(rng.normal(size=shape), jnp.float32) for _ in range(5))
    k, other = (x / jnp.linalg.norm(x, axis=-1, keepdims=True) for x in (k, other))
    rate = jax.nn.sigmoid(jnp.asarray(rng.normal(size=shape[:3]), jnp.float32))
    of_features = -jnp.exp(features - 2)
    of_heads, slow = of_features[..., :1], jnp.maximum(of_features, -0.6)
    return {
        "Mamba-2": Update(q, k, v, of_heads),
        "GLA": Update(q, k, v, of_features),
        "DeltaNet": Update(q, k, v, None, Erase(rate)),
        "Gated DeltaNet": Update(q, k, v, of_heads, Erase(rate)),
        "KDA": Update(q, k, v, of_features, Erase(rate)),
        "RWKV-7": Update(q, k, v, slow, Erase(jnp.ones_like(rate), other * jnp.exp(-slow), other * rate[..., None])),
    }


def steps(update: Update, state: jax.Array) -> jax.Array:
    turns = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), update)
    return jnp.moveaxis(lax.scan(linear_step, state, turns)[1], 0, 1)


def in_chunks(update: Update, state: jax.Array) -> jax.Array:
    return linear_recurrence(update, state)[0]


def softmax(update: Update, state: jax.Array) -> jax.Array:
    tokens = Tokens.at(jnp.arange(update.q_BLHK.shape[1]))
    q, k, v = update[:3]
    return chunked_attention(q, k, v, queries=tokens, keys=tokens, mask=Causal()).out


def in_turn(programs: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each program in each round, right after a call of it that is not timed."""
    found: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, program in programs.items():
            program()
            start = time.perf_counter()
            program()
            found[name].append(1e3 * (time.perf_counter() - start))
    return found


def kernels(rounds: int) -> Table:
    rows, state = [], jnp.zeros((1, HEADS, SIZE, SIZE))
    for length in LENGTHS:
        for name, update in updates(length).items():
            ways = {"steps": steps, "chunks": in_chunks, "softmax": softmax}
            compiled = {}
            for way, function in ways.items():
                loss = jax.grad(lambda update, function=function: jnp.sin(function(update, state)).sum())
                compiled[way] = jax.jit(loss).lower(update).compile()
            calls = {
                way: functools.partial(lambda call, u: jax.block_until_ready(call(u)), call, update)
                for way, call in compiled.items()
            }
            ms = in_turn(calls, rounds)
            speedups = ([a / b for a, b in zip(ms[way], ms["chunks"], strict=True)] for way in ("steps", "softmax"))
            megabytes = (compiled[way].memory_analysis().temp_size_in_bytes / 1e6 for way in ways)
            memory = " / ".join(f"{m:.0f}" for m in megabytes)
            rows.append((f"{name}, {length:,} tokens", ms["chunks"], *speedups, memory))
    columns = ("", "in chunks, ms", "steps / chunks", "softmax / chunks", "memory, MB: steps / chunks / softmax")
    title = f"Recurrences of {HEADS} heads of {SIZE} x {SIZE}, value and gradients, softmax attention in blocks beside"
    return Table(title, columns, (0, 1, 1, 2, 0), tuple(rows))


def peers() -> dict[str, tuple[Mixer, Callable[[], Any]]]:
    """Our mixer, and what makes the same layer of `transformers`, which falls back to torch on a CPU."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import Mamba2Config, Qwen3NextConfig
        from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer
        from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 1}
    mamba = Mamba2Config(**sizes, num_heads=8, head_dim=64, state_size=64, n_groups=1, chunk_size=64)
    heads = {f"linear_num_{name}_heads": HEADS for name in ("key", "value")}
    delta = Qwen3NextConfig(
        **sizes, **heads, linear_key_head_dim=64, linear_value_head_dim=64, layer_types=["linear_attention"]
    )
    ours = Mamba2(num_heads=8, num_key_heads=1, key_dim=64, value_dim=64)
    return {
        "Mamba-2": (ours, lambda: Mamba2Mixer(mamba, 0)),
        "Gated DeltaNet": (GatedDeltaNet(num_heads=HEADS), lambda: Qwen3NextGatedDeltaNet(delta, 0)),
    }


def layers(rounds: int) -> Table:
    import torch

    rows = []
    model = ModelConfig(vocab_size=8, d_model=WIDTH, num_layers=1, position=None, max_length=LAYER_LENGTH)
    x_BLD = np.random.default_rng(0).normal(size=(1, LAYER_LENGTH, WIDTH)).astype(np.float32)
    tokens = Tokens.at(jnp.arange(LAYER_LENGTH))
    for name, (mixer, make) in peers().items():
        params, apply = split(mixer.build(model, key=jax.random.key(0)))
        gradient = jax.jit(jax.grad(lambda p, x, apply=apply: jnp.sin(apply(p, x, context=Context(tokens))[0]).sum()))
        theirs, x = make().train(), torch.tensor(x_BLD)

        def torch_gradient(theirs=theirs, x=x):
            theirs.zero_grad()
            torch.sin(theirs(x)).sum().backward()

        calls = {
            "ours": functools.partial(lambda g, p: jax.block_until_ready(g(p, x_BLD)), gradient, params),
            "theirs": torch_gradient,
        }
        ms = in_turn(calls, rounds)
        rows.append((f"{name}, a layer, {LAYER_LENGTH:,} tokens, value and gradients", ms["ours"], ms["theirs"]))
    for name, (model_class, theirs) in models().items():
        ms = in_turn(continued(model_class(theirs).eval()), rounds)
        rows.append((f"{name}, four layers, {NEW} tokens after 128", ms["ours"], ms["theirs"]))
    columns = ("", "here, ms", "transformers, ms", "transformers / here")
    title = f"Width {WIDTH}, against `transformers` in torch"
    ratios = ([b / a for a, b in zip(*row[1:], strict=True)] for row in rows)
    return Table(title, columns, (0, 2, 2, 1), tuple((*row, own) for row, own in zip(rows, ratios, strict=True)))


def models() -> dict[str, tuple[Any, Any]]:
    """Classes of `transformers`, and configs of four recurrent layers."""
    from transformers import Mamba2Config, Mamba2ForCausalLM, Qwen3NextConfig, Qwen3NextForCausalLM

    kinds = ["linear_attention"] * 3 + ["full_attention"]
    sizes = {"vocab_size": 256, "hidden_size": WIDTH, "num_hidden_layers": 4}
    ids = {f"{kind}_token_id": None for kind in ("bos", "eos", "pad")}
    heads = {f"linear_num_{name}_heads": HEADS for name in ("key", "value")}
    delta = {"linear_key_head_dim": 64, "linear_value_head_dim": 64, "num_experts": 0, "mlp_only_layers": [0, 1, 2, 3]}
    attention = {"num_attention_heads": HEADS, "num_key_value_heads": HEADS, "head_dim": 64}
    mamba = Mamba2Config(**sizes, **ids, num_heads=8, head_dim=64, state_size=64, n_groups=1)
    hybrid = Qwen3NextConfig(**sizes, **ids, **heads, **delta, **attention, intermediate_size=512, layer_types=kinds)
    return {"Mamba-2": (Mamba2ForCausalLM, mamba), "Qwen3-Next": (Qwen3NextForCausalLM, hybrid)}


def continued(theirs: Any) -> dict[str, Callable[[], Any]]:
    """`NEW` tokens after 128 others with the same parameters, here and there."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        config, params = pretrained.load(folder)
    _, apply = pure_model(config)
    tokens = np.random.default_rng(0).integers(0, 256, (1, 128))
    ours = jax.jit(lambda p, t: generate(apply, p, t, num_tokens=NEW).tokens_BT)
    settings = {"max_new_tokens": NEW, "do_sample": False, "pad_token_id": 0}
    prompt, mask = torch.tensor(tokens), torch.ones(tokens.shape, dtype=torch.long)
    return {
        "ours": lambda: jax.block_until_ready(ours(params, jnp.asarray(tokens, jnp.int32))),
        "theirs": lambda: theirs.generate(prompt, attention_mask=mask, **settings),
    }


def decoding(rounds: int) -> Table:
    """One token after a context, and bytes of the cache."""
    rows = []
    for name, mixer in {"softmax": Attention(), "Gated DeltaNet": GatedDeltaNet(), "Mamba-2": Mamba2()}.items():
        config = ModelConfig(vocab_size=256, d_model=WIDTH, num_layers=4, mixer=mixer, position=None, max_length=8192)
        params, apply = pure_model(config)
        params = jax.tree.map(lambda spec: 0.02 * jnp.ones(spec.shape, spec.dtype), params)
        calls, sizes = {}, []
        for context in CONTEXTS:
            cache = apply(params, 1, context, method="start")
            step = jax.jit(lambda p, t, c, apply=apply: apply(p, t, c, method="extend"))
            token = jnp.zeros((1, 1), jnp.int32)

            def decode(step=step, cache=cache, token=token, params=params):
                state = cache
                for _ in range(32):
                    logits, state = step(params, token, state)
                jax.block_until_ready(logits)

            calls[f"{context}"] = decode
            sizes.append(cache_bytes(config, context) / 1e3)
        ms = {context: [t / 32 for t in times] for context, times in in_turn(calls, rounds).items()}
        rows.append((name, *ms.values(), " / ".join(f"{size:,.0f}" for size in sizes)))
    names = tuple(f"cache of {context:,} tokens, ms a token" for context in CONTEXTS)
    columns = ("", *names, "cache, kB")
    title = f"Decoding one token, 4 layers of width {WIDTH}"
    return Table(title, columns, (0, 2, 2, 0), tuple(rows))


def measure(arguments: argparse.Namespace) -> dict[str, Table]:
    runtime.start()
    rounds = arguments.rounds
    return {
        "recurrent": kernels(rounds),
        "recurrent, layers": layers(rounds),
        "recurrent, decoding": decoding(rounds),
    }
