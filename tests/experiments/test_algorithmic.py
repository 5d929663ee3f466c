"""What a run on a task shows at its end."""

import numpy as np
import pytest

from experiments.algorithmic import answers
from transformer.data.puzzles import AlgorithmicConfig, AlgorithmicRun, load_puzzles
from transformer.data.tasks.recall import AssociativeRecall
from transformer.data.tasks.rewriting import Sort
from transformer.models.config import ModelConfig
from transformer.objectives.objective import NextToken
from transformer.objectives.tokens import PrefixToken
from transformer.runs.config import grid
from transformer.training.loop import train


def test_answers_between_other_tokens_are_those_before_each(tmp_path):
    """Of queries among random symbols, which nobody could guess, only the answers are compared."""
    data = AlgorithmicConfig(
        task=AssociativeRecall(alphabet=8, sequence_length=16), examples=64, validation_examples=16
    )
    puzzles = load_puzzles(data)
    config = AlgorithmicRun(
        model=ModelConfig(num_layers=1, d_model=16, max_length=16), data=data, steps=2, batch_size=8
    )
    trained = train(config, grid(1), puzzles, tmp_path / "run")
    tokens, scored = puzzles.validation["tokens"][0], np.flatnonzero(puzzles.validation["weights"][0])
    given = np.asarray(trained.apply(trained.params(), tokens[None, :-1]).argmax(-1)[0])[scored]
    first, decode = answers(trained, puzzles).splitlines()[0], puzzles.tokenizer.decode
    right = "" if (given == tokens[scored + 1]).all() else f"   (not {decode(tokens[scored + 1])})"
    assert first == f"{decode(tokens)} {decode(given)}{right}"


@pytest.mark.parametrize("objective", [NextToken(), PrefixToken(share=0.5)], ids=str)
def test_answers_of_examples_of_several_lengths(objective, tmp_path):
    """A question and the answer that the model gives, which is shown with the right one where it differs."""
    data = AlgorithmicConfig(task=Sort(items=3), examples=64, validation_examples=16)
    model = ModelConfig(num_layers=1, d_model=16, max_length=8)
    puzzles = load_puzzles(data)
    assert "valid" in puzzles.validation
    config = AlgorithmicRun(model=model, data=data, objective=objective, steps=2, batch_size=8)
    lines = answers(train(config, grid(1), puzzles, tmp_path / "run"), puzzles).splitlines()
    assert len(lines) == 5
    assert all("=" in line for line in lines)
    assert any("(not " in line for line in lines)
