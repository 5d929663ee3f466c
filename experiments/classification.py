"""Train an encoder to classify texts: by the value of a ListOps expression, or by the labels of your own texts.

python -m experiments.classification
python -m experiments.classification --model.pooling cls --replicas 4
python -m experiments.classification texts --data.path reviews.tsv
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments import cli
from experiments.run_command import RunOptions, conclude, load, train_command
from experiments.sections import RUN
from transformer.core.errors import ConfigError
from transformer.data.labelled import ClassificationRun, Labelled
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.models.classifier import ClassifierConfig
from transformer.positions.rotary import RoPE
from transformer.runs.optimizer import OptimizerConfig
from transformer.training.outcome import Outcome

EXAMPLES = 5


@dataclass(frozen=True, kw_only=True)
class Command(ClassificationRun, RunOptions):
    sections = RUN | {"data": ("data.path", "data.validation_path", "data.tokenizer", "data.task", "data.examples")}
    workdir: Path = Path("results/classification")
    """Folder of the run."""


_MODEL = ClassifierConfig(num_layers=3, d_model=96, feed_forward=FeedForward(d_ff=192), max_length=48, position=RoPE())
PRESETS = {
    "listops": Command(model=_MODEL, optimizer=OptimizerConfig(learning_rate=1e-3), batch_size=64, steps=3000),
    "texts": Command(model=_MODEL.replace(max_length=256, dropout=0.1), batch_size=32, steps=2000),
}


def main() -> None:
    command = cli.parse(Command, PRESETS, description=__doc__)
    if command.preset == PRESETS["texts"] and command.data.path is None:
        raise ConfigError("data.path: the preset texts is for a file of yours; give it")
    data = load(command)
    assert isinstance(data, Labelled)
    trained = train_command(command, ClassificationRun, data)
    conclude(trained, {"accuracy": trained.accuracy}, f"{by_class(trained)}\n{examples(trained, data)}")


def by_class(trained: Outcome) -> str:
    """Recall and precision of each class, by the best replica."""
    counts = trained.confusion()
    right, there, given = counts.diagonal(), counts.sum(1), counts.sum(0)
    rows = zip(trained.classes, right, there, given, strict=True)
    return "\n".join(f"{name}: {r} of {t} found, {g - r} others taken for it" for name, r, t, g in rows)


def examples(trained: Outcome, data: Labelled) -> str:
    """A few held-out texts with the class the best replica gives, and the right one where it differs."""
    some = {name: a[:EXAMPLES] for name, a in data.validation.items()}
    logits = trained.apply(trained.params(), some["inputs"], valid_BL=some["valid"])
    best = np.asarray(logits[:, : len(data.classes)].argmax(-1))
    lines = []
    for tokens, given, right in zip(some["inputs"], best, some["labels"], strict=True):
        wrong = f"   (not {data.classes[right]})" if given != right else ""
        lines.append(f"{data.tokenizer.decode(tokens)} -> {data.classes[given]}{wrong}")
    return "\n".join(lines)


if __name__ == "__main__":
    cli.main(main)
