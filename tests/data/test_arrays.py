"""Data sets of one's own arrays."""

from dataclasses import dataclass

import numpy as np
import pytest

import transformer as T
from transformer.core.errors import ConfigError
from transformer.data.arrays import arrays
from transformer.data.dataset import EVALUATION_BATCH, Examples
from transformer.data.pairs import TranslationRun
from transformer.models.config import ModelConfig
from transformer.objectives.tokens import MaskedToken
from transformer.runs.config import RunConfig

CONFIG = RunConfig(model=ModelConfig(max_length=4))


def test_every_token_but_the_first_is_a_label():
    """The last sequences are held out, and the vocabulary is that of the numbers."""
    tokens = np.random.default_rng(0).integers(0, 7, (10, 5))
    tokens[3, 3] = 7
    data = arrays(tokens, validation_fraction=0.2)
    np.testing.assert_array_equal(data.train["tokens"], tokens[:8])
    np.testing.assert_array_equal(data.validation["tokens"], tokens[8:])
    assert (data.train["weights"] == 1).all()
    assert data.train["weights"].shape == (8, 4)
    assert data.complete(CONFIG).model.vocab_size == 8
    assert data.complete(CONFIG.replace({"model.vocab_size": 9})).model.vocab_size == 9
    assert data.fingerprint != arrays(tokens).fingerprint
    assert data.fingerprint == arrays(tokens.tolist(), validation_fraction=0.2).fingerprint


def test_sequences_of_several_lengths_and_what_counts():
    """Padding never counts."""
    data = arrays([[1, 2], [3, 4, 5], [6, 7]], [[1, 1], [0, 0, 1], [0, 1]], validation_fraction=0.3)
    assert data.train["tokens"].tolist() == [[1, 2, 0], [3, 4, 5]]
    assert data.train["weights"].tolist() == [[1, 0], [0, 1]]
    assert data.validation["weights"].tolist() == [[1, 0]]
    assert data.train["valid"].tolist() == [[True, False], [True, True]]
    assert "valid" not in arrays([[1, 2], [3, 4], [6, 7]]).train
    assert arrays([[1, 2], [3, 4, 5], [6, 7]]).train["weights"].tolist() == [[1, 0], [1, 1]]


def test_a_held_out_part_of_its_own():
    """None of the first sequences is held out, and both parts have the same length and vocabulary."""
    data = arrays([[1, 2, 3], [3, 4, 5]], validation=[[6, 7, 8, 9]], validation_scored=[[0, 0, 1, 1]])
    assert data.train["tokens"].tolist() == [[1, 2, 3, 0], [3, 4, 5, 0]]
    assert data.train["weights"].tolist() == [[1, 1, 0]] * 2
    assert data.validation["tokens"].tolist() == [[6, 7, 8, 9]]
    assert data.validation["weights"].tolist() == [[0, 1, 1]]
    assert data.complete(CONFIG).model.vocab_size == 10
    whole = [[1, 2, 3], [3, 4, 5], [6, 7, 8, 9]]
    marks = [[1, 1, 1], [1, 1, 1], [0, 0, 1, 1]]
    assert data.fingerprint == arrays(whole, marks, validation_fraction=0.3).fingerprint


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tokens": np.arange(9)}, r"no sequences \(N, L \+ 1\); cut one running text into rows"),
        ({"tokens": "abc"}, "cut one running text into rows"),
        ({"tokens": []}, r"no sequences \(N, L \+ 1\)$"),
        ({"tokens": 5}, r"no sequences \(N, L \+ 1\)$"),
        ({"tokens": np.array(5)}, r"no sequences \(N, L \+ 1\)$"),
        ({"tokens": [[1, 2], [3, 4]], "scored": [True, False]}, "scored has not the shape of tokens"),
        ({"tokens": [[1, 2], [0.5, 1.0]]}, r"sequence 1 of tokens is float64 \(2,\), not at least two integers"),
        ({"tokens": [[1, 2], [3]]}, r"sequence 1 of tokens is int64 \(1,\)"),
        ({"tokens": [[1, -2], [3, 4]]}, "sequence 0 of tokens has -2 to 1, not integers from 0 to 2147483646"),
        ({"tokens": [[1, 2], [3, 2**31]]}, "sequence 1 of tokens has 3 to 2147483648, not integers from 0 to"),
        ({"tokens": [[1, 2], [3, 4]], "scored": 3}, "scored is 3, not truth values of the shape of tokens"),
        ({"tokens": [[1, 2], [3, 4]], "scored": [[1, 1], [1, 0]]}, "of the 1 sequences held out no token is scored"),
        ({"tokens": [[1, 2], [3, 4]], "scored": [[1, 0.5], [1, 1]]}, "scored has 0.5, which is no truth value"),
        ({"tokens": [[1, 2], [3, 4]], "scored": [[1, 1], [1]]}, "scored has not the shape of tokens"),
        ({"tokens": [[1, 2]]}, "1 sequences, of which validation_fraction=0.1 leaves none to train on"),
        ({"tokens": [[1, 2]], "validation": [[1.0, 2]]}, r"sequence 0 of validation is float64 \(2,\)"),
        (
            {"tokens": [[1, 2]], "validation": 0.2},
            r"validation is 0\.2; the share that is held out is validation_fraction",
        ),
        ({"tokens": [[1, 2]], "validation": []}, r"validation are no sequences \(N, L \+ 1\)$"),
        ({"tokens": [[1, 2]], "validation": [[1, 2]], "validation_scored": [[1]]}, "validation_scored has not"),
        ({"tokens": [[1, 2]], "validation": [[1, 2]], "validation_scored": [[1, 0]]}, "1 sequences held out no token"),
        ({"tokens": [[1, 2], [3, 4]], "validation_scored": [[1, 1]]}, "marks tokens of validation, which is not given"),
        (
            {"tokens": [[1, 2]], "validation": [[1, 2]], "validation_fraction": 0.2},
            r"validation_fraction 0\.2 changes nothing beside validation",
        ),
        ({"tokens": [[1, 2]], "validation_fraction": 1.0}, r"validation_fraction: 1\.0 is not between 0 and 1"),
    ],
)
def test_what_is_no_data(given, message):
    with pytest.raises(ConfigError, match=message):
        arrays(**given)


def test_what_does_not_fit_a_model():
    data = arrays([[1, 2, 3, 4, 5, 6], [1, 2]], validation_fraction=0.5)
    with pytest.raises(ConfigError, match="max_length: 4, but arrays have 5 inputs"):
        data.complete(CONFIG)
    with pytest.raises(ConfigError, match="vocab_size: 6, but arrays have the token 6"):
        data.complete(CONFIG.replace({"model.max_length": 5, "model.vocab_size": 6}))
    masked = RunConfig(model=ModelConfig(max_length=5, causal=False), objective=MaskedToken())
    with pytest.raises(ConfigError, match=r"objective: masked.* needs a tokenizer with special tokens"):
        data.complete(masked)


def test_tokens_are_not_what_another_objective_reads():
    """In a line, where the sizes of a model would be missed otherwise."""
    line = r"^data: mine are tokens, and the objective sequence_to_sequence reads source, target$"
    with pytest.raises(ConfigError, match=line):
        arrays(np.zeros((4, 5), int), source="mine").complete(TranslationRun())


def test_rows_that_fill_a_batch_count_nothing():
    """Also of a data set of one's own, whose held-out part has no weights."""

    @dataclass(frozen=True, kw_only=True)
    class Own(Examples):
        def complete(self, config):
            return config

    tokens = np.arange(15, dtype=np.int32).reshape(3, 5)
    data = Own(train={"tokens": tokens}, validation={"tokens": tokens}, source="", fingerprint="", tokenizer=None)
    batch = data.validation_batches(T.RunConfig())
    assert batch["weights"].shape == (1, EVALUATION_BATCH, 4)
    assert batch["weights"].sum(-1).tolist() == [[4.0] * 3 + [0.0] * (EVALUATION_BATCH - 3)]
