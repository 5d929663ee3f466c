"""Algorithmic tasks as data: questions that a language model answers."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from transformer.core.arrays import check_ids
from transformer.core.errors import ConfigError
from transformer.core.json import fingerprint, later
from transformer.data.dataset import Batch, Examples, check_reads_tokens, described, fingerprint_arrays, load_data
from transformer.data.tasks.arithmetic import Addition
from transformer.data.tasks.task import AlgorithmicTask, split
from transformer.data.tokenizers import SymbolTokenizer
from transformer.models.config import ModelConfig
from transformer.runs.config import RunConfig
from transformer.runs.data import DataConfig, check_at_least


@dataclass(frozen=True, kw_only=True)
class AlgorithmicConfig(DataConfig):
    """Random examples of an algorithmic task; none for training is among those held out."""

    task: AlgorithmicTask = Addition()
    """The task."""
    test: AlgorithmicTask | None = None
    """The task of the held-out examples where it is another one, such as longer ones, with the same symbols."""
    examples: int = 10_000
    """Number of examples for training."""
    distinct: bool = later(True)
    """Whether no example for training comes twice. Of short ones, of which there are few, there are then fewer than of
    long ones; else they are as often as the task draws them, which some skills are learned from."""
    validation_examples: int = 1_000
    """Number of examples held out. All are distinct, so that few of them are short."""
    seed: int = 0
    """Seed of the examples; their order in training depends on the replica's seed."""

    @property
    def example_length(self):
        return max(self.task.length, self.test.length if self.test else 0)

    def __post_init__(self):
        super().__post_init__()
        check_at_least(self, 1, "examples", "validation_examples")
        check_at_least(self, 0, "seed")
        if self.test is not None and self.test.symbols != self.task.symbols:
            raise ConfigError(f"data.test: {self.test} has other symbols than {self.task}")


@dataclass(frozen=True, kw_only=True)
class AlgorithmicRun(RunConfig):
    """A run that trains a language model on an algorithmic task."""

    model: ModelConfig = ModelConfig()
    data: AlgorithmicConfig = AlgorithmicConfig()


@dataclass(frozen=True, kw_only=True)
class Puzzles(Examples):
    """Examples of a task: `tokens` (N, L + 1), and `weights` (N, L), 1 for labels that are answers.

    Where some are padded, `valid` (N, L) says which input tokens are real.
    """

    tokenizer: SymbolTokenizer

    def complete(self, config: RunConfig) -> RunConfig:
        """The config with the vocabulary of the task, unless it sets its own.

        Raises:
          ConfigError: the model is too short for the task, or has too small a vocabulary.
        """
        check_reads_tokens(config, self.source)
        config = described(config, self.description)
        config = config.replace({"model.vocab_size": config.model.vocab_size or self.tokenizer.vocab_size})
        assert config.model.vocab_size is not None
        for part in (self.train, self.validation):
            check_ids(part["tokens"], config.model.vocab_size, f"{self.source}: token")
            if config.model.max_length < (length := part["tokens"].shape[1] - 1):
                raise ConfigError(f"model.max_length: {config.model.max_length}, but {self.source} has {length} tokens")
        return config


@load_data.register
def load_puzzles(config: AlgorithmicConfig, stored: str | Path | None = None) -> Puzzles:
    """Draw the examples."""
    parts = split(config.task, config.examples, config.validation_examples, config.seed, config.test, config.distinct)
    train, validation = ({"tokens": t, "weights": scored[:, 1:].astype(np.float32)} for t, scored in parts)

    def with_padding_marked(part: Batch) -> Batch:
        # The answer is the end of an example: after its last label there is only padding.
        valid = np.maximum.accumulate(part["weights"][:, ::-1], axis=1)[:, ::-1] > 0
        return part if valid.all() else part | {"valid": valid}

    return Puzzles(
        train=with_padding_marked(train),
        validation=with_padding_marked(validation),
        tokenizer=SymbolTokenizer(config.task.symbols),
        description=config,
        source=str(config.task) if config.test is None else f"{config.task}, tested on {config.test}",
        fingerprint=fingerprint([config, fingerprint_arrays(train), fingerprint_arrays(validation)]),
    )
