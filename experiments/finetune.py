"""Train a published model further and, for comparison, the same model from scratch.

python -m experiments.finetune --from gpt2 --data.path input.txt --model.max-length 128
python -m experiments.finetune classes --from bert --data.path reviews.tsv --model.max-length 64

The model is a folder that `transformer.pretrained.load` reads, or a name on the hub; its tokenizer.json, where there
is one, is the tokenizer. Both arms have the same seeds, batches and learning rates, and each is evaluated at its own
best one. `classes` puts a new output on the layers of any model of tokens. LoRA, after which the model is written as a
published one: --model.weights low_rank --optimizer.groups "[group('*.weights.*'), group('*', rate=0)]".
"""

import dataclasses
import functools
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from experiments import cli
from experiments.command import HELP
from experiments.run_command import RunOptions, load, train_command
from experiments.sections import RUN
from transformer import pretrained
from transformer.core import modules as pure
from transformer.core.errors import ConfigError
from transformer.core.files import write_durably
from transformer.core.modules import Params
from transformer.data.dataset import reference
from transformer.data.labelled import ClassificationRun, LabelledConfig
from transformer.models.build import pure_model
from transformer.models.classifier import ClassifierConfig
from transformer.models.config import ModelConfig
from transformer.models.merge import merged
from transformer.models.pooling import MeanPooling
from transformer.pretrained.names import flat
from transformer.pretrained.store import WEIGHTS
from transformer.runs.config import RunConfig
from transformer.runs.data import TextConfig
from transformer.runs.optimizer import OptimizerConfig
from transformer.runs.tokenizers import Char, FromFile, Tokenization, Word
from transformer.training import processes
from transformer.training.outcome import Outcome

PUBLISHED = (
    {"model of others": ("from_",)} | RUN | {"data": ("data.path", "data.tokenizer", "data.validation_fraction")}
)
TOKENIZER = "tokenizer.json"
FROM = Annotated[str, tyro.conf.arg(name="from")]
HOW: dict[str, Any] = {
    "optimizer": OptimizerConfig(warmup_steps=20),
    "learning_rates": (1e-4, 1e-3),
    "steps": 300,
    "evaluate_every": 30,
    "workdir": Path("results/finetune"),
}


@dataclass(frozen=True, kw_only=True)
class Text(RunOptions):
    sections = PUBLISHED
    from_: FROM = ""
    """The published model: a folder, or a name on the hub."""
    data: TextConfig = TextConfig()


@dataclass(frozen=True, kw_only=True)
class Classes(ClassificationRun, RunOptions):
    sections = PUBLISHED
    from_: FROM = ""
    """The published model: a folder, or a name on the hub."""


def main() -> None:
    classes, words = sys.argv[1:2] == ["classes"], sys.argv[1:]
    if cli.value_of(words, "--from") is None and {*HELP} & {*words}:
        default, folder = (Classes if classes else Text)(**HOW), ""
    else:
        folder = str(pretrained.find(asked(words), WEIGHTS))
        published = pretrained.load_config(folder)
        path = cli.value_of(words, "--data.path")
        of_published = cli.value_of(words, "--data.tokenizer") is None and (path is not None or not classes)
        if of_published and not {*HELP, "--resume"} & {*words}:
            check_tokenizer(Path(folder))
        default = of_classes(published, folder, path) if classes else of_text(published, folder)
    name, kind = ("classes", ClassificationRun) if classes else ("text", RunConfig)
    command = cli.parse(type(default), {name: default}, description=__doc__)
    data, begins = load(command), {"pretrained": functools.partial(fitting, folder), "scratch": None}
    arms = {
        arm: train_command(command.replace(workdir=command.workdir / arm), kind, data, initial=initial)
        for arm, initial in begins.items()
    }
    conclude(arms, command.workdir, Path(folder))


def asked(words: list[str]) -> str:
    """The value of --from, which is read first, because it decides the defaults of all other options."""
    if (named := cli.value_of(words, "--from")) is None:
        raise ConfigError("from: which model? give --from FOLDER")
    return named


OTHER_TOKENIZERS = (
    "vocab.json",
    "vocab.txt",
    "vocab.bpe",
    "spiece.model",
    "sentencepiece.bpe.model",
    "source.spm",
    "tokenizer.model",
    "tiktoken.model",
)


def check_tokenizer(folder: Path) -> None:
    """Raise `ConfigError` where the folder has a tokenizer, but no tokenizer.json: other tokens mean other things."""
    there = [name for name in OTHER_TOKENIZERS if (folder / name).exists()]
    if there and not (folder / TOKENIZER).exists():
        raise ConfigError(
            f"from: {folder} has {there[0]} and no {TOKENIZER}, which transformers writes: "
            "AutoTokenizer.from_pretrained(…).save_pretrained(…); or give data.tokenizer"
        )


def of_text(published: ModelConfig, folder: str) -> Text:
    """The defaults for a language model."""
    if published.kind != "tokens" or not published.causal:
        raise ConfigError(f"from: {folder} is no causal language model; classes takes any model of tokens")
    return Text(from_=folder, model=published, data=TextConfig(tokenizer=tokenizer(folder, Char())), **HOW)


def of_classes(published: ModelConfig, folder: str, path: str | None = None) -> Classes:
    """The defaults for a classifier of the texts of a file: the layers of the published model under a new output."""
    if type(published) not in (ModelConfig, ClassifierConfig):
        raise ConfigError(f"from: {folder} is a {type(published).__name__}, no model of tokens alone")
    fields = {f.name: getattr(published, f.name) for f in dataclasses.fields(ModelConfig)}
    fields["head"] = dataclasses.replace(published.head, transform=None, bias=False, score_mod=None)
    pooling = published.pooling if isinstance(published, ClassifierConfig) else MeanPooling()
    data = LabelledConfig() if path is None else LabelledConfig(path=path, tokenizer=tokenizer(folder, Word()))
    return Classes(from_=folder, model=ClassifierConfig(**fields, pooling=pooling), data=data, **HOW)


def tokenizer(folder: str, otherwise: Tokenization) -> Tokenization:
    """The tokenizer of the folder, with the tokens it puts around a text, or `otherwise` where it has none."""
    path = Path(folder) / TOKENIZER
    return FromFile(str(path), special=isinstance(otherwise, Word)) if path.is_file() else otherwise


def fitting(folder: str, model: ModelConfig) -> Params:
    """The published parameters that a model takes over: all that it also has, trained positions cut to its length.

    Raises:
      ConfigError: a parameter has another shape in the folder.
    """
    wanted = flat(pure_model(model)[0])
    given, taken = flat(pretrained.load(folder, dtype="float32")[1]), {}
    for path in wanted.keys() & given.keys():
        array = given[path][: len(wanted[path])] if path == ("position", "table") else given[path]
        if array.shape != wanted[path].shape:
            raise ConfigError(f"model: {'/'.join(path)} is {wanted[path].shape} here, in the folder {array.shape}")
        taken[path] = array
    new, left = (sorted("/".join(path) for path in a.keys() - b.keys()) for a, b in ((wanted, given), (given, wanted)))
    print(f"{len(taken)} arrays from the folder; new: {', '.join(new) or 'none'}; left: {', '.join(left) or 'none'}")
    return pure.nest(taken)


def conclude(arms: dict[str, Outcome], workdir: Path, published: Path) -> None:
    """Show both arms at their best learning rates, draw their curves, and write result.json and the model, with what
    the published folder says of its tokens; exit code 1 where every replica diverged."""
    from transformer.analysis.plots import loss_curves  # loaded late: matplotlib
    from transformer.study.statistics import mean_interval

    kept = keep(arms["pretrained"], published)
    if not processes.is_writer():
        return
    table = Table("", "learning rate", "validation loss", "accuracy")
    curves, result = {}, {}
    for arm, trained in arms.items():
        rate, best = trained.best_rate, trained.at_best_rate
        losses, accuracies = trained.validation_loss[best], trained.accuracy[best]
        steps_S, losses_RS = trained.curve("validation_loss")
        curves[arm] = (steps_S, losses_RS[trained.learning_rates == rate])
        result[arm] = {
            "learning_rate": rate,
            "validation_loss": losses.tolist(),
            "accuracy": accuracies.tolist(),
            "curves": {"steps": steps_S.tolist(), "validation_loss": losses_RS[best].tolist()},
            "diverged": int((trained.learning_rates == rate).sum() - best.sum()),
        }
        interval = f" [{', '.join(f'{end:.4f}' for end in mean_interval(losses))}]" if len(losses) > 1 else ""
        row = (f"{losses.mean():.4f}{interval}", f"{accuracies.mean():.4f}") if len(losses) else ("diverged", "")
        table.add_row(arm, f"{rate:g}", *row)
    simple = reference(arms["scratch"].config, arms["scratch"].data)
    loss_curves(curves, ylabel="validation loss", reference=simple).savefig(workdir / "curves.png", dpi=120)
    write_durably(workdir / "result.json", json.dumps(result, indent=1))
    if simple is not None:
        table.add_row(simple[0], "", f"{simple[1]:.4f}", "")
    Console().print(table)
    print(f"result.json and curves.png are in {workdir}; {kept}")
    if not any(trained.healthy.any() for trained in arms.values()):
        sys.exit(1)


OF_TOKENS = (TOKENIZER, "tokenizer_config.json", "special_tokens_map.json", "generation_config.json")
"""Files of a published folder that stay true of a model with its tokenizer."""


def keep(trained: Outcome, published: Path) -> str:
    """Write the best replica as a published model; returns where, or why not. All processes call it.

    With the tokenizer of the published folder it has that, and the ids of special tokens and files about them.
    """
    folder, model, params = trained.workdir / "model", trained.config.model, trained.params()
    if not processes.is_writer():
        return ""
    shutil.rmtree(folder, ignore_errors=True)
    if not trained.healthy.any():
        return "no model is kept: every replica diverged"
    try:
        used = getattr(trained.config.data, "tokenizer", None)
        own = isinstance(used, FromFile) and Path(used.path) == published / TOKENIZER
        fields = json.loads((published / "config.json").read_text()) if own else {}
        ids = {name: value for name, value in fields.items() if name.endswith("_token_id")}
        pretrained.save(folder, *((model, params) if model.weights is None else merged(model, params)), fields=ids)
    except ConfigError as error:
        return str(error)
    for name in OF_TOKENS if own else ():
        if (published / name).is_file():
            shutil.copy(published / name, folder)
    return f"the model is in {folder}"


if __name__ == "__main__":
    cli.main(main)
