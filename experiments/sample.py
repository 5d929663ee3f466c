"""Continue a text with the model in a run's folder.

    transformer sample results/language_model "ROMEO:" --num 3 --tokens 200
    transformer sample results/language_model "ROMEO:" --decoding 'sample(top_p=0.9)' --temperature 0.7
    transformer sample results/language_model "ROMEO:" --decoding greedy --beyond refuse
    transformer sample results/algorithmic "1 2 + 3 4 =" --decoding greedy

The folder is that of a run, finished or not, or of a cell of a study. Without a text, an empty line is continued,
where the tokenizer has one. The texts are printed one after another, each as soon as it is there; text i is that of
the seed `--seed` + i alone.
"""

import sys
from dataclasses import dataclass
from typing import Any

from experiments import cli
from experiments.command import HELP
from transformer.core import runtime
from transformer.core.changes import replace
from transformer.core.checks import check_seed
from transformer.core.errors import ConfigError
from transformer.data.tokenizers import encode_open
from transformer.inference.strategies import Strategy
from transformer.inference.text import Beyond
from transformer.training.asked import WARM
from transformer.training.stored import load_run

EMPTY = "\n"
"""What is continued where no text is given."""


@dataclass(frozen=True, kw_only=True)
class Command:
    num: int = 1
    """Number of texts."""
    tokens: int | None = None
    """Number of tokens to add to each; None: 200, or after a question of a task those of an answer."""
    decoding: Strategy = WARM
    """How tokens are chosen."""
    temperature: float | None = None
    """Temperature of `--decoding`; None: as it says."""
    seed: int = 0
    """Seed of the first text."""
    replica: int | None = None
    """The replica that continues it; None: the one with the lowest loss."""
    beyond: Beyond = "slide"
    """Past the longest text of training, go on by reading the last tokens again, read on, or refuse."""

    def __post_init__(self):
        for name in ("num", "tokens"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ConfigError(f"{name}: {value} is not a positive number")
        for seed in (self.seed, self.seed + self.num - 1):
            check_seed(seed)
        if self.temperature is not None and not hasattr(self.decoding, "temperature"):
            raise ConfigError(f"temperature: {self.decoding} has none; use --decoding sample")

    @property
    def strategy(self) -> Any:
        """The decoding with its temperature."""
        return self.decoding if self.temperature is None else replace(self.decoding, {"temperature": self.temperature})


def main() -> None:
    given, flags = leading(sys.argv[1:], "a run's folder")
    command = cli.parse(Command, {"": Command()}, flags, description=__doc__)
    if not 1 <= len(given) <= 2:
        raise ConfigError(f"sample: {len(given)} words before the options; give a run's folder and a text")
    runtime.start()
    run, prompt = load_run(given[0]), (*given, EMPTY)[1]
    own = run.tokenizers.get("tokenizer")
    if len(given) == 1 and own is not None and not len(encode_open(own, EMPTY)):
        raise ConfigError("sample: its tokenizer makes no token of an empty line; give a text")
    for i in range(command.num):
        text = run.generate(
            prompt,
            seed=command.seed + i,
            replica=command.replica,
            num_tokens=command.tokens,
            strategy=command.strategy,
            beyond=command.beyond,
        )
        print("---\n" * (i > 0) + text, flush=True)


def leading(words: list[str], wanted: str) -> tuple[list[str], list[str]]:
    """The words before the first option, and the rest; raises `ConfigError` where it begins with an option."""
    first = next((i for i, word in enumerate(words) if word.startswith("--") or word == "-h"), len(words))
    if not first and words and not {*HELP} & {*words}:
        raise ConfigError(f"{words[0]}: before the options {wanted} is needed")
    return words[:first], words[first:]


if __name__ == "__main__":
    cli.main(main)
