"""What classifiers show of their data."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from experiments import classification, labelling
from transformer.core.errors import ConfigError
from transformer.data.tokenizers import CharTokenizer


@pytest.mark.parametrize("command", [classification, labelling])
def test_a_model_may_have_more_classes_than_its_data(command):
    """The likeliest of those that the data have is shown."""
    logits_C = np.array([1.0, 2.0, 3.0])
    tokens = CharTokenizer.of("ab").encode("ab")[None]
    labels = np.array([0]) if command is classification else np.array([[0, 1]])
    held_out = {"inputs": tokens, "valid": tokens >= 0, "labels": labels, "weights": np.ones((1, 2))}
    data = SimpleNamespace(validation=held_out, classes=("first", "second"), tokenizer=CharTokenizer.of("ab"))
    shape = (*labels.shape, 3)
    trained = SimpleNamespace(apply=lambda *_, **__: np.broadcast_to(logits_C, shape), params=lambda: None)
    said = {classification: "ab -> second   (not first)", labelling: "a→second (not first) b→second"}
    assert command.examples(trained, data) == said[command]


@pytest.mark.parametrize(("experiment", "preset"), [(classification, "texts"), (labelling, "tags")])
def test_a_preset_for_own_files_does_not_train_on_expressions(experiment, preset, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train", preset])
    with pytest.raises(ConfigError, match=rf"^data\.path: the preset {preset} is for a file of yours; give it$"):
        experiment.main()
