"""A run in a folder."""

import pytest

from transformer.data.corpus import load_corpus
from transformer.mixers.attention.attention import Attention
from transformer.models.config import ModelConfig
from transformer.runs.config import RunConfig, grid
from transformer.runs.data import TextConfig
from transformer.runs.optimizer import OptimizerConfig
from transformer.training.loop import train


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    """A language model of a, b, c and d, of two seeds at two learning rates: 12 steps, saved after every fourth."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "text.txt").write_text("abacabad" * 40)
    config = RunConfig(
        model=ModelConfig(max_length=8, num_layers=1, d_model=16, mixer=Attention(num_heads=2)),
        data=TextConfig(path=str(folder / "text.txt")),
        optimizer=OptimizerConfig(warmup_steps=2),
        steps=12,
        batch_size=4,
        checkpoint_every=4,
        evaluate_every=4,
    )
    train(config, grid([3, 4], (1e-3, 1e-2)), load_corpus(config.data), folder / "run")
    return folder / "run"
