"""What each mesh makes of each model on eight simulated devices, as JSON; run by test_sharding.py."""

import json
import os
import re
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"

import jax
import numpy as np

from transformer.config.architectures import EncoderDecoderConfig
from transformer.config.feed_forwards import TopKExperts
from transformer.config.implementations import Scanned
from transformer.config.mesh import MeshConfig
from transformer.config.model import ModelConfig
from transformer.config.objectives import NextToken, SequenceToSequence
from transformer.config.rules import SGD
from transformer.config.run import OptimizerConfig, RunConfig, grid
from transformer.testing.subject import small
from transformer.training.program import make_program

SIZES = {"num_kv_heads": None, "d_ff": 64, "vocab_size": 32}
MODELS = {
    "decoder": small(**SIZES),
    "encoder-decoder": small(EncoderDecoderConfig, **SIZES, source_vocab_size=32),
    "experts": small(**SIZES, feed_forward=TopKExperts()),
    "recomputed": small(**SIZES, layers=Scanned(remat="full")),
}
MESHES = {
    "data": MeshConfig(replica=1, data=8),
    "fully sharded": MeshConfig(replica=1, data=8, fully_sharded=True),
    "tensor": MeshConfig(replica=1, data=2, model=4),
    "all": MeshConfig(replica=2, data=2, model=2, fully_sharded=True),
    "replicas": MeshConfig(replica=8),
}
ONE = MeshConfig(replica=1, data=1)


def run_of(name: str, model: ModelConfig) -> RunConfig:
    return RunConfig(
        model=model,
        objective=SequenceToSequence() if isinstance(model, EncoderDecoderConfig) else NextToken(),
        optimizer=OptimizerConfig(rule=SGD(), learning_rate=0.5, warmup_steps=0),
        batch_size=8,
        steps=2,
        accumulation=2 if name == "recomputed" else 1,
    )


def batches(model: ModelConfig, replicas: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)

    def tokens(length):
        return rng.integers(0, 32, (replicas, 2, 8, length)).astype(np.int32)

    if isinstance(model, EncoderDecoderConfig):
        return {"source": tokens(8), "source_valid": np.ones((replicas, 2, 8, 8), bool), "target": tokens(9)}
    return {"tokens": tokens(9)}


def bytes_on_a_device(tree) -> int:
    return sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(tree))


def trained(run: RunConfig, mesh: MeshConfig, replicas: int):
    """State and losses after two steps, and the text of the program."""
    program = make_program(run, grid(range(replicas)), mesh)
    data = batches(run.model, replicas)
    text = program.train.lower(program.abstract_state, data).compile().as_text()
    return *program.train(program.init(), program.put(data)), text


def difference(left, right) -> float:
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs)


def main() -> None:
    report = {}
    for name, wanted in json.loads(sys.argv[1]):
        run, replicas = run_of(name, MODELS[name]), 8 if wanted == "replicas" else 2
        state, metrics, text = trained(run, MESHES[wanted], replicas)
        expected, expected_metrics, _ = trained(run, ONE, replicas)
        report[f"{name}, {wanted}"] = {
            "loss": difference(metrics["loss"], expected_metrics["loss"]),
            "params": difference(state.params, expected.params),
            "bytes": [bytes_on_a_device(tree) for tree in (state.params, state.opt_state)],
            "whole": [bytes_on_a_device(tree) for tree in (expected.params, expected.opt_state)],
            "collectives": sorted(set(re.findall(r"\b(all-[a-z]+|reduce-scatter|collective-permute)\b", text))),
        }
        print(name, wanted, file=sys.stderr)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
