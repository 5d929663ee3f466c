"""Every reader of files and texts, from valid ones that are changed: a value, or one line that says what is wrong.

FUZZ=2000 python -m pytest tests/test_readers.py     inputs for each reader; 20 by default
"""

import copy
import gzip
import json
import lzma
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments import cli
from experiments.language_model import Command
from tests.study import made
from transformer import pretrained
from transformer.core.errors import ConfigError
from transformer.core.files import sealed, write_sealed
from transformer.core.modules import split
from transformer.core.values import Variant
from transformer.data.corpus import load_corpus
from transformer.data.dataset import load_data
from transformer.data.images import load_images
from transformer.data.labelled import LabelledConfig
from transformer.data.pairs import PairsConfig
from transformer.data.tokenizer_training import make_tokenizer
from transformer.data.tokenizers import CharTokenizer, SymbolTokenizer, read_tokenizer
from transformer.models.build import build
from transformer.norms.norm import Norm
from transformer.positions.position import Position
from transformer.pretrained.gpt2 import GPT2
from transformer.runs.config import Replica, RunConfig
from transformer.runs.data import TextConfig
from transformer.runs.presets import PRESETS
from transformer.runs.tokenizers import Word
from transformer.study import plan
from transformer.study.analyse import read_study
from transformer.study.archive import RUNS, SUFFIX, Archives, pack, unpack
from transformer.study.plan import PLAN
from transformer.training import checkpoint
from transformer.training.checkpoint import MANIFEST, CheckpointError, Notes
from transformer.training.metrics import METRICS, line_of, read_metrics
from transformer.training.workdir import CONFIG, identity, read_identity, write_environment

INPUTS = int(os.environ.get("FUZZ", "20"))
OTHERS = (None, True, -1, 10**30, 1.5, float("nan"), "", "x", "\ud800", [], {}, [[]], {"": 0}, "²", "../x", "[/b]")
"""What takes the place of a value."""


@dataclass(frozen=True)
class Reader:
    """A file that is read: how a valid one is made in a folder, and what reads it."""

    make: Callable[[Path], Path]
    read: Callable[[Path], Any]
    json: bool = False
    """Whether it is changed as JSON too, and sealed again where it was."""


def run_identity():
    corpus = load_corpus(TextConfig(embedded="topics"))
    return identity(corpus.complete(RunConfig()), (Replica(seed=0),), corpus)


def config_of_run(folder):
    write_sealed(folder / CONFIG, run_identity().body)
    return folder / CONFIG


def environment_of_run(folder):
    write_environment(folder)
    return folder / "environment.json"


STATE = {"a": jnp.ones((2, 3)), "b": jnp.arange(4)}


def manifest(folder):
    for step in (10, 20):
        checkpoint.save(folder, step, STATE, Notes(step, "0", 0, 0.0, {"data": 1}))
    return folder / "00000020" / MANIFEST


def array_of_checkpoint(folder):
    state = manifest(folder).parent / "state"
    return max((path for path in state.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


def checkpoints_of(path):
    return next(parent for parent in path.parents if (parent / "00000010").exists())


def metrics(folder):
    lines = [{"step": step, "replica": 0, "loss": 1.5, "name": None} for step in range(5)]
    (folder / METRICS).write_text("".join(map(line_of, lines)))
    return folder / METRICS


def study(folder):
    losses = np.linspace(2.0, 2.1, 6)
    made.record(folder, {"base": losses, "arm": losses - 0.1}).write(folder)
    plan.kept(folder, {"margin": 0.1, "arms": {"base": {}}}, 0, lambda _: None)
    return folder / "study.json"


def run_of_study(folder):
    return sorted((study(folder).parent / "runs").iterdir())[0]


def archived(folder):
    path = folder / "kept" / f"study{SUFFIX}"
    pack(study(folder).parent, path)
    return path


def runs_archived(folder):
    return archived(folder).parent / RUNS / f"arm{SUFFIX}"


def unpacked(path):
    folder = path.parent.parent if path.parent.name == RUNS else path.parent
    unpack(folder / f"study{SUFFIX}", *2 * (folder / f"read-{os.urandom(8).hex()}",))
    return Archives(folder).report("study")


def text(name: str, content: str | bytes):
    def make(folder):
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return folder / name

    return make


def tokenizer(made_):
    return text("tokenizer.json", made_.definition)


def images(folder):
    rng = np.random.default_rng(0)
    arrays = {f"{part}_images": rng.integers(0, 256, (4, 3, 3), np.uint8) for part in ("train", "test")}
    arrays |= {f"{part}_labels": np.arange(4) for part in ("train", "test")}
    np.savez_compressed(folder / "images.npz", **arrays)
    return folder / "images.npz"


def published(name: str, shard_bytes: int = 10**9):
    def make(folder):
        sizes = {"vocab_size": 5, "max_length": 4, "num_layers": 1, "d_model": 4, "mixer.num_heads": 2}
        config = GPT2.base.replace({**sizes, "feed_forward.d_ff": 8})
        params, _ = split(build(config, key=jax.random.key(0)))
        pretrained.save(folder / "model", config, params, architecture=GPT2, shard_bytes=shard_bytes)
        return folder / "model" / name

    return make


def pair_of(path):
    return load_data(PairsConfig(source=str(path), tokenizer=Word(), validation_fraction=0.5))


PAIRS, LABELS = "a b\tc d\n" * 6, "1\ta b\n0\tc d\n" * 6
READERS = {
    "config of a run": Reader(config_of_run, lambda path: read_identity(path.parent), json=True),
    "environment": Reader(environment_of_run, lambda path: write_environment(path.parent), json=True),
    "manifest": Reader(manifest, lambda path: checkpoint.restore(checkpoints_of(path), STATE), json=True),
    "array": Reader(array_of_checkpoint, lambda path: checkpoint.restore(checkpoints_of(path), STATE)),
    "metrics": Reader(metrics, lambda path: read_metrics(path.parent)),
    "record of a study": Reader(study, lambda path: read_study(path.parent), json=True),
    "run of a study": Reader(run_of_study, lambda path: read_study(path.parent.parent), json=True),
    "plan": Reader(
        lambda folder: study(folder).parent / PLAN,
        lambda path: plan.kept(path.parent, {}, 0, lambda _: None),
        json=True,
    ),
    "archive": Reader(archived, unpacked, json=True),
    "runs of an archive": Reader(runs_archived, unpacked, json=True),
    "characters": Reader(tokenizer(CharTokenizer("abc")), read_tokenizer, json=True),
    "symbols": Reader(tokenizer(SymbolTokenizer(("a", "b"))), read_tokenizer, json=True),
    "words": Reader(tokenizer(make_tokenizer(Word(), ["a b c", "b c"])), read_tokenizer, json=True),
    "text": Reader(text("text.txt", "abacabad" * 9), lambda path: load_corpus(TextConfig(path=str(path)))),
    "pairs": Reader(text("pairs.txt", PAIRS), pair_of),
    "packed pairs": Reader(text("pairs.gz", gzip.compress(PAIRS.encode(), mtime=0)), pair_of),
    "labels": Reader(text("labels.txt", LABELS), lambda path: load_data(LabelledConfig(path=str(path)))),
    "images": Reader(images, lambda path: load_images(str(path))),
    "published config": Reader(published("config.json"), lambda path: pretrained.load(path.parent), json=True),
    "published tensors": Reader(published("model.safetensors"), lambda path: pretrained.load(path.parent)),
    "published index": Reader(
        published("model.safetensors.index.json", shard_bytes=100),
        lambda path: pretrained.load(path.parent),
        json=True,
    ),
}
ONE_LINE = (ConfigError, CheckpointError)


def changed(whole: bytes, rng) -> bytes:
    """A content with some bytes changed, cut out, doubled, or put in."""
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(whole) + 1)
        end = rng.choice([at + 1, at + rng.randrange(1, 9), len(whole)])
        middle = [
            bytes(byte ^ (1 << rng.randrange(8)) for byte in whole[at : at + 1]),
            b"",
            whole[at:end] * 2,
            rng.choice([b"\0", b"\xff", b"[" * 10_000, b"9" * 400, b"-", b'"', b"\n", b"\t"]) + whole[at:end],
        ]
        whole = whole[:at] + rng.choice(middle) + whole[end:]
    return whole


def changed_json(value: Any, rng) -> Any:
    """JSON data with one of the values in it replaced, renamed or taken out."""
    inside = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    if not inside or rng.random() < 0.15:
        return rng.choice(OTHERS)
    value = copy.copy(value)
    at = rng.choice(list(inside))
    kind = rng.random()
    if kind < 0.7:
        value[at] = changed_json(value[at], rng)
    elif kind < 0.85 and isinstance(value, dict):
        value[at + "x"] = value.pop(at)
    else:
        del value[at]
    return value


def check(read: Callable[[], Any]) -> None:
    """Read, which ends in a value or in one line."""
    said = "read"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            read()
        except ONE_LINE as error:
            said = str(error)
        except SystemExit as stop:  # of --help
            said = "help" if not stop.code else ""
    assert len(said.splitlines()) == 1


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    """Maps the name of a reader to its file and the content of that, made once."""
    found: dict[str, tuple[Path, bytes]] = {}

    def of(name: str) -> tuple[Path, bytes]:
        if name not in found:
            path = READERS[name].make(tmp_path_factory.mktemp("reader"))
            found[name] = path, path.read_bytes()
            READERS[name].read(path)
        path, whole = found[name]
        path.parent.mkdir(exist_ok=True, parents=True)
        return path, whole

    return of


FEW = settings(max_examples=INPUTS, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("name", READERS)
@FEW
@given(rng=st.randoms(use_true_random=False))
def test_a_file_with_changed_bytes_is_read_or_named(made_once, name, rng):
    path, whole = made_once(name)
    path.write_bytes(changed(whole, rng))
    check(lambda: READERS[name].read(path))


@pytest.mark.parametrize("name", [name for name, reader in READERS.items() if reader.json])
@FEW
@given(rng=st.randoms(use_true_random=False))
def test_a_file_with_changed_values_is_read_or_named(made_once, name, rng):
    """Sealed again, as somebody would who knows how."""
    path, whole = made_once(name)
    compressed = path.name.endswith(SUFFIX)
    stored = json.loads(lzma.decompress(whole) if compressed else whole)
    had = stored.pop("sha256", None)
    other = changed_json(stored, rng)
    text = sealed(other) if had and isinstance(other, dict) else json.dumps(other)
    path.write_bytes(lzma.compress(text.encode()) if compressed else text.encode())
    check(lambda: READERS[name].read(path))


@pytest.mark.parametrize("whole", ["rmsnorm(eps=1e-6, scale=True)", "layernorm", "rope(scaling=yarn(factor=4.0))"])
@FEW
@given(rng=st.randoms(use_true_random=False))
def test_a_changed_text_form_is_a_value_or_named(whole, rng):
    said = changed(whole.encode(), rng).decode("utf-8", "replace")
    family: type[Variant] = Position if "rope" in whole else Norm
    check(lambda: family.parse(said))


@FEW
@given(rng=st.randoms(use_true_random=False))
def test_a_changed_config_is_a_config_or_named(rng):
    stored = changed_json(RunConfig().to_json(), rng)
    check(lambda: RunConfig.from_json(stored))


@FEW
@given(rng=st.randoms(use_true_random=False))
def test_a_changed_command_line_is_a_command_or_named(rng):
    words = ["tiny", "--model.norm", "rmsnorm", "--steps", "10", "--optimizer.learning-rate=1e-3", "--seed", "1"]
    at = rng.randrange(len(words))
    words[at] = changed(words[at].encode(), rng).decode("utf-8", "replace")
    check(lambda: cli.parse(Command, {name: cli.extend(one, Command) for name, one in PRESETS.items()}, words))
