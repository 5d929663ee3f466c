"""Loss parity with a plain PyTorch GPT on the nanogpt-cpu recipe, over seeds (extra `parity`).

Both have the same distribution of initial values and, seed by seed, the same batches; both are evaluated on the
whole validation split.

    python -m experiments.benchmarks.parity --data input.txt [--seeds 8] [--torch-seeds 4]
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from scipy import stats
from torch.nn import functional as F  # noqa: N812

from experiments.benchmarks.torch_gpt import GPT, adamw, train_step
from transformer.core import runtime
from transformer.data.corpus import Corpus, load_corpus, whole_split
from transformer.data.ngram import ngram_loss, usual_order
from transformer.runs.config import RunConfig, grid
from transformer.runs.presets import PRESETS
from transformer.study.statistics import mean_interval
from transformer.training.checkpoint import write_durably
from transformer.training.loop import train


def torch_loss(config: RunConfig, corpus: Corpus, seed: int) -> float:
    """Validation loss of the PyTorch GPT after training with a seed."""
    torch.manual_seed(seed)
    model = GPT(config)
    optimizer = adamw(model, config)
    batches = corpus.train_batches(config, seed)
    for step in range(config.steps):
        train_step(model, model, optimizer, config, torch.from_numpy(batches[step]["tokens"]).long(), step)
    split = whole_split(corpus.validation, config.model.max_length, 64)
    total = 0.0
    with torch.no_grad():
        for tokens, weights in zip(split["tokens"], split["weights"], strict=True):
            tokens = torch.from_numpy(tokens).long()
            losses = F.cross_entropy(model(tokens[:, :-1]).transpose(1, 2), tokens[:, 1:], reduction="none")
            total += float((losses.double() * torch.from_numpy(weights)).sum())
    return total / float(split["weights"].sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--torch-seeds", type=int, default=4)
    parser.add_argument("--workdir", type=Path, default=Path("results/parity"))
    arguments = parser.parse_args()
    runtime.start()
    config = PRESETS["nanogpt-cpu"].replace({"data.path": arguments.data})
    corpus = load_corpus(config.data)
    config = corpus.complete(config)
    replicas = grid(range(arguments.seeds))
    outcome = train(config, replicas, corpus, arguments.workdir / "ours", when_not_empty="resume")
    ours = outcome.validation_loss
    theirs = np.array([torch_loss(config, corpus, seed) for seed in range(arguments.torch_seeds)])
    interval = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval()
    order = usual_order(corpus.tokenizer.vocab_size)
    result = {
        "ours": ours.tolist(),
        "ours_interval": mean_interval(ours),
        "torch": theirs.tolist(),
        "torch_interval": mean_interval(theirs),
        "difference": float(ours.mean() - theirs.mean()),
        "difference_interval": [float(interval.low), float(interval.high)],
        "ngram": ngram_loss(corpus.train, corpus.validation, corpus.tokenizer.vocab_size, order),
        "ours_seconds": outcome.seconds,
    }
    write_durably(arguments.workdir / "parity.json", json.dumps(result, indent=1))
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
