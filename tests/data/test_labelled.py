"""Texts with labels: lines that parse, classes and lengths, what does not fit."""

import itertools
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.data import dataset
from transformer.data.dataset import EVALUATION_BATCH, load_data, pad_rows
from transformer.data.labelled import ClassificationRun, LabelledConfig, parse_labelled
from transformer.data.tagged import TaggedConfig
from transformer.data.tasks.list_operations import ListOps
from transformer.data.tokenizers import PAD
from transformer.mixers.attention.attention import Attention
from transformer.models.classifier import ClassifierConfig
from transformer.models.pooling import AttentionPooling
from transformer.runs.config import grid
from transformer.runs.tokenizers import SPECIAL, Char, FromFile, Symbols
from transformer.training.loop import train
from transformer.training.stored import load_run

SMALL = {"examples": 60, "validation_examples": 20}
LISTOPS = ListOps(max_depth=2, max_arguments=3, max_length=16)


def rows(array):
    return {bytes(row) for row in array}


def test_list_operations_as_classes():
    """The expression without `=` and answer is the input, its value the class."""
    data = load_data(LabelledConfig(task=LISTOPS, **SMALL))
    train = data.train
    assert train["inputs"].shape == train["valid"].shape == (60, LISTOPS.max_length)
    assert (train["labels"].dtype, train["labels"].shape) == (np.int32, (60,))
    assert data.classes == tuple("0123456789")
    np.testing.assert_array_equal(train["valid"], train["inputs"] != PAD)
    compute = {"[MIN": min, "[MAX": max, "[SM": lambda v: sum(v) % 10, "[MED": lambda v: int(np.median(v))}
    flat = 0
    for inputs, valid, label in zip(train["inputs"], train["valid"], train["labels"], strict=True):
        symbols = data.tokenizer.decode(inputs[valid]).split()
        assert symbols[0] in compute
        assert symbols[-1] == "]"
        assert "=" not in symbols
        if sum(s in compute for s in symbols) == 1:
            assert compute[symbols[0]]([int(s) for s in symbols[1:-1]]) == label
            flat += 1
    assert flat > 10
    assert not rows(train["inputs"]) & rows(data.validation["inputs"])
    assert len(rows(train["inputs"])) == 60


def test_fingerprints_of_list_operations():
    """Of the expressions and of the split."""
    configs = [{}, {"examples": 61}, {"validation_examples": 21}, {"task": ListOps(2, 3, 15)}]
    prints = [load_data(LabelledConfig(**{"task": LISTOPS} | SMALL | fields)).fingerprint for fields in configs]
    assert len(set(prints)) == len(prints)
    assert load_data(LabelledConfig(task=LISTOPS, **SMALL)).fingerprint == prints[0]


LINES = [f"{label}\t{' '.join(text * n)}" for label, text in (("good", "ab"), ("bad", "cd")) for n in (1, 2, 3)]


def test_a_trained_run_classifies(tmp_path):
    """A text as it stands alone: what pads it has no part; the likeliest class first."""
    small = {"num_layers": 1, "d_model": 16, "max_length": 16, "mixer": Attention(num_heads=2)}
    model = ClassifierConfig(**small, pooling=AttentionPooling())
    config = ClassificationRun(model=model, data=labelled(tmp_path, LINES * 8), steps=60, batch_size=8)
    config = config.replace({"optimizer.warmup_steps": 5, "optimizer.learning_rate": 1e-2})
    data = load_data(config.data)
    outcome, run = train(config, grid(2), data, tmp_path / "run"), load_run(tmp_path / "run")
    np.testing.assert_array_equal(outcome.confusion(), run.confusion())
    found = run.classify("a b a b a b", replica=1)
    assert list(found) == ["good", "bad"]
    assert found["good"] > 0.9
    tokens_1L = run.tokenizers["tokenizer"].encode("a b a b a b")[None]
    expected = jax.nn.softmax(run.apply(run.params(1), jnp.asarray(tokens_1L))[0])
    np.testing.assert_allclose([found["bad"], found["good"]], expected, rtol=1e-5)
    assert next(iter(run.classify("c d"))) == "bad"
    counts, held_out = (
        run.confusion(replica=0),
        [line.split("\t") for line in (LINES * 8)[-len(data.validation["labels"]) :]],
    )
    for (i, label), (j, other) in itertools.product(enumerate(run.classes), repeat=2):
        given = [next(iter(run.classify(text, replica=0))) for own, text in held_out if own == label]
        assert counts[i, j] == given.count(other)
    assert run.classes == ("bad", "good")
    assert counts.sum() == len(held_out) > 3
    vars(run)["apply"] = lambda params, inputs, valid_BL: jnp.eye(2)[jnp.zeros(len(inputs), jnp.int32)]
    labels = data.validation["labels"]
    assert run.confusion().tolist() == [[(labels == 0).sum(), 0], [(labels == 1).sum(), 0]]  # all taken for the first
    more = jnp.array([0.0, 1.0, 2.0])  # a class that the model has and the data lack is none to be taken for
    vars(run)["apply"] = lambda params, inputs, valid_BL: jnp.broadcast_to(more, (len(inputs), 3))
    assert run.confusion().tolist() == [[0, (labels == 0).sum()], [0, (labels == 1).sum()]]
    del vars(run)["apply"]
    with pytest.raises(ConfigError, match="classify: the text has no tokens"):
        run.classify("")
    with pytest.raises(ConfigError, match=r"generate: .*; classify\(text\) is for a classifier"):
        run.generate("a b")


def labelled(tmp_path, lines=LINES, name="train.tsv", **fields):
    path = tmp_path / name
    path.write_text("\n".join(lines))
    return LabelledConfig(path=str(path), tokenizer=Symbols(), **fields)


def validated(tmp_path, lines=LINES[:2]):
    path = tmp_path / "validation.tsv"
    path.write_text("\n".join(lines))
    return {"validation_path": str(path)}


def test_labelled_files(tmp_path):
    """Texts are padded to the longest of both parts, and classes are numbered in order of their names."""
    data = load_data(labelled(tmp_path, **validated(tmp_path)))
    assert data.classes == ("bad", "good")
    assert data.train["labels"].tolist() == [1, 1, 1, 0, 0, 0]
    assert data.train["valid"].sum(1).tolist() == [2, 4, 6, 2, 4, 6]
    assert data.tokenizer.decode(data.train["inputs"][1]) == "a b a b"
    assert data.validation["inputs"].shape == (2, 6)
    assert not data.train["inputs"][~data.train["valid"]].any()


def test_the_last_lines_are_held_out(tmp_path):
    """A share of the file, in its order."""
    lines = LINES * 5
    data = load_data(labelled(tmp_path, lines, validation_fraction=0.2))
    assert len(data.train["labels"]) == 24
    assert data.validation["labels"].tolist() == [1, 1, 1, 0, 0, 0]


def test_a_file_with_one_class_after_the_other(tmp_path):
    """Its last lines are of one class, by which nothing could be measured."""
    lines = sorted(LINES * 5)
    with pytest.raises(ConfigError, match=r"sorted by class, so that only 'good' would be held out; shuffle"):
        load_data(labelled(tmp_path, lines))
    assert load_data(labelled(tmp_path, [*lines[:-1], lines[0]])).classes == ("bad", "good")
    assert load_data(labelled(tmp_path, lines, **validated(tmp_path))).classes == ("bad", "good")


def test_fingerprints_of_files(tmp_path):
    """Of training and validation texts, labels and split."""
    twice = LINES * 5
    swapped = ["good\ta b", "bad\ta b", *twice[2:]]
    configs = [
        labelled(tmp_path, twice),
        labelled(tmp_path, swapped, "swapped.tsv"),
        labelled(tmp_path, twice, validation_fraction=0.3),
        labelled(tmp_path, twice, **validated(tmp_path)),
    ]
    prints = [load_data(config).fingerprint for config in configs]
    assert len(set(prints)) == len(prints)
    assert load_data(labelled(tmp_path, twice, "copy.tsv")).fingerprint == prints[0]


def test_a_class_without_training_texts(tmp_path):
    """It is named, and so is a part without texts."""
    with pytest.raises(ConfigError, match="the class 'new' of the validation part has no text for training"):
        load_data(labelled(tmp_path, **validated(tmp_path, ["new\ta"])))
    numbers = [f"{i / 7:.2f}\ta b" for i in range(40)]
    with pytest.raises(ConfigError, match=r"; its labels are numbers, and regression on texts is not shipped$"):
        load_data(labelled(tmp_path, numbers, "numbers.tsv"))
    with pytest.raises(ConfigError, match="leaves a part without texts"):
        load_data(labelled(tmp_path, LINES[:1]))


def classifier(**model):
    return ClassificationRun(model=ClassifierConfig(**model))


def test_a_model_for_labelled_texts(tmp_path):
    """Vocabulary and classes come from the data; what does not fit is refused with the number."""
    data = load_data(labelled(tmp_path, **validated(tmp_path)))
    model = data.complete(classifier()).model
    assert (model.vocab_size, model.num_classes) == (len(SPECIAL) + 4, 2)
    assert data.complete(classifier(num_classes=5)).model.num_classes == 5
    assert data.complete(classifier(max_length=6)).model.max_length == 6
    with pytest.raises(ConfigError, match=r"model.max_length: 5, but .* has 6 tokens"):
        data.complete(classifier(max_length=5))
    with pytest.raises(ConfigError, match=r"model.num_classes: 1, but 2 in the data"):
        data.complete(classifier(num_classes=1))
    with pytest.raises(ConfigError, match=r"is not in \[0, 6\)"):
        data.complete(classifier(vocab_size=6))


def test_batches_of_labelled_texts(tmp_path):
    """Training batches by step; the validation part once, with a weight for each text."""
    data = load_data(labelled(tmp_path, **validated(tmp_path)))
    config = classifier().replace(batch_size=3)
    one, again = (data.train_batches(config, 4) for _ in range(2))
    np.testing.assert_array_equal(one[5]["inputs"], again[5]["inputs"])
    epoch = np.concatenate([one[step]["inputs"] for step in range(2)])
    assert rows(epoch) == rows(data.train["inputs"])
    batch = data.validation_batches(config)
    assert batch["weights"].shape == (1, EVALUATION_BATCH, 1)
    assert batch["weights"].sum() == 2
    np.testing.assert_array_equal(batch["labels"][batch["weights"][..., 0] == 1], data.validation["labels"])


def test_reference_of_labelled_texts(tmp_path):
    """The loss of a guess by the frequency of the classes, counted from one."""
    data = load_data(labelled(tmp_path, LINES[:4], **validated(tmp_path)))
    name, loss = data.reference()
    assert name == "frequency of the classes"
    assert loss == pytest.approx(-np.log((3 + 1) / (4 + 2)))


def written(path, content):
    path.write_bytes(content.encode())
    return str(path)


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_lines(tmp_path, end):
    path = written(tmp_path / "data.tsv", f"pos\tschön, très\u2028bien\nneg\ta\tb{end}")
    assert parse_labelled(path) == [("pos", "schön, très\u2028bien"), ("neg", "a\tb")]


@pytest.mark.parametrize("line", ["no tab", "", "\ttext", "label\t", "label\t  "])
def test_a_wrong_line_is_named_by_its_number(tmp_path, line):
    path = written(tmp_path / "data.tsv", f"a\tone\n{line}\nb\ttwo\n")
    with pytest.raises(ConfigError, match=r"line 2 of .*data\.tsv is not label<TAB>text"):
        parse_labelled(path)


def test_a_table_as_a_text_is_told_its_way(tmp_path):
    path = written(tmp_path / "train.csv", "label,text\na,b\n")
    with pytest.raises(
        ConfigError, match=r"is not label<TAB>text; columns of a table are named, hub:FOLDER:train:label"
    ):
        parse_labelled(path)


def test_a_text_in_place_of_a_value_of_the_data_is_refused():
    with pytest.raises(ConfigError, match=r"^data\.tokenizer: 'word' is not Tokenization"):
        LabelledConfig(tokenizer=typing.cast(typing.Any, "word"))


def test_wrong_files_are_one_line(tmp_path):
    written(tmp_path / "train.tsv", "a\tb")
    with pytest.raises(ConfigError, match=r"no file .*trian\.tsv; did you mean .*train\.tsv\?"):
        parse_labelled(str(tmp_path / "trian.tsv"))
    with pytest.raises(ConfigError, match="is empty"):
        parse_labelled(written(tmp_path / "empty.tsv", ""))
    (tmp_path / "latin.tsv").write_bytes(b"a\tcaf\xe9")
    with pytest.raises(ConfigError, match="not UTF-8"):
        parse_labelled(str(tmp_path / "latin.tsv"))


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"path": "own.tsv", "examples": 4}, "examples: 4 would change nothing: it is of expressions, and data.path"),
        ({"path": "own.tsv", "validation_examples": 4}, "validation_examples: 4 would change nothing"),
        ({"path": "own.tsv", "task": LISTOPS}, "task: .* would change nothing"),
        ({"tokenizer": Char()}, "tokenizer: char would change nothing: it is of texts of a data.path"),
        ({"validation_fraction": 0.2}, "validation_fraction: 0.2 would change nothing"),
        (
            {"path": "own.tsv", "validation_path": "other.tsv", "validation_fraction": 0.2},
            r"validation_fraction: 0\.2 would change nothing: data\.validation_path is given",
        ),
        ({"examples": 0}, "examples: 0 is not a number from 1 on"),
    ],
)
def test_what_the_other_kind_of_text_would_read_is_refused(fields, line):
    with pytest.raises(ConfigError, match=rf"^data\.{line}"):
        LabelledConfig(**fields)


@pytest.mark.parametrize("kind", [LabelledConfig, TaggedConfig])
def test_texts_held_out_are_of_a_file(kind):
    """ListOps would leave them unread."""
    with pytest.raises(ConfigError, match=r"data\.validation_path: ListOps, drawn without data\.path, .*; set both"):
        kind(validation_path="held_out.tsv")


def test_signs_that_no_one_sees_make_no_class(tmp_path):
    """A byte-order mark, and spaces after a label; the vocabulary of characters holds the held-out part too."""
    (tmp_path / "texts.tsv").write_bytes(b"\xef\xbb\xbf" + "good\ta\ngood \tb\nbad\ta\nbad\té\n".encode())
    config = LabelledConfig(path=str(tmp_path / "texts.tsv"), tokenizer=Char(), validation_fraction=0.25)
    data = load_data(config)
    assert data.classes == ("bad", "good")
    assert data.tokenizer.vocab_size == 3


def test_a_text_without_a_token_is_named(tmp_path):
    library = pytest.importorskip("tokenizers")
    (tmp_path / "own.tsv").write_text("x\tone\ny\t-\n" * 5)
    nothing = library.Tokenizer(library.models.WordLevel({"one": 0, "<unk>": 1}, unk_token="<unk>"))
    nothing.normalizer = library.normalizers.Replace("-", "")
    nothing.save(str(tmp_path / "tokenizer.json"))
    config = LabelledConfig(path=str(tmp_path / "own.tsv"), tokenizer=FromFile(path=str(tmp_path / "tokenizer.json")))
    with pytest.raises(ConfigError, match=r"^data\.path: the tokenizer has no token for the text '-' of line 2$"):
        load_data(config)
    (tmp_path / "own.tsv").write_text("x\tone\n" * 9 + "y\tone\n" * 9 + "x\t-\n")
    with pytest.raises(ConfigError, match=r"^data\.path: the tokenizer has no token for the text '-' of line 19$"):
        load_data(config)


def test_the_field_of_the_held_out_file_is_named(tmp_path):
    """Whatever is wrong with it."""
    with pytest.raises(ConfigError, match=r"^data\.validation_path: no file .*lv\.tsv"):
        load_data(labelled(tmp_path, validation_path=str(tmp_path / "lv.tsv")))
    for content, message in {
        "": "lv.tsv is empty",
        "no tab": "line 1 of .*lv.tsv is not label<TAB>text",
        "new\ta b": "the class 'new' of the validation part has no text for training",
        "good\ta\rbad\tb\r": "lv.tsv has carriage returns and no line feeds",
    }.items():
        (tmp_path / "lv.tsv").write_bytes(content.encode())
        with pytest.raises(ConfigError, match=rf"^data\.validation_path: .*{message}"):
            load_data(labelled(tmp_path, validation_path=str(tmp_path / "lv.tsv")))


@pytest.mark.parametrize(("fraction", "count"), [(0.8, 8), (0.01, 1)])
def test_the_share_that_is_held_out_is_not_rounded_down(tmp_path, fraction, count):
    (tmp_path / "own.tsv").write_text("x\tone\ny\ttwo\n" * 5)
    data = load_data(LabelledConfig(path=str(tmp_path / "own.tsv"), tokenizer=Char(), validation_fraction=fraction))
    assert len(data.validation["labels"]) == count


def test_rows_that_would_be_too_large_are_refused(monkeypatch):
    monkeypatch.setattr(dataset, "LARGEST", 20)
    with pytest.raises(ConfigError, match=r"^data: 3 rows padded to the longest, of 7 tokens, would be"):
        pad_rows([np.zeros(length, int) for length in (1, 7, 2)], 7)
