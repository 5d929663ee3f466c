"""How large the signals of a model are before training: one that drowns another explains a result, or spoils it."""

from typing import Any

import jax
import jax.numpy as jnp

from transformer.analysis.activations import run_with_cache
from transformer.data.dataset import Dataset, first_batch
from transformer.models.build import initial_params, pure_model
from transformer.runs.config import RunConfig

DROWNS = 20.0
"""Ratio of two root mean squares from which on the smaller signal is taken to be drowned."""
FAINT = 0.02
"""Root mean square of logits below which the model begins without an opinion, and learns one slowly."""


def signals(config: RunConfig, data: Dataset) -> dict[str, float]:
    """Root mean squares on a batch of the held-out part, with initial parameters of seed 0.

    `stream` is what block 0 reads, `tokens` the part of it that differs between rows of the batch, `positions` the part
    that differs between positions and is the same for all rows; `branch` is what its first sublayer adds; `logits` is
    the answer. A number is left out where the model has no such signal, or all rows are the same.
    """
    _, apply = pure_model(config.model)
    batch = jax.tree.map(jnp.asarray, first_batch(data.validation_batches(config)))

    def answer(params, batch):
        answers = []

        def watched(params, *inputs: Any, method: str = "__call__", **how: Any):
            found = apply(params, *inputs, method=method, **how)
            if method == "states":  # whose logits the loss reads in chunks
                answers.append(apply(params, found, method="read_out"))
            elif method not in ("read_out", "patches"):
                answers.append(found)
            return found

        config.objective.plain()(watched, params, batch, None)
        return jax.tree.leaves(answers[-1])[0]

    def measure(key):
        params = initial_params(config.model, key)
        logits, found = run_with_cache(answer, params, batch)
        stream = next((a for name, a in found.items() if name.endswith("blocks.0.resid_pre")), None)
        branch = next((a for name, a in found.items() if "blocks.0." in name and name.endswith(".out")), None)
        sizes = {"logits": _rms(logits)}
        if stream is not None and stream.ndim == 3:
            of_position = stream.mean(0, keepdims=True)
            sizes |= {
                "stream": _rms(stream),
                "tokens": _rms(stream - of_position),
                "positions": _rms(of_position - of_position.mean(1, keepdims=True)),
            }
        return sizes if branch is None else sizes | {"branch": _rms(branch)}

    options = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else None
    found = jax.jit(measure, compiler_options=options)(jax.random.key(0))
    order = ("stream", "tokens", "positions", "branch", "logits")
    sizes = {name: float(found[name]) for name in order if name in found}
    return {name: size for name, size in sizes.items() if name != "tokens" or size > 0}


def doubts(sizes: dict[str, float]) -> list[str]:
    """Warnings where one signal drowns another, or where little of any reaches the logits."""
    said = []
    for small, large in (("tokens", "stream"), ("stream", "branch")):
        if small in sizes and large in sizes and sizes[large] > DROWNS * sizes[small]:
            said.append(f"before training the {large} ({sizes[large]:.2g}) drowns the {small} ({sizes[small]:.2g})")
    if sizes.get("logits", 1.0) < FAINT:
        said.append(f"before training the logits are faint ({sizes['logits']:.2g})")
    return said


def _rms(x: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.mean(jnp.square(x.astype(jnp.float32))))
