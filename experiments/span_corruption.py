"""Train an encoder-decoder to reproduce hidden spans of a text (span corruption of T5, Raffel et al. 2019).

python -m experiments.span_corruption
python -m experiments.span_corruption --data.path input.txt --data.rate 0.3 --data.mean-span 5
"""

from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp

from experiments import cli
from experiments.run_command import RunOptions, conclude, load, train_command
from experiments.sections import RUN
from transformer.data.spans import SpanRun, Spans
from transformer.data.tokenizers import END, START
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.inference.generate import generate
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.positions.rotary import RoPE
from transformer.runs.optimizer import OptimizerConfig
from transformer.training.outcome import Outcome

EXAMPLES = 3


@dataclass(frozen=True, kw_only=True)
class Command(SpanRun, RunOptions):
    sections = RUN | {"data": ("data.path", "data.tokenizer", "data.rate", "data.mean_span")}
    workdir: Path = Path("results/span_corruption")
    """Folder of the run."""


_MODEL = EncoderDecoderConfig(
    num_layers=2, d_model=96, feed_forward=FeedForward(d_ff=192), position=RoPE(), max_length=32, max_source_length=96,
    share_embeddings=True,
)  # fmt: skip
PRESETS = {"tiny": Command(model=_MODEL, optimizer=OptimizerConfig(learning_rate=2e-3), batch_size=32, steps=2000)}


def main() -> None:
    command = cli.parse(Command, PRESETS, description=__doc__)
    data = load(command)
    assert isinstance(data, Spans)
    trained = train_command(command, SpanRun, data)
    conclude(trained, {"token_accuracy": trained.accuracy}, examples(trained, data))


def examples(trained: Outcome, data: Spans) -> str:
    """Held-out texts with holes, the best replica's guesses for them, and the hidden spans."""
    batch = {name: a[0, :EXAMPLES] for name, a in data.validation_batches(trained.config).items()}
    inputs = {"source_BS": jnp.asarray(batch["source"])}
    start = jnp.full((len(batch["source"]), 1), START, jnp.int32)
    length = trained.config.model.max_length
    made = generate(trained.apply, trained.params(), start, num_tokens=length, stop=END, inputs=inputs)
    rows = zip(batch["source"], jax.device_get(made.tokens_BT), batch["target"], strict=True)
    return "\n\n".join("\n".join(map(data.text, row)) for row in rows)


if __name__ == "__main__":
    cli.main(main)
