"""Chunked and recurrent against exact attention at length 4096, forward and backward: time, memory and agreement."""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from experiments.benchmarks.record import Table
from transformer.core import runtime
from transformer.functional.attention import attention
from transformer.functional.biases import Bias, LinearDistance, alibi_slopes
from transformer.functional.chunked_attention import chunked_attention
from transformer.functional.linear_attention import recurrent_attention
from transformer.functional.masks import Causal, Full, Mask, Padding, Prefix, Segment, Tokens, Window
from transformer.functional.normalizers import Decay, Normalized, elu_features

LENGTH, HEADS, HEAD_DIM = 4096, 4, 64


@dataclass(frozen=True)
class Case:
    """Two functions of (q, k, v, tokens, mask, bias) that should agree."""

    exact: Callable
    blocks: Callable
    mask: Mask
    bias: Bias | None = None


def softmax(function: Callable) -> Callable:
    return lambda q, k, v, tokens, mask, bias: function(q, k, v, queries=tokens, keys=tokens, mask=mask, bias=bias).out


def linear(weigh: Any) -> tuple[Callable, Callable]:
    """Exact and recurrent attention, on features that are not negative."""

    def exact(q, k, v, tokens, mask, bias):
        q, k = elu_features(q), elu_features(k)
        return attention(q, k, v, queries=tokens, keys=tokens, mask=mask, weigh=weigh).out

    def recurrent(q, k, v, tokens, mask, bias):
        return recurrent_attention(elu_features(q), elu_features(k), v, tokens=tokens, mask=mask, weigh=weigh).out

    return exact, recurrent


def cases() -> dict[str, Case]:
    masks = {
        "full": Full(),
        "causal": Causal(),
        "causal & window(512)": Causal() & Window(512),
        "causal | prefix(1000)": Causal() | Prefix(1000),
        "causal & segment & padding": Causal() & Segment() & Padding(),
    }
    alibi = LinearDistance(jnp.asarray(alibi_slopes(HEADS), jnp.float32))
    chunked = (softmax(attention), softmax(chunked_attention))
    found = {}
    for name, mask in masks.items():
        found |= {f"chunked, {name}": Case(*chunked, mask), f"chunked, {name} + alibi": Case(*chunked, mask, alibi)}
    retention = Decay(1 - 2.0 ** (-5 - jnp.arange(HEADS, dtype=jnp.float32)))
    for kind, weigh in (("linear", Normalized()), ("retention", retention)):
        for name in ("causal", "causal & segment & padding"):
            found[f"recurrent, {kind}, {name}"] = Case(*linear(weigh), masks[name])
    return found


def measure(arguments: argparse.Namespace) -> dict[str, Table]:
    runtime.start()
    shape = (1, LENGTH, HEADS, HEAD_DIM)
    q, k, v, weights = (jax.random.normal(key, shape) for key in jax.random.split(jax.random.key(0), 4))
    positions = jnp.arange(LENGTH)
    tokens = Tokens.at(positions, segments=positions[None] // 1000, valid=positions[None] < LENGTH - 100)
    rows = []
    for name, case in cases().items():
        programs = [_gradient(f, tokens, case.mask) for f in (case.exact, case.blocks)]
        compiled = [jax.jit(p).lower(q, k, v, case.bias, weights).compile() for p in programs]
        memory = [_temporary_megabytes(c) for c in compiled]
        results = [jax.block_until_ready(c(q, k, v, case.bias, weights)) for c in compiled]
        seconds: list[list[float]] = [[], []]
        for _ in range(arguments.rounds):
            for c, times in zip(compiled, seconds, strict=True):
                start = time.perf_counter()
                jax.block_until_ready(c(q, k, v, case.bias, weights))
                times.append(time.perf_counter() - start)
        speedup = [a / b for a, b in zip(*seconds, strict=True)]
        exact, blocks = ([1e3 * t for t in times] for times in seconds)
        megabytes = f"{memory[0]:.0f} / {memory[1]:.0f}"
        rows.append((name, exact, blocks, speedup, megabytes, f"{_difference(*results):.1e}"))
    columns = ("", "exact, ms", "in blocks, ms", "exact / blocks", "memory, MB", "largest relative difference")
    title = f"Attention of {LENGTH} tokens, {HEADS} heads of {HEAD_DIM}, value and gradients"
    return {"attention": Table(title, columns, (0, 0, 0, 1, 0, 0), tuple(rows))}


def _gradient(function, tokens, mask):
    def loss(q, k, v, bias, weights):
        out = function(q, k, v, tokens, mask, bias)
        return (out * weights).sum(), out

    return jax.grad(loss, argnums=(0, 1, 2, 3), has_aux=True)


def _temporary_megabytes(compiled) -> float:
    return compiled.memory_analysis().temp_size_in_bytes / 1e6


def _difference(exact, chunked) -> float:
    """The largest difference of any value or gradient, relative to the largest of its array."""
    differences = jax.tree.map(lambda a, b: jnp.abs(a - b).max() / jnp.abs(a).max(), exact, chunked)
    return max(float(d) for d in jax.tree.leaves(differences))
