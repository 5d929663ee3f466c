"""What meshes make of a model on eight simulated devices, as JSON; run by test_sharding.py."""

import functools
import json
import re
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer.feed_forwards.experts import TopKExperts
from transformer.mixers.attention.backends import Chunked, Ring
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.models.stack import Scanned
from transformer.objectives.chunked import ChunkedNextToken
from transformer.objectives.objective import NextToken
from transformer.objectives.pairs import SequenceToSequence
from transformer.positions.absolute import Learned
from transformer.positions.relative import ALiBi
from transformer.positions.rotary import RoPE
from transformer.runs.config import RunConfig, grid
from transformer.runs.mesh import MeshConfig
from transformer.runs.optimizer import OptimizerConfig
from transformer.runs.rules import SGD
from transformer.testing.subject import small
from transformer.training.program import make_program

jax.config.update("jax_num_cpu_devices", 8)

SIZES: dict[str, Any] = {"num_layers": 1, "mixer.num_kv_heads": None, "feed_forward.d_ff": 64, "vocab_size": 32}
MODELS = {
    "decoder": small(**SIZES),
    "encoder-decoder": small(EncoderDecoderConfig, **SIZES, source_vocab_size=32),
    "experts": small(**SIZES, feed_forward=TopKExperts()),
    "recomputed": small(**SIZES | {"num_layers": 2}, layers=Scanned(remat="full")),
    "segments": small(**SIZES, position=RoPE(), memory_length=8),
    "dropout": small(**SIZES, dropout=0.3),
    "bfloat16": small(**SIZES, dtype="bfloat16"),
    "chunked": small(**SIZES, **{"mixer.backend": Chunked(block=2), "position": ALiBi()}),
    "ring": small(**SIZES, **{"mixer.backend": Ring(block=2), "position": ALiBi()}),
    "experts in pieces": small(**SIZES, feed_forward=TopKExperts()),
    "uneven": small(**SIZES, position=Learned()),
}
MESHES = {
    "data": MeshConfig(replica=1, data=8),
    "data in pieces": MeshConfig(replica=1, data=4),
    "replicas in pieces": MeshConfig(replica=2, data=4),
    "fully sharded": MeshConfig(replica=1, data=8, fully_sharded=True),
    "rounded": MeshConfig(replica=1, data=8, fully_sharded=True, rounded=True),
    "tensor": MeshConfig(replica=1, data=2, model=4),
    "context": MeshConfig(replica=1, data=2, context=4),
    "all with context": MeshConfig(replica=2, context=2, model=2, fully_sharded=True),
    "all": MeshConfig(replica=2, data=2, model=2, fully_sharded=True),
    "replicas": MeshConfig(replica=8),
}


OBJECTIVES = {"encoder-decoder": SequenceToSequence(), "chunked": ChunkedNextToken(chunk=3)}


def run_of(name: str) -> RunConfig:
    return RunConfig(
        model=MODELS[name],
        objective=OBJECTIVES.get(name, NextToken()),
        optimizer=OptimizerConfig(rule=SGD(), learning_rate=0.5, warmup_steps=0),
        batch_size=8,
        steps=2,
        accumulation=2 if name in ("recomputed", "segments", "dropout", "experts in pieces") else 1,
    )


def batches(name: str, replicas: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)

    def tokens(length):
        return rng.integers(0, 32, (replicas, 2, 8, length)).astype(np.int32)

    if isinstance(MODELS[name], EncoderDecoderConfig):
        return {"source": tokens(8), "source_valid": np.ones((replicas, 2, 8, 8), bool), "target": tokens(9)}
    return {"tokens": tokens(8 if name == "uneven" else 9)}


def bytes_on_a_device(params) -> int:
    return sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(params))


def bytes_of_matrices(params) -> int:
    """Of what the tables cut."""
    names = {jax.tree_util.keystr(path): leaf.nbytes for path, leaf in jax.tree.leaves_with_path(params)}
    whole = ("norm", "position", "router")
    return sum(size for name, size in names.items() if not any(word in name for word in whole))


@functools.cache
def on_one_device(name: str, replicas: int):
    """The state before the first step, the state and losses after two."""
    program = make_program(run_of(name), grid(range(replicas)), MeshConfig(replica=1, data=1))
    initial = program.init()
    start = jax.tree.map(jnp.copy, initial)
    return start, *program.train(initial, batches(name, replicas))


def difference(left, right) -> float:
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs)


def compared(name: str, mesh: MeshConfig, replicas: int) -> dict[str, Any]:
    """Two steps from the same state on the mesh and on one device."""
    start, expected, expected_metrics = on_one_device(name, replicas)
    program = make_program(run_of(name), grid(range(replicas)), mesh)
    data = batches(name, replicas)
    compiled = program.train.lower(program.abstract_state, data).compile()
    there = jax.device_put(
        jax.tree.map(jnp.copy, start), jax.tree.map(lambda leaf: leaf.sharding, program.abstract_state)
    )
    sizes = [bytes_on_a_device(tree) for tree in (there.params, there.opt_state)]
    state, metrics = compiled(there, program.put(data))
    collectives = r"\b(all-[a-z]+|reduce-scatter|collective-permute)\b"
    return {
        "loss": difference(metrics["loss"], expected_metrics["loss"]),
        "params": difference(state.params, expected.params),
        "bytes": sizes,
        "whole": bytes_on_a_device(start.params),
        "matrices": bytes_of_matrices(start.params),
        "collectives": sorted(set(re.findall(collectives, compiled.as_text()))),
    }


def main() -> None:
    name, *meshes = sys.argv[1:]
    report = {mesh: compared(name, MESHES[mesh], 8 if mesh == "replicas" else 2) for mesh in meshes}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
