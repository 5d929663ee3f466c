"""Train an encoder to classify every token: by the values of all parts of a ListOps expression, or by your own tags.

python -m experiments.labelling
python -m experiments.labelling tags --data.path sentences.txt    lines of word<TAB>tag, an empty line between sentences

Labels count at operators and at the brackets that end their expressions; the value at the last bracket is the
only one that `experiments.classification` asks for.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments import cli
from experiments.run_command import RunOptions, conclude, load, train_command
from experiments.sections import RUN
from transformer.core.errors import ConfigError
from transformer.data.labelled import Labelled
from transformer.data.tagged import TaggingRun
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.models.classifier import ClassifierConfig
from transformer.models.pooling import PerToken
from transformer.positions.rotary import RoPE
from transformer.runs.optimizer import OptimizerConfig
from transformer.training.outcome import Outcome

EXAMPLES = 5


@dataclass(frozen=True, kw_only=True)
class Command(TaggingRun, RunOptions):
    sections = RUN | {"data": ("data.path", "data.validation_path", "data.tokenizer", "data.task", "data.examples")}
    workdir: Path = Path("results/labelling")
    """Folder of the run."""


_MODEL = ClassifierConfig(
    num_layers=3, d_model=96, feed_forward=FeedForward(d_ff=192), max_length=48, position=RoPE(), pooling=PerToken()
)
PRESETS = {
    "listops": Command(model=_MODEL, optimizer=OptimizerConfig(learning_rate=1e-3), batch_size=64, steps=3000),
    "tags": Command(model=_MODEL.replace(max_length=256, dropout=0.1), batch_size=32, steps=2000),
}


def main() -> None:
    command = cli.parse(Command, PRESETS, description=__doc__)
    if command.preset == PRESETS["tags"] and command.data.path is None:
        raise ConfigError("data.path: the preset tags is for a file of yours; give it")
    data = load(command)
    assert isinstance(data, Labelled)
    trained = train_command(command, TaggingRun, data)
    conclude(trained, {"accuracy": trained.accuracy}, examples(trained, data))


def examples(trained: Outcome, data: Labelled) -> str:
    """A few held-out texts, with the best replica's class after each token that counts."""
    some = {name: a[:EXAMPLES] for name, a in data.validation.items()}
    logits = trained.apply(trained.params(), some["inputs"], valid_BL=some["valid"])
    given = np.asarray(logits[..., : len(data.classes)].argmax(-1))
    rows = zip(*(some[n] for n in ("inputs", "labels", "weights")), given, strict=True)
    return "\n".join(_line(data, *row) for row in rows)


def _line(data: Labelled, tokens: np.ndarray, right: np.ndarray, weights: np.ndarray, given: np.ndarray) -> str:
    words = []
    for token, label, weight, own in zip(tokens, right, weights, given, strict=True):
        word = data.tokenizer.decode(np.array([token])) if data.tokenizer else str(token)
        wrong = "" if own == label else f" (not {data.classes[label]})"
        words.append(f"{word}→{data.classes[own]}{wrong}" if weight else word)
    return " ".join(words).rstrip()


if __name__ == "__main__":
    cli.main(main)
