"""One process of a run of several; started by test_processes.py.

python on_two_hosts.py TEXT WORKDIR COUNT INDEX ADDRESS OPTIONS: `at_step` it sends itself the `signal` after the
evaluation; `seed` and `patience` are those of the run.
"""

import json
import os
import signal
import sys
from pathlib import Path

import jax
import numpy as np

from transformer.data.corpus import load_corpus
from transformer.mixers.attention.attention import Attention
from transformer.models.config import ModelConfig
from transformer.runs.config import Replica, RunConfig
from transformer.runs.data import TextConfig
from transformer.runs.mesh import HostsConfig, MeshConfig
from transformer.runs.optimizer import OptimizerConfig
from transformer.training import processes
from transformer.training.loop import train

CONFIG = RunConfig(
    model=ModelConfig(max_length=8, num_layers=1, d_model=16, mixer=Attention(num_heads=2), vocab_size=4),
    optimizer=OptimizerConfig(learning_rate=1e-2, warmup_steps=2),
    steps=12,
    batch_size=4,
    steps_per_dispatch=2,
    evaluate_every=4,
    checkpoint_every=4,
)


def main() -> None:
    text, workdir, count, index, address, options = sys.argv[1:]
    wanted = {"at_step": None, "signal": "SIGKILL", "seed": 0, "patience": 120} | json.loads(options)
    hosts = HostsConfig(address=address, count=int(count), index=int(index), patience=wanted["patience"])
    if int(count) == 1:
        hosts = HostsConfig()
    jax.config.update("jax_num_cpu_devices", 1)
    evaluations = []

    def observe(params):
        evaluations.append(params)
        if wanted["at_step"] == 4 * len(evaluations):
            os.kill(os.getpid(), signal.Signals[wanted["signal"]])
        return {}

    how = {"when_not_empty": "resume", "mesh": MeshConfig(data=int(count), fully_sharded=True)}
    corpus = load_corpus(TextConfig(path=text))
    replicas = [Replica(seed=wanted["seed"])]
    outcome = train(CONFIG, replicas, corpus, Path(workdir), **how, hosts=hosts, observe=observe)
    params = processes.fetch(outcome.all_params)
    if processes.is_writer():
        flat = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(params)}
        np.savez(Path(workdir) / "params.npz", **flat)


if __name__ == "__main__":
    main()
