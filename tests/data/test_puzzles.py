"""Algorithmic tasks as data: what is scored, what is held out, what does not fit."""

import re
from dataclasses import dataclass

import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.data.dataset import EVALUATION_BATCH, load_data, stack_batches
from transformer.data.puzzles import AlgorithmicConfig, AlgorithmicRun, load_puzzles
from transformer.data.tasks.arithmetic import Addition
from transformer.data.tasks.groups import WordProblem
from transformer.data.tasks.list_operations import ListOps
from transformer.data.tasks.recall import AssociativeRecall, Induction
from transformer.data.tasks.rewriting import Copy
from transformer.data.tasks.task import AlgorithmicTask, split
from transformer.data.tokenizers import PAD
from transformer.models.config import ModelConfig
from transformer.runs.config import RunConfig
from transformer.runs.data import DataConfig
from transformer.runs.tokenizers import SPECIAL

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


def test_examples_print_as_a_line():
    assert re.fullmatch(r"Puzzles\(addition: 60 training and 20 held-out examples\)", str(puzzles()))


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_held_out_examples_are_distinct(task):
    """None is in both parts, and none is twice in a part."""
    data = puzzles(task)
    train, validation = rows(data.train["tokens"]), rows(data.validation["tokens"])
    assert (len(train), len(validation)) == (60, 20)
    assert not train & validation


def test_examples_that_need_not_be_distinct_are_as_often_as_the_task_draws_them():
    """A quarter of the strings have one bit; those held out are none of these."""
    task = WordProblem("parity", 4)
    data, few = (
        load_data(AlgorithmicConfig(task=task, examples=24, validation_examples=4, distinct=distinct))
        for distinct in (False, True)
    )
    train, held_out = rows(data.train["tokens"]), rows(data.validation["tokens"])
    assert len(data.train["tokens"]) == 24 > len(train)
    assert len(held_out) == 4
    assert not train & held_out
    short = [int((part.train["weights"].argmax(1) == 1).sum()) for part in (data, few)]
    assert short[0] > 2 >= short[1]


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


def test_padding_is_marked_where_there_is_some():
    """What is read after the last answer; examples of one length have no mark."""
    data = load_puzzles(AlgorithmicConfig(task=Addition(digits=2, fixed=False), examples=50, validation_examples=20))
    for part in (data.train, data.validation):
        last = part["weights"].shape[1] - part["weights"][:, ::-1].argmax(1)
        np.testing.assert_array_equal(part["valid"].sum(1), last)
        assert not part["tokens"][:, 1:][~part["valid"]].any()
        assert not part["valid"].all()
    assert "valid" not in load_puzzles(AlgorithmicConfig(task=Addition(digits=2), examples=5)).train


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


def test_validation_batches_hold_every_row_once():
    """In order, and what fills the last batch has no weight."""
    data = puzzles()
    batch = data.validation_batches(run_config())
    assert batch["tokens"].shape == (1, EVALUATION_BATCH, 12)
    real = batch["weights"].sum(-1) > 0
    np.testing.assert_array_equal(batch["tokens"][real], data.validation["tokens"])
    assert batch["weights"].sum() == data.validation["weights"].sum()


def test_more_rows_than_a_batch():
    """The rows go on in the next batch."""
    data = puzzles(examples=1, validation_examples=EVALUATION_BATCH + 3)
    batch = data.validation_batches(run_config())
    assert batch["tokens"].shape[:2] == (2, EVALUATION_BATCH)
    np.testing.assert_array_equal(batch["tokens"][1, :3], data.validation["tokens"][-3:])
    assert not batch["weights"][1, 3:].any()


def test_a_model_for_a_puzzle():
    """The vocabulary is the task's; a model that is too short or too small is refused with the number."""
    data = puzzles()
    assert data.reference() is None
    assert data.complete(run_config()).model.vocab_size == len(SPECIAL) + 12
    assert data.complete(run_config(length=11)).model.max_length == 11
    with pytest.raises(ConfigError, match=r"model.max_length: 10, but addition.* has 11 tokens"):
        data.complete(run_config(length=10))
    with pytest.raises(ConfigError, match=r"is not in \[0, 9\)"):
        data.complete(run_config(vocab_size=9))
    with pytest.raises(ConfigError, match="only 4 distinct examples"):
        puzzles(Copy(items=4, alphabet=1), examples=4, validation_examples=1)


def test_a_config_nobody_loads():
    """A kind of data without a rule is named, and what is no config of data."""

    @dataclass(frozen=True)
    class Mine(DataConfig):
        pass

    with pytest.raises(ConfigError, match="no loader is registered for Mine"):
        load_data(Mine())
    with pytest.raises(ConfigError, match="data: DataConfig is needed, and RunConfig is given; its field data is one"):
        load_data(RunConfig())
    with pytest.raises(ConfigError, match=r"and 'a\.txt' is given; TextConfig\(path='a\.txt'\) reads a text"):
        load_data("a.txt")


def test_held_out_examples_may_be_longer():
    """Trained on up to three symbols, tested on up to eight; a short one that was trained on is not tested."""
    data = puzzles(Copy(items=3, alphabet=3), test=Copy(items=8, alphabet=3), examples=39, validation_examples=20)
    assert (data.train["tokens"].shape, data.validation["tokens"].shape) == ((39, 8), (20, 18))
    seen = {bytes(np.trim_zeros(row, "b")) for row in data.train["tokens"]}
    assert len(seen) == 39  # 3 + 9 + 27: all there are
    assert not seen & {bytes(np.trim_zeros(row, "b")) for row in data.validation["tokens"]}
    with pytest.raises(ConfigError, match=r"^model.max_length: 10, but copy\(items=3.*\), tested on .* has 17 tokens$"):
        data.complete(AlgorithmicRun(model=ModelConfig(max_length=10), data=data.description))


def test_held_out_examples_have_the_same_symbols():
    with pytest.raises(ConfigError, match=r"^data.test: copy\(alphabet=4\) has other symbols than copy$"):
        AlgorithmicConfig(task=Copy(), test=Copy(alphabet=4))


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"examples": 0}, "examples: 0 is not a number from 1 on"),
        ({"validation_examples": 0}, "validation_examples: 0 is not a number from 1 on"),
        ({"seed": -1}, "seed: -1 is not a number from 0 on"),
    ],
)
def test_impossible_numbers_of_examples(fields, line):
    with pytest.raises(ConfigError, match=rf"^data\.{line}$"):
        AlgorithmicConfig(**fields)


@dataclass(frozen=True)
class Own(AlgorithmicTask):
    """A task of one's own, with mistakes to choose from."""

    mistake: str = ""
    symbols = ("a", "b")
    length = 3

    def examples(self, rng, count):
        tokens = 5 + rng.integers(2, size=(count, 3)).astype(np.int32)
        scored = np.broadcast_to([False, False, True], tokens.shape)
        wrong = {
            "float": (tokens.astype(float), scored),
            "no special": (tokens - 5, scored[:, :1]),
            "beyond": (tokens + 2, scored),
            "negative": (tokens - 9, scored),
            "fewer": (tokens[:-1], scored),
            "list": (tokens, scored.tolist()),
            "no answer": (tokens, np.zeros_like(scored)),
        }
        return wrong.get(self.mistake, (tokens, scored))


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("float", r"own: examples gives tokens float64 \(4, 3\), not int32 \(4, 3\)"),
        ("no special", r"own: examples gives scored bool \(4, 1\), not bool \(4, 3\)"),
        ("beyond", r"own: examples gives the token [78]; symbol i is 5 \+ i, up to 6"),
        ("negative", r"own: examples gives the token -[34]; symbol"),
        ("fewer", r"own: examples gives tokens int32 \(3, 3\), not int32 \(4, 3\)"),
        ("list", r"own: examples gives scored list \(4, 3\), not bool \(4, 3\)"),
        ("no answer", r"own: examples gives one without an answer"),
    ],
)
def test_what_an_own_task_gives_is_checked(mistake, message):
    split(Own(), 2, 2, seed=0)
    with pytest.raises(ConfigError, match=message):
        split(Own(mistake), 2, 2, seed=0)
