"""Train an encoder-decoder on pairs of texts and translate the test part.

Without data: SCAN (Lake and Baroni 2018), regenerated from its grammar; the simple split and, for
comparison, the length split, on which such models fail.

    python -m experiments.translation                                     one core: 12 min and 7 min
    python -m experiments.translation scan --data.split add_jump --also none
    python -m experiments.translation multi30k-tiny --data.source train.en --data.target train.de \\
        --data.validation-source valid.en --data.validation-target valid.de \\
        --data.test-source test.2016.en --data.test-target test.2016.de

Reference for `multi30k-tiny`, Transformer-Tiny (Wu et al. 2021) on lower-cased BPE'd Multi30k: test2016
BLEU4 41.02 with beam 5 and the mean of the last 10 epochs, reference length 12,103.
Found with `multi30k-cpu` and on SCAN, and why it differs: docs/recipes.md.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from experiments import cli
from experiments.run_command import RunOptions, conclude, load, train_command
from experiments.sections import RUN
from transformer.activations.activation import ReLU
from transformer.analysis.bleu import bleu4, remove_bpe
from transformer.core.arrays import compiled_for
from transformer.core.errors import ConfigError
from transformer.core.modules import Apply, Params
from transformer.core.parameters import Normal, Xavier
from transformer.data.pairs import Pairs, PairsConfig, TranslationRun
from transformer.data.tokenizers import END, START, TrainedTokenizer
from transformer.embeddings.embedding import Embedding
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.inference.generate import generate
from transformer.inference.strategies import Strategy
from transformer.inference.tokenwise import GREEDY
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.projections import ScaledProjections
from transformer.models.build import pure_model
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.objectives.pairs import SequenceToSequence
from transformer.positions.absolute import Sinusoidal
from transformer.positions.rotary import RoPE
from transformer.residuals.residual import PostNorm
from transformer.runs.config import RunConfig
from transformer.runs.optimizer import OptimizerConfig
from transformer.runs.rules import AdamW
from transformer.runs.schedules import Cosine, InverseSquareRoot
from transformer.runs.tokenizers import Word
from transformer.study.probes import Probe, each
from transformer.training.loop import Observer

ROWS = 100
"""Number of sentences decoded at once."""


@dataclass(frozen=True, kw_only=True)
class Command(TranslationRun, RunOptions):
    sections = RUN | {
        "data": ("data.source", "data.target", "data.split", "data.tokenizer", "data.shared_vocabulary"),
        "test": ("metric", "decoding", "observed", "also"),
    }
    workdir: Path = Path("results/translation")
    """Folder of the run."""
    metric: Literal["exact_match", "bleu"] = "exact_match"
    """Metric on the test part: the share of translations right in every token, or tokenised BLEU4."""
    decoding: tuple[str, ...] = ("greedy",)
    """Strategies in text form; the last one gives the metric."""
    observed: int = 0
    """Number of test sentences translated greedily at every evaluation, to show the metric over time."""
    also: Literal["usual", "none", "length", "add_jump"] = "usual"
    """Another split of SCAN that is trained too, for comparison; usual: length, and none beside texts of your own."""

    def __post_init__(self):
        super().__post_init__()
        if self.observed < 0:
            raise ConfigError(f"observed: {self.observed} is negative")
        if not self.decoding:
            raise ConfigError("decoding: none is given; the last one gives the metric")


SCAN = Command(
    model=EncoderDecoderConfig(
        num_layers=2, d_model=96, feed_forward=FeedForward(d_ff=192), position=RoPE(), initializer=Xavier(),
        max_length=50, max_source_length=10,
    ),
    optimizer=OptimizerConfig(learning_rate=1e-3, warmup_steps=200, weight_decay=0.01, schedule=Cosine(final=0.02)),
    batch_size=64,
    steps=6000,
)  # fmt: skip
MULTI30K_TINY = Command(
    model=EncoderDecoderConfig(
        num_layers=4, d_model=128, max_length=256, max_source_length=256, dropout=0.3,
        mixer=Attention(bias=("query", "key", "value", "out"), projection=ScaledProjections()),
        residual=PostNorm(), position=Sinusoidal(),
        feed_forward=FeedForward(d_ff=256, activation=ReLU(), bias=True),
        embedding=Embedding(scaled=True, initializer=Normal(128**-0.5)), share_embeddings=True,
        initializer=Xavier(), scale_residual_init=False,
    ),
    data=PairsConfig(tokenizer=Word(), shared_vocabulary=True, batch_tokens=8000, buckets=8),
    optimizer=OptimizerConfig(
        learning_rate=5e-3, warmup_steps=2000, weight_decay=0.0, rule=AdamW(beta2=0.98),
        clip_norm=None, schedule=InverseSquareRoot(),
    ),
    objective=SequenceToSequence(label_smoothing=0.1),
    batch_size=16,
    steps=8000,
    average_last=500,
    metric="bleu",
    decoding=("greedy", "beam(size=5, early_stopping=True)"),
)  # fmt: skip
# For two cores: a quarter of the tokens, and BLEU in between.
MULTI30K_CPU = MULTI30K_TINY.replace({"data.batch_tokens": 2000}, evaluate_every=500, observed=200)
PRESETS = {"scan": SCAN, "multi30k-tiny": MULTI30K_TINY, "multi30k-cpu": MULTI30K_CPU}


def main() -> None:
    command = cli.parse(Command, PRESETS, description=__doc__)
    if command.preset in (MULTI30K_TINY, MULTI30K_CPU) and command.data.source is None:
        raise ConfigError("data.source: the presets of Multi30k are for pairs of yours; give it")
    strategies = [Strategy.parse(text, "decoding") for text in command.decoding]
    other = other_split(command)
    run(command, strategies)
    if other is not None:
        data = replace(command.data, split=other)
        run(replace(command, also="none", data=data, workdir=command.workdir / other), strategies)


def other_split(command: Command) -> str | None:
    """The split of SCAN that a command trains too, if any; raises `ConfigError` where there is none of that name."""
    own, also = command.data.source is not None, command.also
    if also == "none" or (also == "usual" and (own or command.data.split == "length")):
        return None
    if own:
        raise ConfigError(f"also: {also} is a split of SCAN, and data.source is given; use none")
    if also == command.data.split:
        raise ConfigError(f"also: {also} is data.split itself; use none")
    return "length" if also == "usual" else also


def run(command: Command, strategies: Sequence[Strategy]) -> None:
    """Train, translate the test part with every replica and strategy, and write the results."""
    data = load(command)
    assert isinstance(data, Pairs)
    check_test_sources(command, data)
    trained = train_command(command, TranslationRun, data, observer(command, data) if command.observed else None)
    values, metrics, seconds, sample = np.full(len(trained.replicas), np.nan), {}, {}, ""
    for strategy in strategies:
        start = time.monotonic()
        for i in np.flatnonzero(trained.healthy):
            texts = translate(trained.config, trained.apply, trained.params(int(i)), data, strategy)
            values[i] = METRICS[command.metric](texts, references(data))
            sample = "\n".join(f"{s}\n  {t}" for s, t in list(zip(data.test[0], texts, strict=True))[:3])
        metrics[f"{command.metric} {strategy}"] = values.copy()
        seconds[f"seconds {strategy}"] = (time.monotonic() - start) / max(trained.healthy.sum(), 1)
    conclude(trained, {command.metric: values} | metrics, sample, **seconds)
    for (name, of_replicas), taken in zip(metrics.items(), seconds.values(), strict=True):
        print(f"{name}: {of_replicas[trained.at_best_rate].mean()}, in {taken:.1f} s")


def check_test_sources(command: Command, data: Pairs) -> None:
    """Raise `ConfigError` where the model cannot read the longest source of the test part, before it is trained."""
    params, apply = pure_model(data.complete(cli.fields_of(command, TranslationRun)).model)
    longest = int(data.test_sources()[1].sum(1).max())
    shapes = (jax.ShapeDtypeStruct((1, length), jnp.int32) for length in (longest, 1))
    try:
        # Shapes are the same everywhere, and JAX has not been started; the lambda keeps this trace from later calls.
        with compiled_for("cpu"):
            jax.eval_shape(lambda *inputs: apply(*inputs), params, *shapes)
    except ConfigError as error:
        raise ConfigError(f"data.test_source: a text has {longest} tokens, and the model: {error}") from None


def observer(command: Command, data: Pairs) -> Observer:
    """Measures the metric of every replica on the first test sentences, or on all where there are fewer."""
    config = data.complete(cli.fields_of(command, TranslationRun))
    _, apply = pure_model(config.model)
    some = first_sentences(data, command.observed)

    metric = METRICS[command.metric]

    def score(params: Params) -> float:
        return metric(translate(config, apply, params, some, GREEDY), references(some))

    return lambda params: {f"test_{command.metric}": np.array(each(params, score))}


def translate(config: RunConfig, apply: Apply, params: Params, data: Pairs, strategy: Strategy) -> list[str]:
    """Translations of the test sources; sources of similar length are decoded together."""
    sources, valid = data.test_sources()
    order = np.argsort(valid.sum(1), kind="stable")
    devices = jax.local_devices()[: math.gcd(ROWS, jax.local_device_count())]
    mesh = jax.make_mesh((len(devices),), ("data",), devices=devices)
    texts = [""] * len(sources)
    for rows in np.split(order, range(ROWS, len(order), ROWS)):
        padded = np.resize(rows, ROWS)  # the last group is filled up, so that one program decodes all
        length = min(-(-int(valid[rows].sum(1).max()) // 8) * 8, sources.shape[1])
        inputs = {"source_BS": sources[padded, :length], "source_valid_BS": valid[padded, :length]}
        start = jnp.full((ROWS, 1), START, jnp.int32)
        limit = min(config.model.max_length, 2 * length + 50)
        key = jax.random.fold_in(jax.random.key(0), int(rows[0]))
        how: dict[str, Any] = {"strategy": strategy, "stop": END, "inputs": inputs, "key": key}
        made = generate(apply, params, start, num_tokens=limit, mesh=mesh, **how)
        for row, tokens in zip(rows, jax.device_get(made.tokens_BT), strict=False):
            texts[row] = data.text(tokens)
    return texts


def first_sentences(data: Pairs, count: int | None) -> Pairs:
    """The data with the first `count` of its test pairs; None: with all."""
    sources, targets = data.test
    return replace(data, test=(sources[:count], targets[:count]))


def references(data: Pairs) -> list[str]:
    """The targets of the test part, in lower case by the tokenizer's own rule where it gives no other texts."""
    lowercase = data.description is not None and getattr(data.description.tokenizer, "lowercase", False)
    if not (lowercase and isinstance(data.tokenizer, TrainedTokenizer)):
        return list(data.test[1])
    return [data.tokenizer.normalized(text) for text in data.test[1]]


def exact_match(texts: Sequence[str], references: Sequence[str]) -> float:
    """Share of texts that equal their references, but for how many spaces there are between words."""
    return float(np.mean([text.split() == other.split() for text, other in zip(texts, references, strict=True)]))


def bleu(texts: Sequence[str], references: Sequence[str]) -> float:
    """Tokenised BLEU4 after joining BPE pieces."""
    return bleu4([remove_bpe(t) for t in texts], [remove_bpe(r) for r in references]).score


@dataclass(frozen=True)
class TranslationBleu(Probe):
    """BLEU4 of greedy translations of the first test sentences, for studies of encoder-decoders."""

    name = "translation_bleu"
    higher_is_better = True
    sentences: int | None = None
    """How many; None: all."""

    def __post_init__(self):
        if self.sentences is not None and self.sentences < 1:
            raise ConfigError(f"translation_bleu.sentences: {self.sentences} is not a positive number")

    @property
    def label(self):
        return "BLEU"

    def __call__(self, config, params, data):
        assert isinstance(data, Pairs)
        some = first_sentences(data, self.sentences)
        _, apply = pure_model(config.model)
        return each(params, lambda run: bleu(translate(config, apply, run, some, GREEDY), references(some)))


METRICS = {"exact_match": exact_match, "bleu": bleu}


if __name__ == "__main__":
    cli.main(main)
