"""Texts with a label for each word: lines that parse, pieces of words, values of the parts of expressions."""

import json

import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.data.dataset import load_data
from transformer.data.tagged import TaggedConfig, TaggingRun, _pieces, parse_tagged
from transformer.data.tasks.list_operations import ListOps, expression_values
from transformer.data.tokenizer_training import make_tokenizer
from transformer.data.tokenizers import PAD
from transformer.mixers.attention.attention import Attention
from transformer.models.classifier import ClassifierConfig
from transformer.models.pooling import PerToken
from transformer.runs.config import grid
from transformer.runs.tokenizers import BPE, SPECIAL, Byte, ByteBPE, Char, FromFile, Symbols, Word, WordPiece
from transformer.training.loop import train
from transformer.training.stored import StoredRun

LINES = "the\tD\nold\tA\ncat\tN\n\nold\tN\n\n\nthe\tD\ncat\tN\n"


def tagged(tmp_path, content=LINES, name="train.txt", **fields):
    path = tmp_path / name
    path.write_text(content)
    return TaggedConfig(**{"path": str(path), "tokenizer": Symbols(), "validation_fraction": 0.6} | fields)


def test_expression_values_by_hand():
    """Of a digit itself, of an operator and its bracket the value of all between them."""
    symbols = ["[MAX", "2", "[SM", "7", "5", "]", "[MIN", "4", "[MED", "1", "8", "9", "]", "]", "]"]
    assert expression_values(symbols) == [4, 2, 2, 7, 5, 2, 4, 4, 8, 1, 8, 9, 8, 4, 4]


def test_values_of_all_parts():
    """The question alone, each operator and bracket with a label that counts, the outermost with the answer."""
    task = ListOps(max_depth=3, max_arguments=3, max_length=20)
    data = load_data(TaggedConfig(task=task, examples=40, validation_examples=10))
    for part, count in ((data.train, 40), (data.validation, 10)):
        assert part["inputs"].shape == part["labels"].shape == part["weights"].shape == (count, 20)
        np.testing.assert_array_equal(part["valid"], part["inputs"] != PAD)
        arrays = (part[name] for name in ("inputs", "valid", "labels", "weights"))
        for tokens, valid, labels, weights in zip(*arrays, strict=True):
            symbols = data.tokenizer.decode(tokens[valid]).split()
            assert labels[valid].tolist() == expression_values(symbols)
            assert [not s.isdigit() for s in symbols] == weights[valid].astype(bool).tolist()
            assert not weights[~valid].any()
    model = data.complete(TaggingRun()).model
    assert (model.vocab_size, model.num_classes) == (len(SPECIAL) + len(task.symbols), 10)


def test_a_file_of_words(tmp_path):
    """Texts end at empty lines, are padded to the longest, and the last of them are held out."""
    data = load_data(tagged(tmp_path))
    assert data.classes == ("A", "D", "N")
    assert [data.tokenizer.decode(row) for row in data.train["inputs"]] == ["the old cat"]
    assert data.train["labels"].tolist() == [[1, 0, 2]]
    assert data.validation["labels"].tolist() == [[2, 0, 0], [1, 2, 0]]
    assert data.validation["weights"].tolist() == [[1, 0, 0], [1, 1, 0]]
    assert data.reference()[1] == pytest.approx(-(2 * np.log(2 / 6) + np.log(2 / 6)) / 3)


def test_the_first_piece_of_a_word_has_its_label(tmp_path):
    """The others are read and do not count."""
    data = load_data(tagged(tmp_path, "ab\tX\nb\tY\n\nba\tX\n", tokenizer=Char(special=True), validation_fraction=0.5))
    assert data.tokenizer.decode(data.train["inputs"][0]) == "ab b"
    assert data.train["weights"].tolist() == [[1, 0, 0, 1]]
    assert data.train["labels"][0, [0, 3]].tolist() == [0, 1]


@pytest.mark.parametrize("tokenizer", [Char(), Char(special=True), Byte()], ids=str)
def test_words_of_characters_are_apart(tmp_path, tokenizer):
    """Two texts that differ in where a word ends are two inputs."""
    data = load_data(tagged(tmp_path, "ab\tX\ncd\tY\n\nabc\tX\nd\tY\n", tokenizer=tokenizer, validation_fraction=0.5))
    rows = [part["inputs"][0] for part in (data.train, data.validation)]
    assert [data.tokenizer.decode(row) for row in rows] == ["ab cd", "abc d"]
    assert [part["weights"][0].tolist() for part in (data.train, data.validation)] == [[1, 0, 0, 1, 0], [1, 0, 0, 0, 1]]


def test_words_have_the_tokens_of_the_text_that_they_are_in(tmp_path):
    """Of bytes too, whose pieces hold the space before them."""
    words = [f"{first}{second}" for first in ("ab", "cde", "fg") for second in ("hi", "jkl", "mn")] * 3
    path = tmp_path / "train.txt"
    path.write_text("".join(f"{word}\tX\n" for word in words) + "\n" + "abhi\tX\nfgmn\tX\n")
    for tokenization in (ByteBPE(290), BPE(60), WordPiece(60)):
        data = load_data(TaggedConfig(path=str(path), tokenizer=tokenization, validation_fraction=0.6))
        tokens = data.train["inputs"][0][data.train["valid"][0]]
        np.testing.assert_array_equal(tokens, data.tokenizer.encode(" ".join(words)))


def test_words_of_a_tokenizer_that_marks_the_beginning_of_a_text(tmp_path):
    """As Llama 2's does: a word within a text has no mark of its own besides that of the space."""
    from tokenizers import Tokenizer, models, normalizers

    pieces = ["<unk>", "▁", "a", "b", "▁a", "▁b", "▁ab"]
    made = Tokenizer(models.BPE({p: i for i, p in enumerate(pieces)}, [("▁", "a"), ("▁", "b"), ("▁a", "b")]))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.save(str(tmp_path / "llama.json"))
    tokenizer = make_tokenizer(FromFile(str(tmp_path / "llama.json")), [])
    tokens, labels, scored = _pieces([("ab", "X"), ("b", "Y"), ("ba", "X")], tokenizer, ("X", "Y"))
    assert tokens.tolist() == tokenizer.encode("ab b ba").tolist() == [6, 5, 5, 2]
    assert labels.tolist() == [0, 1, 0, 0]
    assert scored.tolist() == [True, True, True, False]


def test_fingerprints(tmp_path):
    """Of words, labels and split."""
    configs = [
        tagged(tmp_path),
        tagged(tmp_path, LINES.replace("old\tA", "old\tN"), "label.txt"),
        tagged(tmp_path, validation_path=str(tmp_path / "train.txt"), validation_fraction=0.1),
        TaggedConfig(task=ListOps(2, 3, 15), examples=20, validation_examples=5),
        TaggedConfig(task=ListOps(2, 3, 16), examples=20, validation_examples=5),
    ]
    assert len({load_data(config).fingerprint for config in configs}) == len(configs)


@pytest.mark.parametrize("line", ["word", " ", "\tN", "word\t", "word\t ", "EU\tNNP\tB-ORG"])
def test_a_wrong_line_is_named_by_its_number(tmp_path, line):
    path = tmp_path / "data.txt"
    path.write_text(f"a\tN\n\n{line}\n")
    with pytest.raises(ConfigError, match=r"^data\.path: line 3 of .*data\.txt is not word<TAB>label"):
        parse_tagged(str(path))


def test_the_field_of_the_held_out_file_is_named(tmp_path):
    """Whatever is wrong with it; of the training file its own."""
    lines = {
        "": r"^data\.validation_path: .*held\.txt is empty",
        "\n\n": r"^data\.validation_path: .*held\.txt leaves a part without texts",
        "word": r"^data\.validation_path: line 1 of .*held\.txt is not word<TAB>label",
        "word\tV\n": r"^data\.validation_path: the class 'V' of the validation part",
        "a\tX\rb\tY\r": r"^data\.validation_path: .*held\.txt has carriage returns and no line feeds",
    }
    fields = {"validation_path": str(tmp_path / "held.txt"), "validation_fraction": 0.1}
    for content, message in lines.items():
        (tmp_path / "held.txt").write_bytes(content.encode())
        with pytest.raises(ConfigError, match=message):
            load_data(tagged(tmp_path, **fields))
    (tmp_path / "held.txt").write_text(LINES)
    with pytest.raises(ConfigError, match=r"^data\.path: .*train\.txt leaves a part without texts"):
        load_data(tagged(tmp_path, "\n\n", **fields))


def test_a_word_without_a_token_is_named_with_its_line(tmp_path):
    library = pytest.importorskip("tokenizers")
    nothing = library.Tokenizer(library.models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    nothing.normalizer = library.normalizers.Replace("-", "")
    nothing.pre_tokenizer = library.pre_tokenizers.WhitespaceSplit()
    nothing.save(str(tmp_path / "tokenizer.json"))
    tokenizer = FromFile(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ConfigError, match=r"^data\.path: the tokenizer has no token for the word '-' of line 5$"):
        load_data(tagged(tmp_path, "the\tD\ncat\tN\n\nthe\tD\n-\tN\n", tokenizer=tokenizer))


def test_what_cannot_be_trained_on(tmp_path):
    """A class of the held-out part alone, and a part without texts."""
    with pytest.raises(ConfigError, match="the class 'V' of the validation part has no word for training"):
        load_data(tagged(tmp_path, LINES + "\nsat\tV\n"))
    with pytest.raises(ConfigError, match="leaves a part without texts"):
        load_data(tagged(tmp_path, "a\tN\n"))
    data = load_data(tagged(tmp_path))
    with pytest.raises(ConfigError, match=r"model.max_length: 2, but .* has 3 tokens"):
        data.complete(TaggingRun(model=ClassifierConfig(max_length=2, pooling=TaggingRun().model.pooling)))


def test_a_closed_vocabulary_holds_the_held_out_part(tmp_path):
    (tmp_path / "tags.txt").write_text("a\tX\nb\tY\n\n" * 9 + "a\tX\né\tY\n")
    data = load_data(TaggedConfig(path=str(tmp_path / "tags.txt"), tokenizer=Char()))
    assert data.tokenizer.decode(data.validation["inputs"][0][:3]) == "a é"


def test_tokens_around_a_text_are_refused(tmp_path):
    definition = json.loads(make_tokenizer(Word(), ["a b"]).definition)
    (tmp_path / "tokenizer.json").write_text(json.dumps(definition))
    (tmp_path / "tags.txt").write_text("a\tX\nb\tY\n\n" * 9)
    tokenizer = FromFile(str(tmp_path / "tokenizer.json"), special=True)
    with pytest.raises(ConfigError, match=r"^data.tokenizer: the tokens around a text have no labels; use special"):
        load_data(TaggedConfig(path=str(tmp_path / "tags.txt"), tokenizer=tokenizer))


@pytest.mark.parametrize("tokenizer", [Symbols(), Char()], ids=str)
def test_a_tagger_is_asked_by_text(tmp_path, tokenizer):
    """Of each word the class of its first token; what pads a text has no part."""
    small = {"num_layers": 1, "d_model": 16, "max_length": 24, "mixer": Attention(num_heads=2), "pooling": PerToken()}
    config = TaggingRun(
        model=ClassifierConfig(**small), data=tagged(tmp_path, LINES * 6, tokenizer=tokenizer), steps=60
    )
    config = config.replace({"optimizer.warmup_steps": 5, "optimizer.learning_rate": 1e-2}, batch_size=8)
    run = train(config, grid(1), load_data(config.data), tmp_path / "run")
    assert run.tag(" the  old cat") == [("the", "D"), ("old", "A"), ("cat", "N")]
    with pytest.raises(ConfigError, match=r"^tag: the text has no words$"):
        run.tag(" ")
    with pytest.raises(ConfigError, match=r"^tokenizer: no token for "):
        run.tag("the dog")
    with pytest.raises(ConfigError, match=r"^generate: .* holds no causal language model of text; tag\(text\) is for"):
        run.generate("the")


def test_a_tagger_is_not_sent_to_classify(tmp_path):
    """Which is for whole texts."""
    run = StoredRun(tmp_path, TaggingRun(), (), {}, *[np.zeros(0)] * 4, 0, "")
    with pytest.raises(ConfigError, match=r"^generate: .* holds no causal language model of text; tag\(text\) is for"):
        run.generate("a")
