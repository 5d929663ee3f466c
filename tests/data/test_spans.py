"""Span corruption: nothing of the text is lost, the sizes are fixed, and the holes are random and repeatable."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.core.errors import ConfigError
from transformer.data.dataset import load_data
from transformer.data.spans import SpanConfig, SpanRun, corrupt, hidden_places, longest_block, sizes_of
from transformer.data.tokenizers import END, START
from transformer.models.encoder_decoder import EncoderDecoderConfig

FIRST = 100
MODEL = EncoderDecoderConfig(max_source_length=30, max_length=12)


def restored(source, target, first=FIRST):
    """The text, from a source whose sentinels are replaced by what follows them in the target."""
    assert source[-1] == target[-1] == END
    spans, tokens = {}, []
    for token in target[:-1]:
        if token >= first:
            spans[token] = tokens = []
        else:
            tokens.append(token)
    assert list(spans) == [first + i for i in range(len(spans))]
    return [t for token in source[:-1] for t in (spans[token] if token >= first else [token])]


@given(st.integers(2, 80), st.floats(0.01, 0.99), st.floats(1, 10), st.integers(0, 2**31))
def test_source_and_target_are_the_text(length, rate, mean_span, seed):
    """For every size, whatever is drawn; each sentinel stands in the source once, and a span has a token or more."""
    sizes = sizes_of(length, rate, mean_span)
    tokens = np.random.default_rng(seed).integers(5, FIRST, (3, length)).astype(np.int32)
    hidden = hidden_places(sizes, [(seed, 0, row) for row in range(3)])
    np.testing.assert_array_equal(hidden.sum(1), sizes.hidden)
    sources, targets = corrupt(tokens, hidden, FIRST)
    assert (sources.shape, targets.shape) == ((3, sizes.source), (3, sizes.target))
    for row, source, target in zip(tokens, sources, targets, strict=True):
        assert restored(source, target) == row.tolist()
        assert sorted(source[source >= FIRST]) == [FIRST + i for i in range(sizes.spans)]
        assert (np.diff(np.flatnonzero(target >= FIRST)) > 1).all()


def test_the_shares_of_the_paper():
    """Of 512 tokens T5 reads, 568 of the text: 15 % are hidden in spans of 3, and 114 are said."""
    sizes = longest_block(SpanRun(model=EncoderDecoderConfig(max_source_length=512, max_length=114)))
    assert (sizes.tokens, sizes.source, sizes.target) == (568, 512, 114)
    assert sizes.hidden == 85
    assert sizes.spans == 28
    hidden = hidden_places(sizes, [(0, 0, row) for row in range(400)])
    # Every place but the first ones, which are shown, and the last ones, which are hidden, is as likely.
    assert np.abs(hidden[:, 30:-30].mean() - 0.15) < 0.005
    lengths = np.diff(np.flatnonzero(np.diff(np.pad(hidden, ((0, 0), (1, 1))).astype(int).reshape(-1))))[::2]
    assert np.abs(lengths.mean() - 85 / 28) < 1e-9
    assert 2 < lengths.std() < 3


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("".join(np.random.default_rng(0).choice(list("abcdefghij"), 2000)))
    return SpanRun(model=MODEL, data=SpanConfig(path=str(path), validation_fraction=0.2), batch_size=3)


def test_batches(config):
    """A function of seed, step and row; a larger batch of the same step does not move the holes of its first rows."""
    data = load_data(config.data)
    completed = data.complete(config)
    sizes = longest_block(config)
    assert completed.model.vocab_size == completed.model.source_vocab_size == 15 + sizes.spans
    first, again, other, larger = (
        data.train_batches(c, seed)
        for c, seed in ((completed, 0), (completed, 0), (completed, 1), (completed.replace(batch_size=5), 0))
    )
    batch = first[4]
    assert {name: a.shape for name, a in batch.items()} == {
        "source": (3, sizes.source),
        "source_valid": (3, sizes.source),
        "target": (3, sizes.target + 1),
        "weights": (3, sizes.target),
    }
    assert (batch["target"][:, 0] == START).all()
    for name, a in batch.items():
        np.testing.assert_array_equal(a, again[4][name])
    assert (batch["source"] != other[4]["source"]).any()
    holes = [np.flatnonzero(row >= 15).tolist() for step in (0, 1) for row in larger[step]["source"]]
    assert [np.flatnonzero(row >= 15).tolist() for row in first[1]["source"]] == holes[5:8]
    assert len(set(map(tuple, holes))) > 5


def test_the_validation_part_is_fixed(config):
    """The same holes every time, in all whole blocks; rows of weight 0 fill up."""
    data, sizes = load_data(config.data), longest_block(config)
    batch, again = data.validation_batches(config), load_data(config.data).validation_batches(config)
    blocks = 400 // sizes.tokens
    real = batch["weights"].reshape(-1, sizes.target).any(1)
    assert real.sum() == blocks
    for name in batch:
        flat = [b[name].reshape(-1, b[name].shape[-1])[:blocks] for b in (batch, again)]
        np.testing.assert_array_equal(*flat)
    rows = zip(*(batch[name].reshape(-1, batch[name].shape[-1])[:blocks] for name in ("source", "target")), strict=True)
    found = [token for source, target in rows for token in restored(source, target[1:], first=15)]
    assert found == data.corpus.validation[: blocks * sizes.tokens].tolist()
    text = data.text(batch["source"][0, 0])
    assert [f"<{i}>" in text for i in range(sizes.spans + 1)] == [True] * sizes.spans + [False]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.rate": 1.0}, "data.rate: 1.0 is not between 0 and 1"),
        ({"data.mean_span": 0.5}, "data.mean_span: 0.5 is not a number from 1 on"),
        ({"data.document_separator": "x"}, "data.document_separator: spans are hidden in one running text"),
        ({"data.consecutive": True}, "data.consecutive: spans are hidden in blocks from anywhere"),
        ({"data.tokenizer": "char"}, r"data.tokenizer: targets need the special tokens; use char\(special=True\)"),
        ({"model.max_length": 3}, "model.max_length: 3, but the targets have"),
        ({"model.max_source_length": 2}, "model.max_source_length: 2 has no room for a text with a hole"),
        ({"model.vocab_size": 15}, "model.vocab_size: 15 is less than the"),
        ({"model.max_source_length": 500, "model.max_length": 200}, "validation part of .* has 400 tokens"),
    ],
)
def test_what_cannot_be(config, changes, message):
    def complete():
        changed = config.replace(changes)
        load_data(changed.data).complete(changed)

    with pytest.raises(ConfigError, match=message):
        complete()


def test_other_holes_are_other_data(config):
    prints = [load_data(dataclasses.replace(config.data, rate=rate)).fingerprint for rate in (0.15, 0.15, 0.2)]
    assert prints[0] == prints[1] != prints[2]
