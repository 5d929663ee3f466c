"""Packed documents: no token lost, no document seen by another, the same loss as each document alone."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.core.modules import split
from transformer.core.parameters import Normal
from transformer.data.corpus import load_corpus, packed
from transformer.embeddings.embedding import Embedding
from transformer.mixers.attention.attention import Attention
from transformer.models.config import ModelConfig
from transformer.models.language_model import LanguageModel
from transformer.objectives.objective import NextToken
from transformer.positions.absolute import Learned
from transformer.positions.relative import ALiBi
from transformer.runs.config import RunConfig
from transformer.runs.data import TextConfig

LENGTH = 8
DOCUMENTS = [f"{a}{b}{a}" * n for a in "abcd" for b in "efg" for n in (1, 2)]


def load(tmp_path, documents=DOCUMENTS, separator="\n", name="text.txt", **fields):
    path = tmp_path / name
    path.write_text(separator.join(documents))
    return load_corpus(TextConfig(path=str(path), document_separator=separator, **fields))


def run_config(**fields):
    return RunConfig(model=ModelConfig(max_length=LENGTH), batch_size=3, **fields)


def documents_of(corpus, tokens, ends):
    return [corpus.tokenizer.decode(piece) for piece in np.split(tokens, ends[:-1])]


def test_documents_stay_whole(tmp_path):
    """The last documents are held out, none is in both parts, and the separator is in none."""
    corpus = load(tmp_path, validation_fraction=0.3)
    train = documents_of(corpus, corpus.train, corpus.train_ends)
    validation = documents_of(corpus, corpus.validation, corpus.validation_ends)
    assert train + validation == DOCUMENTS
    assert 0.2 < len(corpus.validation) / len("".join(DOCUMENTS)) < 0.5
    assert set(corpus.tokenizer.characters) == set("abcdefg")
    assert corpus.train_ends[-1] == len(corpus.train)
    assert corpus.validation_ends[-1] == len(corpus.validation)


def test_empty_documents_leave_no_trace(tmp_path):
    """Separators side by side, at the beginning or at the end, are one."""
    plain = load(tmp_path)
    full_of_holes = load(tmp_path, ["", *DOCUMENTS[:5], "", "", *DOCUMENTS[5:], ""], name="holes.txt")
    np.testing.assert_array_equal(plain.train, full_of_holes.train)
    np.testing.assert_array_equal(plain.train_ends, full_of_holes.train_ends)


def test_the_fingerprint_is_of_text_separator_and_split(tmp_path):
    """Any of them changes it; the place of the file does not."""
    whole = tmp_path / "same.txt"
    whole.write_text("\n".join(DOCUMENTS))
    prints = [
        load(tmp_path).fingerprint,
        load(tmp_path, DOCUMENTS[::-1], name="reversed.txt").fingerprint,
        load(tmp_path, [*DOCUMENTS, "a"], name="longer.txt").fingerprint,
        load(tmp_path, validation_fraction=0.3).fingerprint,
        load(tmp_path, separator="aa", name="other.txt").fingerprint,
        load_corpus(TextConfig(path=str(whole))).fingerprint,
    ]
    assert len(set(prints)) == len(prints)
    assert load(tmp_path, name="copy.txt").fingerprint == prints[0]


@pytest.mark.parametrize(
    ("documents", "said"),
    [(["abcabc"], r"'\\n' does not part .* into documents"), (["a" * 50, "b"], r"the first document is 98% of .*")],
)
def test_a_part_without_documents_is_refused(tmp_path, documents, said):
    """One document cannot be split, nor one that is nearly all."""
    with pytest.raises(ConfigError, match=rf"^data\.document_separator: {said}"):
        load(tmp_path, documents)


def test_every_token_but_the_first_is_a_label_once(tmp_path):
    """Within its document: labels with weight, and the token before each, are the documents' own pairs."""
    corpus = load(tmp_path, validation_fraction=0.3)
    batch = corpus.validation_batches(run_config())
    assert batch["tokens"].shape[1:] == (32, LENGTH + 1)
    assert batch["weights"].shape[1:] == (32, LENGTH)
    assert batch["weights"].dtype == np.float32
    real = batch["weights"] == 1
    pairs = sorted(zip(batch["tokens"][..., :-1][real], batch["tokens"][..., 1:][real], strict=True))
    texts = documents_of(corpus, corpus.validation, corpus.validation_ends)
    ids = [corpus.tokenizer.encode(text) for text in texts]
    assert pairs == sorted(pair for document in ids for pair in itertools.pairwise(document))
    assert set(np.unique(batch["weights"])) == {0.0, 1.0}


def test_batches_are_a_pure_function_of_seed_and_step(tmp_path):
    """The same rows for the same step, every row once before any twice, other orders for other seeds."""
    corpus, config = load(tmp_path), run_config()
    rows = packed(corpus.train, corpus.train_ends, LENGTH)
    batches, again, other = (corpus.train_batches(config, seed) for seed in (0, 0, 1))
    _ = again[0]
    for name in ("tokens", "segments", "positions", "weights"):
        np.testing.assert_array_equal(batches[4][name], again[4][name])
        assert batches[4][name].shape[0] == 3
    assert any((batches[i]["tokens"] != other[i]["tokens"]).any() for i in range(3))
    count = len(rows["tokens"])
    seen = np.concatenate([batches[i]["tokens"] for i in range(count)])[:count]
    assert sorted(map(bytes, seen)) == sorted(map(bytes, rows["tokens"]))


@pytest.mark.parametrize("position", [Learned(), ALiBi()], ids=str)
def test_the_loss_of_packed_documents_is_that_of_each_alone(tmp_path, position):
    """Sum and number of labels, through the language model with segments and positions."""
    corpus = load(tmp_path, validation_fraction=0.3)
    config = ModelConfig(
        vocab_size=corpus.tokenizer.vocab_size,
        max_length=LENGTH,
        num_layers=2,
        d_model=8,
        mixer=Attention(num_heads=2),
        position=position,
        initializer=Normal(0.4),
        embedding=Embedding(initializer=Normal(0.4)),
    )
    params, apply = split(LanguageModel(config, key=jax.random.key(0)))
    run = jax.jit(lambda batch: NextToken()(apply, params, batch, None))
    documents = np.split(corpus.validation, corpus.validation_ends[:-1])
    together = run({n: jnp.asarray(a) for n, a in packed(corpus.validation, corpus.validation_ends, LENGTH).items()})
    assert len(documents) > len(packed(corpus.validation, corpus.validation_ends, LENGTH)["tokens"])
    loss = weight = 0.0
    for document in documents:
        alone = np.zeros((1, LENGTH + 1), np.int32)
        alone[0, : len(document)] = document
        weights = (np.arange(1, LENGTH + 1) < len(document)).astype(np.float32)[None]
        sums = run({"tokens": jnp.asarray(alone), "weights": jnp.asarray(weights)})
        loss, weight = loss + sums.loss.sum(), weight + sums.weight.sum()
    assert together.weight.sum() == weight
    np.testing.assert_allclose(together.loss.sum(), loss, rtol=1e-5)


def test_a_long_document_is_cut_into_pieces(tmp_path):
    """Each piece is a document of its own; all tokens but the first of each piece are labels."""
    corpus = load(tmp_path, ["abcdefgabcdefgabcdef", "ab", "cd", "efgefgefg"], validation_fraction=0.3)
    rows = packed(corpus.train, corpus.train_ends, LENGTH)
    assert rows["positions"].max() <= LENGTH
    pieces = sum(-(-len(d) // (LENGTH + 1)) for d in documents_of(corpus, corpus.train, corpus.train_ends))
    assert rows["weights"].sum() == len(corpus.train) - pieces
