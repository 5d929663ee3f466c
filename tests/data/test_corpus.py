"""Texts, tokenizers, splits and batches."""

import dataclasses
import gzip

import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.data.corpus import Blocks, load_corpus, whole_split
from transformer.data.dataset import load_data, reference, stack_batches
from transformer.data.ngram import ngram_loss, usual_order
from transformer.data.text import load_text
from transformer.data.tokenizers import ByteTokenizer, CharTokenizer
from transformer.models.config import ModelConfig
from transformer.models.vectors import VectorConfig
from transformer.objectives.tokens import MaskedToken, PrefixToken
from transformer.objectives.vectors import Regression
from transformer.runs.config import RunConfig
from transformer.runs.data import TextConfig
from transformer.runs.presets import preset
from transformer.runs.tokenizers import SPECIAL, ByteBPE, Char, Symbols, Word


@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), CharTokenizer.of("naïve ∀x 𝔸")])
def test_decoding_undoes_encoding(tokenizer):
    tokens = tokenizer.encode("𝔸 naïve ∀x")
    assert tokens.dtype == np.int32
    assert tokens.max() < tokenizer.vocab_size
    assert tokenizer.decode(tokens) == "𝔸 naïve ∀x"


@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), CharTokenizer.of("ab")])
def test_bytes_that_are_no_text_are_named(tokenizer):
    with pytest.raises(ConfigError, match=r"'\\udcff' at character 2 is no character; is the text UTF-8\?$"):
        tokenizer.encode(b"ab\xff".decode(errors="surrogateescape"))


def test_a_character_without_a_token_is_named_with_its_place():
    with pytest.raises(ConfigError, match="no token for 'z' at character 2"):
        CharTokenizer.of("abc").encode("abz")


def test_embedded_texts_are_real_and_fingerprinted():
    topics, sources = load_text(None), load_text(None, "sources")
    assert len(topics.content) > 300_000
    assert len(sources.content) > 1_000_000
    assert topics.fingerprint != sources.fingerprint
    assert topics.fingerprint == load_text(None).fingerprint


def test_what_is_held_out_of_the_embedded_text_is_not_in_its_training_part():
    content, length = load_text(None).content, 100
    cut = int(0.9 * len(content))
    seen = {content[i : i + length] for i in range(cut - length + 1)}
    starts = range(cut, len(content) - length + 1)
    again = sum(content[i : i + length] in seen for i in starts)
    assert again < 0.01 * len(starts)  # other versions of Python have other texts


def test_wrong_files_are_one_line(tmp_path):
    (tmp_path / "input.txt").write_text("x")
    with pytest.raises(ConfigError, match=r"no file .*inptu\.txt; did you mean .*input\.txt\?"):
        load_text(str(tmp_path / "inptu.txt"))
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(ConfigError, match="is empty"):
        load_text(str(tmp_path / "empty.txt"))
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(ConfigError, match=r"line 1 of .*latin\.txt is not UTF-8"):
        load_text(str(tmp_path / "latin.txt"))
    with pytest.raises(ConfigError, match="cannot read"):
        load_text(str(tmp_path))


def test_a_text_of_separators_alone_has_no_documents(tmp_path):
    (tmp_path / "text.txt").write_text("\n\n\n\n")
    with pytest.raises(ConfigError, match=r"^data\.document_separator: '\\n\\n' does not part .* into documents$"):
        load_corpus(TextConfig(path=str(tmp_path / "text.txt"), document_separator="\n\n"))


def test_documents_are_held_out_whole(tmp_path):
    """So that a long last one is more than was asked for, which is said, and a long first one leaves none."""
    config = TextConfig(path=str(tmp_path / "text.txt"), document_separator="\n")
    (tmp_path / "text.txt").write_text("\n".join([*["ten of them"[:10]] * 9, "x" * 910]))
    with pytest.warns(UserWarning, match=r"^data\.validation_fraction: 91% of .* is held out, as documents are whole$"):
        assert len(load_corpus(config).train) == 90
    (tmp_path / "text.txt").write_text("x" * 910 + "\n" + "y" * 90)
    with pytest.raises(ConfigError, match=r"the first document is 91% of .*, so that none is for training$"):
        load_corpus(config)


def test_documents_may_be_shorter_than_rows(tmp_path):
    """Which are padded; only documents of one token have no label."""
    config = RunConfig(model=ModelConfig(max_length=1024))
    documents = TextConfig(path=str(tmp_path / "text.txt"), document_separator="\n")
    (tmp_path / "text.txt").write_text("to be\n" * 20)
    corpus = load_corpus(documents)
    assert corpus.validation_batches(corpus.complete(config))["weights"].sum() == 2 * 4
    (tmp_path / "text.txt").write_text("x\n" * 20)
    with pytest.raises(ConfigError, match=r"no document of the training part of .* has two tokens$"):
        load_corpus(documents).complete(config)


def test_tokens_are_nothing_for_a_model_of_vectors():
    config = RunConfig(model=VectorConfig(features=2, outputs=1), objective=Regression())
    with pytest.raises(ConfigError, match=r"^data: .* are tokens, and the objective regression reads vectors$"):
        load_corpus(TextConfig()).complete(config)


def test_a_packed_text_is_that_text(tmp_path):
    (tmp_path / "text.txt").write_bytes(b"to be\r\nor not\n")
    (tmp_path / "text.txt.gz").write_bytes(gzip.compress(b"to be\nor not\n"))
    plain, packed = (load_text(str(tmp_path / name)) for name in ("text.txt", "text.txt.gz"))
    assert plain.content == packed.content == "to be\nor not\n"
    assert plain.fingerprint == packed.fingerprint


def test_the_last_part_is_held_out_and_the_vocabulary_comes_from_the_text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("abcd" * 25)
    corpus = load_corpus(TextConfig(path=str(path), validation_fraction=0.2))
    assert (len(corpus.train), len(corpus.validation)) == (80, 20)
    assert corpus.tokenizer.decode(corpus.validation) == "abcd" * 5
    assert corpus.complete(RunConfig(model=ModelConfig(max_length=8))).model.vocab_size == 4
    assert corpus.complete(RunConfig(model=ModelConfig(max_length=8, vocab_size=9))).model.vocab_size == 9
    other = load_corpus(TextConfig(path=str(path), validation_fraction=0.3))
    assert other.fingerprint != corpus.fingerprint


def test_every_word_of_the_training_part_and_none_of_the_rest_is_in_a_vocabulary(tmp_path):
    """Where a text has long words first, and where the last document is a long one: parts are of characters."""
    pytest.importorskip("tokenizers")
    path, unknown = tmp_path / "text.txt", SPECIAL.index("<unk>")
    path.write_text("".join(f"international{i % 9} " for i in range(90)) + "a b c d e f g h " * 12)
    assert unknown not in load_corpus(TextConfig(path=str(path), tokenizer=Word())).train
    path.write_text("seen words " * 40 + "\n" + "later ones " * 40)
    path.write_text("name\n" + "acgt" * 5_000)  # with no word near the cut, it is between characters
    whole = load_corpus(TextConfig(path=str(path), tokenizer=ByteBPE(270)))
    assert len(whole.train) > 5 * len(whole.validation)
    path.write_text("seen words " * 40 + "\n" + "later ones " * 40)
    fields = {"document_separator": "\n", "validation_fraction": 0.4}
    corpus = load_corpus(TextConfig(path=str(path), tokenizer=Word(), **fields))
    assert set(corpus.validation) == {unknown}


@pytest.mark.parametrize("separator", [None, "\n"])
def test_a_tokenizer_is_trained_on_what_is_not_held_out(tmp_path, separator):
    pytest.importorskip("tokenizers")
    (tmp_path / "text.txt").write_text("seen words\n" * 90 + "later ones\n" * 10)
    config = TextConfig(path=str(tmp_path / "text.txt"), tokenizer=Word(), document_separator=separator)
    corpus = load_corpus(config)
    assert corpus.tokenizer.decode(corpus.train[:2]) == "seen words"
    assert (corpus.validation == SPECIAL.index("<unk>")).all()
    corpus = load_corpus(TextConfig(path=config.path, tokenizer=Symbols(), document_separator=separator))
    assert corpus.tokenizer.decode(corpus.validation[-2:]) == "later ones"


def test_a_corpus_shorter_than_a_block_or_beyond_the_vocabulary_is_refused(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("abcd" * 25)
    corpus = load_corpus(TextConfig(path=str(path)))

    def complete(length, vocab_size):
        return corpus.complete(RunConfig(model=ModelConfig(max_length=length, vocab_size=vocab_size)))

    assert complete(9, 4).model == ModelConfig(max_length=9, vocab_size=4)
    with pytest.raises(ConfigError, match=r"validation part of .*, 10 tokens; the longest that fits is 9"):
        complete(10, 4)
    with pytest.raises(ConfigError, match=r"token 3 at \(3,\) is not in \[0, 3\)"):
        complete(9, 3)


def test_a_run_is_on_the_data_it_is_given(tmp_path):
    """A config says what its data was loaded from; one that describes other data is refused."""
    (tmp_path / "text.txt").write_text("abcd" * 25)
    own = TextConfig(path=str(tmp_path / "text.txt"))
    corpus, config = load_corpus(own), RunConfig(model=ModelConfig(max_length=8))
    assert corpus.complete(config).data == corpus.complete(corpus.complete(config)).data == own
    with pytest.raises(ConfigError, match=r"describes .*embedded=sources.*, and the data given are .*text.txt"):
        corpus.complete(config.replace({"data": TextConfig(embedded="sources")}))
    unknown = dataclasses.replace(corpus, description=None)
    assert unknown.complete(config).data == config.data


def test_batches_are_a_pure_function_of_seed_and_step():
    tokens = np.arange(50, dtype=np.int32)
    first, again, other = (Blocks(tokens, 8, 4, seed) for seed in (0, 0, 1))
    assert first[7].keys() == {"tokens"}
    np.testing.assert_array_equal(first[7]["tokens"], again[7]["tokens"])
    assert (first[7]["tokens"] != other[7]["tokens"]).any()
    assert first[0]["tokens"].shape == (4, 9)
    block = first[3]["tokens"]
    np.testing.assert_array_equal(block - block[:, :1], np.tile(np.arange(9), (4, 1)))


def test_a_count_of_tokens_is_no_reference_for_hidden_ones():
    corpus, config = load_data(TextConfig()), RunConfig()
    size = corpus.tokenizer.vocab_size
    order = usual_order(size)
    loss = ngram_loss(corpus.train, corpus.validation, size, order)
    assert reference(config, corpus) == (f"Witten-Bell, {order} tokens of context", loss)
    masked = RunConfig(model=ModelConfig(causal=False), objective=MaskedToken())
    assert reference(masked, corpus) is None


def test_every_block_is_used_once_before_any_is_used_again():
    tokens = np.arange(24, dtype=np.int32)
    batches = Blocks(tokens, 8, 4, seed=5)
    starts = np.concatenate([batches[step]["tokens"][:, 0] for step in range(4)])
    assert sorted(starts) == list(range(16))


def test_replicas_of_one_seed_see_the_same_batches():
    tokens = np.arange(50, dtype=np.int32)
    a, b = Blocks(tokens, 8, 4, 0), Blocks(tokens, 8, 4, 1)
    batches = stack_batches([a, b, a], first=3, count=2)
    assert batches.keys() == {"tokens"}
    stacked = batches["tokens"]
    assert stacked.shape == (3, 2, 4, 9)
    np.testing.assert_array_equal(stacked[0], stacked[2])
    np.testing.assert_array_equal(stacked[1], np.stack([b[3]["tokens"], b[4]["tokens"]]))


@pytest.mark.parametrize("count", [9, 16, 17, 18, 33])
def test_the_whole_split_has_every_token_as_a_label_once(count):
    tokens = np.arange(1, count + 1, dtype=np.int32)
    split = whole_split(tokens, length=4, batch_size=2)
    labels = split["tokens"][..., 1:][split["weights"] == 1]
    np.testing.assert_array_equal(np.sort(labels), tokens[1:])
    inputs = split["tokens"][..., :-1][split["weights"] == 1]
    np.testing.assert_array_equal(inputs + 1, labels)


def test_a_mask_token_that_is_no_character(tmp_path):
    """An objective that hides tokens is refused where its mask would be an ordinary character."""
    (tmp_path / "text.txt").write_text("abcdefgh" * 200)
    config = preset("masked").replace({"data.path": str(tmp_path / "text.txt")})
    assert load_data(config.data).complete(config).model.vocab_size == 8 + 5
    plain = config.replace({"data.tokenizer": "char"})
    with pytest.raises(ConfigError, match=r"data\.tokenizer: masked_token needs the special tokens"):
        load_data(plain.data).complete(plain)


def test_what_fills_consecutive_rows_of_a_model_that_sees_all_is_said(tmp_path):
    """The held-out part of 50 tokens is the first ones of the streams, one after the other."""
    (tmp_path / "text.txt").write_text("".join(chr(97 + i % 26) for i in range(500)))
    config = RunConfig(
        model=ModelConfig(max_length=16, causal=False),
        data=TextConfig(path=str(tmp_path / "text.txt"), tokenizer=Char(special=True), consecutive=True),
        objective=MaskedToken(),
        batch_size=4,
    )
    corpus = load_corpus(config.data)
    batch = corpus.validation_batches(corpus.complete(config))
    assert batch["valid"].sum() == len(corpus.validation) == 50
    assert (batch["tokens"][..., :-1][batch["valid"]] == corpus.validation).all()


def test_consecutive_rows_are_those_of_a_model_with_segment_memory(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("".join(chr(97 + i % 26) for i in range(2000)))
    base = RunConfig(model=ModelConfig(max_length=8), data=TextConfig(path=str(path)), batch_size=4)
    remembers = base.replace({"model.memory_length": 8, "model.position": None})
    consecutive = base.replace({"data.consecutive": True})
    batches = {}
    for name, config in {"plain": base, "remembers": remembers, "consecutive": consecutive}.items():
        corpus = load_corpus(config.data)
        config = corpus.complete(config)
        batches[name] = [corpus.train_batches(config, 0)[step]["tokens"] for step in range(2)]
        batches[name].append(corpus.validation_batches(config)["tokens"])
    for own, other in zip(batches["consecutive"], batches["remembers"], strict=True):
        np.testing.assert_array_equal(own, other)
    first, second, _ = batches["consecutive"]
    np.testing.assert_array_equal(first[:, -1], second[:, 0])
    assert (batches["plain"][0] != first).any()
    with pytest.raises(ConfigError, match=r"data\.consecutive: rows of packed documents do not follow each other"):
        TextConfig(consecutive=True, document_separator="\n")


def test_an_encoder_does_not_see_what_fills_the_last_block(tmp_path):
    (tmp_path / "text.txt").write_text("abcdefghij" * 20)
    corpus = load_data(
        TextConfig(path=str(tmp_path / "text.txt"), tokenizer=Char(special=True), validation_fraction=0.07)
    )
    causal = RunConfig(model=ModelConfig(max_length=8), data=corpus.description)
    masked = RunConfig(model=ModelConfig(max_length=8, causal=False), objective=MaskedToken(), data=corpus.description)
    assert "valid" not in corpus.validation_batches(causal)
    batches = corpus.validation_batches(masked)
    flat = batches["valid"].reshape(-1)
    assert (flat.sum(), flat[: len(corpus.validation)].all()) == (len(corpus.validation), True)


def test_prefixes_are_not_taken_of_rows_of_documents(tmp_path):
    (tmp_path / "text.txt").write_text("to be\nor not\n" * 50)
    data = TextConfig(path=str(tmp_path / "text.txt"), document_separator="\n")
    config = RunConfig(data=data, objective=PrefixToken())
    with pytest.raises(ConfigError, match=r"^data\.document_separator: prefix_token.* takes a share of rows"):
        load_corpus(data).complete(config)
