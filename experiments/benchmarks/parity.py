"""Loss parity with a plain PyTorch GPT on the nanogpt-cpu recipe, over seeds (extra `parity`).

Both have the same distribution of initial values and, seed by seed, the same batches; both are evaluated on the
whole validation split. Ours is trained with products of float32 and of bfloat16, and evaluated with kernels of 8 bits.

    python -m experiments.benchmarks.parity --data input.txt [--seeds 8] [--torch-seeds 4]
"""

import argparse
from pathlib import Path

import jax
import numpy as np
import torch
from scipy import stats
from torch.nn import functional as F  # noqa: N812

from experiments.benchmarks.record import Table, keep, versions
from experiments.benchmarks.torch_gpt import GPT, adamw, next_token_loss, train_step
from transformer.core import runtime
from transformer.core.modules import Params
from transformer.data.corpus import Corpus, load_corpus, whole_split
from transformer.data.ngram import ngram_loss, usual_order
from transformer.inference.quantize import quantize
from transformer.runs.config import RunConfig, grid
from transformer.runs.presets import PRESETS
from transformer.study.statistics import mean_interval
from transformer.training.loop import train
from transformer.training.trained import TrainedRun


def torch_loss(config: RunConfig, corpus: Corpus, seed: int) -> float:
    """Validation loss of the PyTorch GPT after training with a seed."""
    torch.manual_seed(seed)
    model = GPT(config)
    optimizer = adamw(model, config)
    batches = corpus.train_batches(config, seed)
    loss = next_token_loss(model)
    for step in range(config.steps):
        train_step(model, loss, optimizer, config, torch.from_numpy(batches[step]["tokens"]).long(), step)
    split = whole_split(corpus.validation, config.model.max_length, 64)
    total = 0.0
    with torch.no_grad():
        for tokens, weights in zip(split["tokens"], split["weights"], strict=True):
            tokens = torch.from_numpy(tokens).long()
            losses = F.cross_entropy(model(tokens[:, :-1]).transpose(1, 2), tokens[:, 1:], reduction="none")
            total += float((losses.double() * torch.from_numpy(weights)).sum())
    return total / float(split["weights"].sum())


def losses_of_integers(trained: TrainedRun, corpus: Corpus) -> np.ndarray:
    """Validation loss of each replica with kernels of 8 bits."""
    config, apply = trained.config, trained.apply
    split = whole_split(corpus.validation, config.model.max_length, 64)
    sums_of = jax.jit(lambda params, batch: config.objective.plain()(apply, params, batch, None))

    def loss(params: Params) -> float:
        batches = zip(split["tokens"], split["weights"], strict=True)
        sums = [sums_of(params, {"tokens": tokens, "weights": weights}) for tokens, weights in batches]
        return float(sum(s.loss.sum() for s in sums) / sum(s.weight.sum() for s in sums))

    return np.array([loss(quantize(trained.params(replica))) for replica in range(len(trained.replicas))])


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
    runs = {
        precision: train(
            config.replace(matmul_precision=precision),
            replicas,
            corpus,
            arguments.workdir / precision,
            when_not_empty="resume",
        )
        for precision in ("float32", "bfloat16")
    }
    losses = {f"ours, products of {precision}": run.validation_loss for precision, run in runs.items()}
    losses["ours, products of float32, kernels of 8 bits"] = losses_of_integers(runs["float32"], corpus)
    losses["PyTorch GPT"] = np.array([torch_loss(config, corpus, seed) for seed in range(arguments.torch_seeds)])
    baseline = runs["float32"].validation_loss
    rows = [_row(name, values, baseline, paired=name.startswith("ours")) for name, values in losses.items()]
    order = usual_order(corpus.tokenizer.vocab_size)
    ngram = ngram_loss(corpus.train, corpus.validation, corpus.tokenizer.vocab_size, order)
    rows.append((f"Witten-Bell model, {order} characters of context", "", f"{ngram:.4f}", ""))
    how = "mean over seeds and its 95 % interval, paired by seed where both are ours, else Welch's"
    columns = ("", "seeds", "validation loss, nats a character", "minus ours with products of float32")
    title = f"Loss of the recipe on {Path(arguments.data).name}, whole validation split"
    table = Table(title, columns, (0, 0, 0, 0), tuple(rows), how)
    table.show()
    keep({"parity": table}, "python -m experiments.benchmarks.parity --data input.txt", 0, versions())


def _row(name: str, values: np.ndarray, baseline: np.ndarray, *, paired: bool) -> tuple[str, ...]:
    low, high = mean_interval(values)
    if values is baseline:
        difference = ""
    else:
        welch = stats.ttest_ind(values, baseline, equal_var=False).confidence_interval()
        between = mean_interval(values - baseline) if paired else (welch.low, welch.high)
        difference = f"{values.mean() - baseline.mean():+.4f} [{between[0]:+.4f}, {between[1]:+.4f}]"
    return name, str(len(values)), f"{values.mean():.4f} ± {(high - low) / 2:.4f}", difference


if __name__ == "__main__":
    main()
