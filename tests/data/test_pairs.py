"""Pairs: what a batch holds, buckets of similar length, vocabularies, and what does not fit."""

import functools
import itertools
import os
import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.data.dataset import load_data, stack_batches
from transformer.data.order import ORDER
from transformer.data.pairs import EVALUATION_BATCH, PairsConfig, TranslationRun, load_pairs, pair_arrays, with_end
from transformer.data.tokenizers import END, START
from transformer.inference.beam import Beam
from transformer.inference.generate import generate
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.runs.config import RunConfig, grid
from transformer.runs.tokenizers import Char, Symbols, Word
from transformer.training.loop import train
from transformer.training.workdir import identity

RNG = np.random.default_rng(0)
# The number of a pair is its first two words on both sides; sources of 2 to 7 words, targets of 2 to 9.
COUNT = 60
TARGETS = [" ".join([*f"{i:02}", *["x"] * (i % 8)]) for i in range(COUNT)]
SOURCES = [" ".join([*f"{i:02}", *["y"] * int(RNG.integers(0, 6))]) for i in range(COUNT)]


def written(tmp_path, sources=SOURCES, targets=TARGETS, name="train"):
    paths = tmp_path / f"{name}.src", tmp_path / f"{name}.tgt"
    for path, lines in zip(paths, (sources, targets), strict=True):
        path.write_text("\n".join(lines) + "\n")
    return {"source": str(paths[0]), "target": str(paths[1])}


def as_part(files, part):
    return {f"{part}_{side}": path for side, path in files.items()}


@pytest.fixture
def pairs(tmp_path):
    return load_pairs(PairsConfig(**written(tmp_path), validation_fraction=0.1))


def run_config(*, data=None, model=None, **fields):
    sizes = {"max_length": 10, "max_source_length": 10} | (model or {})
    numbers = {"steps": 40, "batch_size": 4} | fields
    return TranslationRun(model=EncoderDecoderConfig(**sizes), data=PairsConfig(**(data or {})), **numbers)


def test_files_become_pairs(pairs):
    """Both sides end with the end token; the last part is held out, and is the test part too."""
    assert [len(part[0]) for part in (pairs.train, pairs.validation)] == [54, 6]
    for part, texts in ((pairs.train[0], SOURCES[:54]), (pairs.validation[0], SOURCES[54:])):
        assert [pairs.source_tokenizer.decode(row) for row in part] == texts
    for part, texts in ((pairs.train[1], TARGETS[:54]), (pairs.test[1], TARGETS[54:])):
        assert [pairs.text(row) if part is pairs.train[1] else row for row in part] == texts
    assert all(row[-1] == END and row.dtype == np.int32 for row in (*pairs.train[0], *pairs.train[1]))


def test_a_trained_run_translates(pairs, tmp_path):
    """As decoding by hand does: the source ends with the end token, and padding changes nothing."""
    config = run_config(steps=4)
    run = train(config, grid(1), pairs, tmp_path / "run")
    source = with_end(pairs.source_tokenizer, SOURCES[0])
    start, inputs = jnp.full((1, 1), START, jnp.int32), {"source_BS": jnp.asarray(source)[None]}
    made = generate(run.apply, run.params(), start, num_tokens=10, stop=END, inputs=inputs)
    assert run.translate(SOURCES[0]) == pairs.text(np.asarray(made.tokens_BT[0]))
    assert len(run.translate(SOURCES[0], num_tokens=2, strategy=Beam(2)).split()) <= 2
    told = r"^translate: the source has 11 tokens, its end included, more than max_source_length 10$"
    with pytest.raises(ConfigError, match=told):
        run.translate("0 1" + 8 * " y")
    with pytest.raises(ConfigError, match=r"generate: .*; translate\(source\) is for pairs of texts"):
        run.generate("a")


def test_pairs_print_as_a_line(pairs):
    assert re.fullmatch(r"Pairs\(.*: 54 for training, 6 for validation and 6 for the test\)", str(pairs))


def test_a_source_may_be_as_long_as_the_model_reads(pairs, tmp_path):
    """Sources are padded to few lengths, and not beyond the longest."""
    longest = "0 1" + 6 * " y"
    assert len(with_end(pairs.source_tokenizer, longest)) == 9
    config = run_config(steps=4).replace({"model.max_source_length": 9, "model.position": "learned"})
    run = train(config, grid(1), pairs, tmp_path / "run")
    assert isinstance(run.translate(longest, num_tokens=2), str)


def test_pairs_need_a_translator(pairs):
    with pytest.raises(ConfigError, match=r"^model of pairs: EncoderDecoderConfig is needed, and ModelConfig is given"):
        pairs.complete(RunConfig(data=pairs.description))


@pytest.fixture
def known(tmp_path):
    """Files whose validation and test parts use the words of the training part only."""
    train = written(tmp_path)
    validation = as_part(written(tmp_path, SOURCES[:5], TARGETS[:5], "valid"), "validation")
    test = as_part(written(tmp_path, SOURCES[5:8], TARGETS[5:8], "test"), "test")
    return train, validation, test


def test_files_of_their_own_for_validation_and_test(known):
    """All training pairs are trained on; without test files the validation part is the test part."""
    train, validation, test = known
    loaded = load_pairs(PairsConfig(**train, **validation, **test))
    assert len(loaded.train[0]) == COUNT
    assert [loaded.text(row) for row in loaded.validation[1]] == TARGETS[:5]
    assert loaded.test == (SOURCES[5:8], TARGETS[5:8])
    assert load_pairs(PairsConfig(**train, **validation)).test == (SOURCES[:5], TARGETS[:5])


def test_the_fingerprint_changes_with_content(tmp_path, known):
    """Of any part, of the split, and of the tokenizers; not with the place of the files."""
    train, validation, test = known
    other = written(tmp_path, [*SOURCES[:-1], "5 9 y y y y y y y"], name="other")
    other_test = as_part(written(tmp_path, SOURCES[6:9], TARGETS[6:9], "other_test"), "test")
    configs = [
        PairsConfig(**train),
        PairsConfig(**train, validation_fraction=0.2),
        PairsConfig(**other),
        PairsConfig(**train, **validation),
        PairsConfig(**train, **validation, **test),
        PairsConfig(**train, **validation, **other_test),
        PairsConfig(**train, shared_vocabulary=True),
    ]
    prints = [load_pairs(config).fingerprint for config in configs]
    assert len(set(prints)) == len(prints)
    (tmp_path / "copy").mkdir()
    assert load_pairs(PairsConfig(**written(tmp_path / "copy"))).fingerprint == prints[0]


def test_scan_splits_have_their_own_fingerprints():
    """The simple and the length split; commands are sources, actions are targets."""
    simple, length = (load_data(PairsConfig(split=split)) for split in ("simple", "length"))
    assert simple.fingerprint != length.fingerprint
    assert simple.source == "SCAN, simple split"
    assert (simple.source_tokenizer.vocab_size, simple.tokenizer.vocab_size) == (5 + 13, 5 + 6)
    assert "I_" in simple.test[1][0]
    assert "I_" not in simple.test[0][0]


def test_arrays_of_pairs():
    """Targets from the start token to the end token; padding is not valid and has no weight."""
    rows = [np.array([7, 8, END], np.int32), np.array([9, END], np.int32)]
    arrays = pair_arrays(rows, rows[::-1])
    assert arrays["source"].tolist() == [[7, 8, END], [9, END, 0]]
    assert arrays["source_valid"].tolist() == [[True] * 3, [True, True, False]]
    assert arrays["target"].tolist() == [[START, 9, END, 0], [START, 7, 8, END]]
    assert arrays["weights"].tolist() == [[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]


def numbers(pairs, batch):
    """Which pairs are in a batch, by the first words of both sides, which must agree."""
    sources = [pairs.source_tokenizer.decode(row[:2]) for row in batch["source"]]
    targets = [pairs.tokenizer.decode(row[1:3]) for row in batch["target"]]
    assert sources == targets
    return [int(n.replace(" ", "")) for n in sources]


@pytest.mark.parametrize("buckets", [1, 3, 100])
def test_batches_are_pure_functions_of_the_step(pairs, buckets):
    """Any step at any time, in any order, twice."""
    config = run_config(data={"buckets": buckets})
    batches, again, other = (pairs.train_batches(config, seed) for seed in (0, 0, 1))
    forward = [batches[step] for step in range(40)]
    for step in (39, 0, 17, 17):
        for name, a in again[step].items():
            np.testing.assert_array_equal(a, forward[step][name])
    if buckets < 100:
        assert any(numbers(pairs, other[step]) != numbers(pairs, forward[step]) for step in range(40))


def test_a_run_is_of_the_groups_it_began_with(pairs):
    """Which are no part of the data, that a run of other groups still finds."""
    config = pairs.complete(run_config())
    assert identity(config, grid(1), pairs).order == pairs.order_version != ORDER


def test_a_step_is_one_bucket_for_all_seeds(pairs):
    """So that the arrays of replicas stack; the next step has another one as often as chance has it."""
    config = run_config(data={"buckets": 3}, steps=200)
    replicas = [pairs.train_batches(config, seed) for seed in (0, 1, 5)]
    shapes = []
    for step in range(200):
        stacked = stack_batches(replicas, step, 1)
        assert stacked["target"].shape[:3] == (3, 1, 4)
        assert stacked["weights"].shape[-1] == stacked["target"].shape[-1] - 1
        shapes.append((stacked["source"].shape[-1], stacked["target"].shape[-1]))
    assert len(set(shapes)) == 3
    assert 0.5 < np.mean([one != other for one, other in itertools.pairwise(shapes)]) < 0.8


def test_steps_of_one_program_have_one_shape(pairs, tmp_path):
    """So they need one bucket, or to be called one at a time, which is what a run of pairs does unless told."""
    unsorted = load_pairs(PairsConfig(**written(tmp_path), buckets=1))
    config = unsorted.complete(run_config(steps_per_dispatch=3))
    assert stack_batches([unsorted.train_batches(config, 0)], 0, 3)["target"].shape[:3] == (1, 3, 4)
    assert run_config().steps_per_dispatch == 1
    with pytest.raises(ConfigError, match=r"^steps_per_dispatch: 3 steps .* of 4 groups .*; use 1, or data.buckets=1"):
        pairs.complete(run_config(steps_per_dispatch=3))


def rows_by_bucket(pairs, config, seed=0):
    """The pairs of all steps, in order, by the shape of their bucket."""
    batches, found = pairs.train_batches(config, seed), {}
    for step in range(config.steps):
        batch = batches[step]
        shape = batch["source"].shape[1], batch["target"].shape[1] - 1
        found.setdefault(shape, []).extend(numbers(pairs, batch))
    return found


def test_every_pair_appears_in_an_epoch_of_its_bucket(pairs):
    """Once before any appears twice; a pair is always in the same bucket, and each in one."""
    config = run_config(data={"buckets": 3}, steps=120)
    found = rows_by_bucket(pairs, config)
    epochs = [set(rows) for rows in found.values()]
    assert len(epochs) == 3
    assert sum(len(epoch) for epoch in epochs) == 54
    assert set.union(*epochs) == set(range(54))
    for rows, epoch in zip(found.values(), epochs, strict=True):
        size = len(epoch)
        assert set(rows[:size]) == epoch
        if len(rows) >= 2 * size:
            assert set(rows[size : 2 * size]) == epoch


def test_a_bucket_is_padded_to_its_longest(pairs):
    """And no further, on either side; buckets are groups by the length of the longer side."""
    config = run_config(data={"buckets": 3}, steps=120)
    ranges = []
    for (source, target), rows in rows_by_bucket(pairs, config).items():
        lengths = [max(len(TARGETS[i].split()), len(SOURCES[i].split())) + 1 for i in set(rows)]
        assert max(len(TARGETS[i].split()) + 1 for i in set(rows)) == target
        assert max(len(SOURCES[i].split()) + 1 for i in set(rows)) == source
        ranges.append((min(lengths), max(lengths)))
    ranges.sort()
    assert all(low[1] < high[0] for low, high in itertools.pairwise(ranges))


@pytest.mark.parametrize("tokens", [None, 40])
def test_buckets_are_drawn_by_their_share_of_batches(pairs, tokens):
    """Every pair is seen about equally often, also where batches of short pairs have more of them."""
    config = run_config(data={"buckets": 3, "batch_tokens": tokens}, steps=300, batch_size=2)
    batches = pairs.train_batches(config, 0)
    shapes = [batches[step]["target"].shape for step in range(300)]
    seen = [shapes.count(shape) * shape[0] for shape in set(shapes)]
    assert len(seen) == 3
    assert len({shape[0] for shape in shapes}) == (1 if tokens is None else 2)
    assert max(seen) < 1.6 * min(seen)


def test_batches_of_one_pair(pairs):
    """The smallest batch is one too."""
    batches = pairs.train_batches(run_config(batch_size=1), 0)
    assert len({numbers(pairs, batches[step])[0] for step in range(40)}) > 20


@pytest.mark.parametrize("tokens", [8, 40, 90])
def test_batches_of_about_so_many_tokens(pairs, tokens):
    """Pairs of a step are a multiple of batch_size, at least one, nearest to the wanted number of target tokens."""
    config = run_config(data={"buckets": 3, "batch_tokens": tokens}, batch_size=2)
    batches = pairs.train_batches(config, 0)
    for step in range(0, 40, 2):
        size, length = batches[step]["weights"].shape
        assert size % 2 == 0
        assert size == 2 or abs(size * length - tokens) <= length


def test_validation_batches_hold_each_pair_once(pairs):
    """In order; what fills the last batch has no weight."""
    batch = pairs.validation_batches(run_config())
    assert batch["source"].shape[:2] == (1, EVALUATION_BATCH)
    real = batch["weights"].sum(-1) > 0
    assert real.sum() == 6
    held_out = {name: a[real] for name, a in batch.items()}
    assert numbers(pairs, held_out) == list(range(54, 60))
    assert held_out["weights"].sum() == sum(len(row) for row in pairs.validation[1])
    assert not batch["source_valid"][~real].any()


def test_vocabularies_come_from_the_data(pairs, tmp_path):
    """One for each side, or one for both; those that are given stay."""
    model = pairs.complete(run_config()).model
    assert (model.source_vocab_size, model.vocab_size) == (5 + 11, 5 + 11)
    shared = load_pairs(PairsConfig(**written(tmp_path), shared_vocabulary=True))
    model = shared.complete(run_config(model={"share_embeddings": True})).model
    assert model.vocab_size == model.source_vocab_size == 5 + 12
    assert shared.tokenizer is shared.source_tokenizer
    with pytest.raises(
        ConfigError, match=r"share_embeddings: source and target have tokenizers of their own; set data"
    ):
        pairs.complete(run_config(model={"share_embeddings": True}))
    assert pairs.complete(run_config(model={"vocab_size": 99})).model.vocab_size == 99
    with pytest.raises(ConfigError, match="is not in"):
        pairs.complete(run_config(model={"vocab_size": 9}))


@pytest.mark.parametrize(("field", "longest"), [("max_source_length", 8), ("max_length", 10)])
def test_texts_that_are_too_long(pairs, field, longest):
    """The error has the number of tokens that are needed, and just so many are enough."""
    with pytest.raises(ConfigError, match=rf"model.{field}: {longest - 1}, but the longest text .* has {longest} tok"):
        pairs.complete(run_config(model={field: longest - 1}))
    assert getattr(pairs.complete(run_config(model={field: longest})).model, field) == longest


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"buckets": 0}, "data.buckets: 0 is not a number from 1 on"),
        ({"batch_tokens": 0}, "data.batch_tokens: 0 is not a number from 1 on"),
        ({"validation_fraction": 1.0}, "data.validation_fraction: 1.0 is not between 0 and 1"),
        ({"target": "x"}, "data.source: a target is given and no source"),
        (
            {"source": "x", "split": "length"},
            "data.split: length would change nothing: it is of SCAN, and data.source is given",
        ),
        ({"validation_fraction": 0.2}, "data.validation_fraction: 0.2 would change nothing: SCAN has parts of its own"),
        (
            {"source": "x", "validation_source": "y", "validation_fraction": 0.2},
            "data.validation_fraction: 0.2 would change nothing: data.validation_source is given",
        ),
        ({"test_target": "x"}, "data.test_source: a target is given and no source"),
        ({"validation_source": "x"}, "data.validation_source: SCAN, read without data.source, .*; set both"),
        ({"test_source": "x", "test_target": "y"}, "data.test_source: SCAN, read without data.source, .*; set both"),
    ],
)
def test_configs_that_cannot_be(fields, message):
    """One line each."""
    with pytest.raises(ConfigError, match=message):
        PairsConfig(**fields)


def test_a_part_without_pairs(tmp_path):
    """A fraction that leaves nothing to train on, or to validate on."""
    files = written(tmp_path, SOURCES[:3], TARGETS[:3])
    with pytest.raises(ConfigError, match=r"data\.validation_fraction: 3 pairs leave a part empty"):
        load_pairs(PairsConfig(**files, validation_fraction=0.9))


def test_test_sources(pairs):
    """Padded sources of the test part, for decoding."""
    sources, valid = pairs.test_sources()
    texts = [pairs.source_tokenizer.decode(row[real]) for row, real in zip(sources, valid, strict=True)]
    assert texts == list(pairs.test[0])
    assert sources.shape[1] == valid.sum(1).max()


def test_multi30k():
    """Wu 2021: 9,708 types on both sides together, and a reference of 12,103 tokens."""
    pytest.importorskip("tokenizers")
    data = os.environ.get("TRANSFORMER_DATA")
    if data is None:
        pytest.skip("TRANSFORMER_DATA is not set: there is no multi30k here")
    folder = Path(data) / "multi30k-bpe"
    files = {
        f"{part}{side}": str(folder / f"{name}.{language}")
        for part, name in (("", "train"), ("validation_", "valid"), ("test_", "test.2016"))
        for side, language in (("source", "en"), ("target", "de"))
    }
    loaded = load_pairs(PairsConfig(**files, tokenizer=Word(), shared_vocabulary=True))
    assert [len(part[0]) for part in (loaded.train, loaded.validation, loaded.test)] == [29_000, 1_014, 1_000]
    assert sum(len(text.replace("@@ ", "").split()) for text in loaded.test[1]) == 12_103
    assert loaded.tokenizer.vocab_size == 9_708 + 5


def test_pairs_have_special_tokens_and_closed_vocabularies_hold_all_parts(tmp_path):
    (tmp_path / "p.tsv").write_text("a b\tx y\n" * 9 + "a é\tx ü\n")
    load = functools.partial(PairsConfig, source=str(tmp_path / "p.tsv"), validation_fraction=0.1)
    assert "ü" in load_data(load(tokenizer=Symbols())).tokenizer.symbols
    data = load_data(load(tokenizer=Char(special=True)))
    assert data.text(data.validation[1][0]) == "x ü"
    with pytest.raises(ConfigError, match=r"^data.tokenizer: pairs need the special tokens; use char\(special=True\)$"):
        load_data(load(tokenizer=Char())).complete(TranslationRun(data=load(tokenizer=Char())))
