"""Algorithmic tasks and labelled texts as data: what is scored, what is held out, what does not fit."""

import numpy as np
import pytest

from transformer.config.model import ClassifierConfig, ModelConfig
from transformer.config.run import RunConfig
from transformer.config.tokenizers import Symbols
from transformer.config.variant import ConfigError
from transformer.data.algorithmic import Addition, AlgorithmicTask, AssociativeRecall, Copy, Induction, ListOps
from transformer.data.dataset import load_data, stack_batches
from transformer.data.puzzles import (
    EVALUATION_BATCH,
    AlgorithmicConfig,
    AlgorithmicRun,
    ClassificationRun,
    LabelledConfig,
)
from transformer.data.tokenizers import PAD, SPECIAL

SMALL = {"examples": 60, "validation_examples": 20}
LISTOPS = ListOps(max_depth=2, max_arguments=3, max_length=16)
TASKS = [
    {AssociativeRecall: AssociativeRecall(16, 16, 2), Induction: Induction(8), ListOps: LISTOPS}.get(cls) or cls()
    for cls in AlgorithmicTask.variants().values()
    if cls.__module__.startswith("transformer.")
]


def puzzles(task=None, **fields):
    return load_data(AlgorithmicConfig(task=task or Addition(), **SMALL | fields))


def run_config(task=None, length=64, **model):
    return AlgorithmicRun(
        model=ModelConfig(max_length=length, **model), data=AlgorithmicConfig(task=task or Addition())
    )


def rows(array):
    return {bytes(row) for row in array}


# Puzzles.


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_held_out_examples_are_distinct(task):
    """None is in both parts, and none is twice in a part."""
    data = puzzles(task)
    train, validation = rows(data.train["tokens"]), rows(data.validation["tokens"])
    assert (len(train), len(validation)) == (60, 20)
    assert not train & validation


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_answers_have_weight(task):
    """The labels of weight 1 are the tokens that the task scores, shifted as labels are."""
    data = puzzles(task)
    tokens, weights = data.train["tokens"], data.train["weights"]
    assert tokens.shape == (60, task.length)
    assert weights.shape == (60, task.length - 1)
    assert weights.dtype == np.float32
    assert (weights.sum(1) >= 1).all()
    assert (tokens[:, 1:][weights == 1] != PAD).all()


def test_an_addition_is_scored_from_its_equals_sign():
    """Every digit of the sum and nothing else."""
    data = puzzles(Addition(digits=2, reverse=False))
    for tokens, weights in zip(data.train["tokens"], data.train["weights"], strict=True):
        question, answer = data.tokenizer.decode(tokens).replace(" ", "").split("=")
        a, b = question.split("+")
        assert int(a) + int(b) == int(answer)
        assert data.tokenizer.decode(tokens[1:][weights == 1]).replace(" ", "") == answer


def test_fingerprints():
    """Any field that changes the examples changes it; the same config has the same."""
    configs = [{}, {"seed": 1}, {"examples": 61}, {"validation_examples": 21}, {"task": Addition(reverse=False)}]
    prints = [puzzles(**fields).fingerprint for fields in configs]
    assert len(set(prints)) == len(prints)
    assert puzzles().fingerprint == prints[0]
    assert puzzles(Copy()).fingerprint not in prints


def test_batches_are_a_pure_function_of_seed_and_step():
    """Every example once before any is used again; another seed has another order of the same examples."""
    data, config = puzzles(), run_config().replace(batch_size=6)
    one, again, other = (data.train_batches(config, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one[7]["tokens"], again[7]["tokens"])
    assert (one[0]["tokens"] != other[0]["tokens"]).any()
    for batches in (one, other):
        epoch = np.concatenate([batches[step]["tokens"] for step in range(10)])
        assert rows(epoch) == rows(data.train["tokens"])
    assert stack_batches([one, other], 3, 2)["weights"].shape == (2, 2, 6, 11)


@pytest.mark.parametrize("multiple", [1, 2])
def test_validation_batches_hold_every_row_once(multiple):
    """In order, and what fills the last batch has no weight."""
    data = puzzles()
    batch = data.validation_batches(run_config(), multiple)
    assert batch["tokens"].shape == (1, multiple * EVALUATION_BATCH, 12)
    real = batch["weights"].sum(-1) > 0
    np.testing.assert_array_equal(batch["tokens"][real], data.validation["tokens"])
    assert batch["weights"].sum() == data.validation["weights"].sum()


def test_more_rows_than_a_batch():
    """The rows go on in the next batch."""
    data = puzzles(examples=1, validation_examples=EVALUATION_BATCH + 3)
    batch = data.validation_batches(run_config(), 1)
    assert batch["tokens"].shape[:2] == (2, EVALUATION_BATCH)
    np.testing.assert_array_equal(batch["tokens"][1, :3], data.validation["tokens"][-3:])
    assert not batch["weights"][1, 3:].any()


def test_a_model_for_a_puzzle():
    """The vocabulary is the task's; a model that is too short or too small is refused with the number."""
    data = puzzles()
    assert data.complete(run_config()).model.vocab_size == len(SPECIAL) + 12
    assert data.complete(run_config(length=11)).model.max_length == 11
    with pytest.raises(ConfigError, match=r"model.max_length: 10, but addition.* has 11 tokens"):
        data.complete(run_config(length=10))
    with pytest.raises(ConfigError, match=r"is not in \[0, 9\)"):
        data.complete(run_config(vocab_size=9))
    with pytest.raises(ConfigError, match="only 4 distinct examples"):
        puzzles(Copy(items=4, alphabet=1), examples=4, validation_examples=1)


# Labelled texts.


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
    batch = data.validation_batches(config, 2)
    assert batch["weights"].shape == (1, 2 * EVALUATION_BATCH, 1)
    assert batch["weights"].sum() == 2
    np.testing.assert_array_equal(batch["labels"][batch["weights"][..., 0] == 1], data.validation["labels"])


def test_reference_of_labelled_texts(tmp_path):
    """The loss of a guess by the frequency of the classes, counted from one."""
    data = load_data(labelled(tmp_path, LINES[:4], **validated(tmp_path)))
    name, loss = data.reference()
    assert name == "frequency of the classes"
    assert loss == pytest.approx(-np.log((3 + 1) / (4 + 2)))
    assert puzzles().reference() is None


def test_a_config_nobody_loads():
    """A kind of data without a rule is named."""
    with pytest.raises(ConfigError, match="nothing is known to load RunConfig"):
        load_data(RunConfig())
