"""Train a decoder-only language model on a text and let it write.

Reference: nanoGPT's character model for a CPU (`nanogpt-cpu`, the default preset) on tinyshakespeare:
1.88 nats on its own 20 batches, 1.895 on 400.

    python -m experiments.language_model nanogpt-cpu --data.path input.txt --workdir results/shakespeare
    python -m experiments.language_model tiny --model.norm rmsnorm --model.position 'rope(base=500000)'

Exit codes: 0 done, 2 a wrong choice, 75 interrupted and saved (the same command with --resume goes on).
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from experiments import cli
from transformer import runtime
from transformer.analysis.counts import parameter_count, train_flops_per_token
from transformer.config.presets import PRESETS
from transformer.config.run import RunConfig, grid
from transformer.config.variant import ConfigError
from transformer.data.corpus import Corpus, load_corpus, with_vocabulary
from transformer.data.ngram import ngram_loss, usual_order
from transformer.inference.sampling import sample
from transformer.models import pure
from transformer.models.language_model import LanguageModel
from transformer.training.checkpoint import write_durably
from transformer.training.loop import Outcome, train

PROMPT_TOKENS = 8


@dataclass(frozen=True, kw_only=True)
class Command(RunConfig):
    workdir: Path = Path("results/language_model")
    """Folder of the run."""
    seed: int = 0
    """First seed."""
    replicas: int = 1
    """Seeds per learning rate, all in one compiled program."""
    learning_rates: tuple[float, ...] = ()
    """Peak learning rates, each with every seed; none: optimizer.learning-rate."""
    resume: bool = False
    """Go on with the run in workdir where there is one."""
    overwrite: bool = False
    """Delete the run in workdir."""
    prompt: str | None = None
    """What the sample continues; none: the first tokens of the validation part."""
    sample_tokens: int = 300
    """Length of the sample."""
    temperature: float = 0.8
    """Of the sample."""

    def __post_init__(self):
        super().__post_init__()
        if self.replicas < 1:
            raise ConfigError(f"replicas: {self.replicas} is not a positive number")
        if self.resume and self.overwrite:
            raise ConfigError("resume: give either --resume or --overwrite")
        if self.temperature <= 0 or self.sample_tokens < 1 or self.prompt == "":
            raise ConfigError("sample: temperature and sample-tokens must be positive, and prompt not empty")


def main() -> None:
    command = cli.parse(
        Command, {name: cli.extend(p, Command) for name, p in PRESETS.items()}, description=__doc__ or ""
    )
    corpus = load_corpus(command.data)
    config = with_vocabulary(cli.fields_of(command, RunConfig), corpus)
    prompt = corpus.validation[:PROMPT_TOKENS] if command.prompt is None else corpus.tokenizer.encode(command.prompt)
    runtime.start()
    replicas = grid(range(command.seed, command.seed + command.replicas), command.learning_rates)
    when_not_empty = "resume" if command.resume else "overwrite" if command.overwrite else "refuse"
    outcome = train(config, replicas, corpus, command.workdir, when_not_empty=when_not_empty)
    text = write_sample(config, outcome, corpus, prompt, command)
    result = summarize(config, replicas, corpus, outcome)
    from transformer.study.figures import plot_run  # loaded late: matplotlib takes longer than the first step

    write_durably(command.workdir / "result.json", json.dumps(result, indent=1))
    plot_run(command.workdir, result)
    show(result, text, command.workdir)


def write_sample(config: RunConfig, outcome: Outcome, corpus: Corpus, prompt: np.ndarray, command: Command) -> str:
    """The prompt and its continuation by the best replica."""
    losses = np.nan_to_num(outcome.validation_loss, nan=np.inf)
    params = jax.tree.map(lambda a: a[int(losses.argmin())], jax.device_get(outcome.params))
    apply = pure.split(pure.abstract(lambda key: LanguageModel(config.model, key=key)))[1]
    tokens = sample(
        apply,
        params,
        prompt[None],
        jax.random.key(command.seed),
        num_tokens=command.sample_tokens,
        window=config.model.max_length,
        temperature=command.temperature,
    )
    text = corpus.tokenizer.decode(np.concatenate([prompt, tokens[0]]))
    write_durably(command.workdir / "sample.txt", text)
    return text


def summarize(config: RunConfig, replicas, corpus: Corpus, outcome: Outcome) -> dict:
    """What result.json holds; losses are nats per token over the whole validation split."""
    from transformer.study.statistics import mean_interval  # loaded late: scipy

    healthy = outcome.validation_loss[np.isfinite(outcome.validation_loss)]
    order = usual_order(corpus.tokenizer.vocab_size)
    return {
        "validation_loss": float(healthy.mean()) if len(healthy) else None,
        "validation_loss_interval": list(mean_interval(healthy)) if len(healthy) > 1 else None,
        "ngram_loss": ngram_loss(corpus.train, corpus.validation, corpus.tokenizer.vocab_size, order),
        "ngram_order": order,
        "parameters": parameter_count(config.model),
        "flops_per_token": train_flops_per_token(config.model),
        "steps": outcome.steps,
        "seconds": outcome.seconds,
        "tokens_per_second": outcome.tokens_per_second if np.isfinite(outcome.tokens_per_second) else None,
        "replicas": [
            {
                **dataclasses.asdict(replica.filled(config.optimizer)),
                "validation_loss": float(loss) if np.isfinite(loss) else None,
                "diverged_at": None if at < 0 else int(at),
            }
            for replica, loss, at in zip(replicas, outcome.validation_loss, outcome.diverged_at, strict=True)
        ],
        "loss_by_position": np.nanmean(outcome.loss_by_position, 0).tolist() if len(healthy) else None,
        "data": {"source": corpus.source, "fingerprint": corpus.fingerprint},
    }


def show(result: dict, sample: str, workdir: Path) -> None:
    """The result as a table, and the sample."""
    table = Table(
        "", "validation loss (nats per token)", title=f"{result['parameters']:,} parameters, {result['steps']} steps"
    )
    for r in result["replicas"]:
        loss = f"diverged at step {r['diverged_at']}" if r["validation_loss"] is None else f"{r['validation_loss']:.4f}"
        table.add_row(f"seed {r['seed']}, learning rate {r['learning_rate']:g}", loss)
    if result["validation_loss_interval"]:
        low, high = result["validation_loss_interval"]
        table.add_row("mean, 95 % interval", f"{result['validation_loss']:.4f}  [{low:.4f}, {high:.4f}]")
    table.add_row(f"{result['ngram_order']}-gram context, Witten-Bell", f"{result['ngram_loss']:.4f}")
    console = Console()
    console.print(table)
    console.print(sample, markup=False, highlight=False)
    console.print(f"\n{result['seconds']:.0f} s; everything is in {workdir}", highlight=False)


if __name__ == "__main__":
    cli.main(main)
