"""Train a language model on a text and sample from it.

Reference: nanoGPT's character model for a CPU (`nanogpt-cpu`, the default preset) on tinyshakespeare:
1.88 nats on its own 20 batches, 1.895 on 400.

    python -m experiments.language_model nanogpt-cpu --data.path input.txt --workdir results/shakespeare
    python -m experiments.language_model tiny --model.norm rmsnorm --model.position 'rope(base=500000)'
    python -m experiments.language_model tiny --model.mixer.num-heads 8 --model.feed-forward.activation 'glu(gate=silu)'
    python -m experiments.language_model tiny --stride 8
    python -m experiments.language_model masked

Exit codes: 0 done, 2 a wrong choice, 75 interrupted and saved (the same command with --resume continues).
"""

from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments import cli
from experiments.command import TASKS, TEXT
from experiments.run_command import RunOptions, conclude, load, train_command
from experiments.sections import RUN
from transformer.core.errors import ConfigError
from transformer.data.corpus import Corpus
from transformer.data.tokenizers import encode_open
from transformer.inference.scoring import sliding_log_probabilities
from transformer.inference.strategies import Strategy
from transformer.objectives.tokens import MaskedToken
from transformer.runs.config import RunConfig
from transformer.runs.data import TextConfig
from transformer.runs.large_presets import LARGE_PRESETS
from transformer.runs.presets import PRESETS
from transformer.training.asked import WARM
from transformer.training.outcome import Outcome

PROMPT_TOKENS = 8


@dataclass(frozen=True, kw_only=True)
class Command(RunOptions):
    sections = RUN | {
        "data": ("data.path", "data.tokenizer", "data.validation_fraction"),
        "sample": ("prompt", "sample_tokens", "decoding", "stride"),
    }
    data: TextConfig = TextConfig()
    workdir: Path = Path("results/language_model")
    """Folder of the run."""
    prompt: str | None = None
    """Text that the sample continues; None: the first tokens of the validation part."""
    sample_tokens: int = 300
    """Number of tokens of the sample, in windows of max_length."""
    decoding: Strategy = WARM
    """Strategy of decoding the sample."""
    stride: int | None = None
    """Also score the validation part in windows of max_length tokens this far apart; None: only in blocks."""

    def __post_init__(self):
        super().__post_init__()
        if self.sample_tokens < 1 or self.prompt == "":
            raise ConfigError("sample: sample-tokens must be positive, and prompt not empty")
        if isinstance(self.objective, MaskedToken):
            continues = ("prompt", "sample_tokens", "decoding")
            for name in (name for name in continues if getattr(self, name) != getattr(Command, name)):
                raise ConfigError(f"{name}: a masked model continues no text; its sample fills hidden tokens in")
        if self.stride is not None and not 1 <= self.stride <= self.model.max_length:
            raise ConfigError(f"stride: {self.stride} is not in [1, {self.model.max_length}], model.max_length")
        if self.stride is not None and (not self.model.causal or self.data.document_separator is not None):
            raise ConfigError("stride: windows slide over one running text, and with a causal model")
        if self.stride is not None and self.objective.reads_prefixes:
            raise ConfigError(f"stride: windows have no prefix, which {self.objective} is trained with")


def main() -> None:
    presets = {name: cli.extend(p, Command) for name, p in (PRESETS | LARGE_PRESETS).items()}
    command = cli.parse(Command, presets, description=__doc__, others=(TEXT, *TASKS))
    corpus = load(command)
    assert isinstance(corpus, Corpus)
    prompt = corpus.tokenizer.decode(corpus.validation[:PROMPT_TOKENS]) if command.prompt is None else command.prompt
    check_prompt(corpus, prompt)  # before the training
    trained = train_command(command, RunConfig, corpus)
    metrics = {"token_accuracy": trained.accuracy}
    if command.stride is not None:
        metrics["sliding_window_loss"] = sliding_window_losses(trained, corpus, command.stride)
    if isinstance(command.objective, MaskedToken):
        sample = fill_in(trained, corpus, command.objective, command.seed)
    else:
        tokens, how = command.sample_tokens, command.decoding
        sample = trained.generate(prompt, num_tokens=tokens, strategy=how, seed=command.seed)
    conclude(trained, metrics, sample)
    if command.stride is not None:
        loss = metrics["sliding_window_loss"][trained.at_best_rate].mean()
        print(f"validation loss with windows {command.stride} tokens apart: {loss}")


def check_prompt(corpus: Corpus, prompt: str) -> None:
    """Raise `ConfigError` where the tokenizer makes no token of a prompt, or does not know one of its characters."""
    try:
        found = encode_open(corpus.tokenizer, prompt)
    except ConfigError as error:
        raise ConfigError(f"prompt: {error}") from None
    if not len(found):
        raise ConfigError(f"prompt: the tokenizer makes no token of {prompt!r}; give another one")


def sliding_window_losses(trained: Outcome, corpus: Corpus, stride: int) -> np.ndarray:
    """(R,) loss in nats per token of the validation part, in overlapping windows; NaN of a run that diverged."""
    losses, tokens = np.full(len(trained.replicas), np.nan), jnp.asarray(corpus.validation)
    apply = trained.apply
    for i in np.flatnonzero(trained.healthy):
        losses[i] = -sliding_log_probabilities(
            apply, trained.params(int(i)), tokens, window=trained.config.model.max_length, stride=stride
        ).mean()
    return losses


def fill_in(trained: Outcome, corpus: Corpus, objective: MaskedToken, seed: int) -> str:
    """A text with hidden tokens, and the best replica's guesses for them."""
    tokens = jnp.asarray(corpus.validation[None, : trained.config.model.max_length])
    hidden = jax.random.uniform(jax.random.key(seed), tokens.shape) < objective.rate
    seen = jnp.where(hidden, objective.mask_token, tokens)
    guess = jnp.where(hidden, trained.apply(trained.params(), seen).argmax(-1).astype(tokens.dtype), tokens)
    blanks = "".join(
        "_" if h else corpus.tokenizer.decode(np.asarray([t])) for t, h in zip(tokens[0], hidden[0], strict=True)
    )
    return f"{blanks}\n\n{corpus.tokenizer.decode(np.asarray(guess[0]))}"


if __name__ == "__main__":
    cli.main(main)
