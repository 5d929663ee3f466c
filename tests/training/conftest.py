"""A tiny config and corpus."""

import pytest

from transformer.data.corpus import load_corpus
from transformer.mixers.attention.attention import Attention
from transformer.models.config import ModelConfig
from transformer.runs.config import RunConfig
from transformer.runs.data import TextConfig
from transformer.runs.optimizer import OptimizerConfig


@pytest.fixture
def config() -> RunConfig:
    return RunConfig(
        model=ModelConfig(vocab_size=4, max_length=8, num_layers=2, d_model=16, mixer=Attention(num_heads=2)),
        optimizer=OptimizerConfig(learning_rate=1e-2, warmup_steps=2),
        steps=12,
        batch_size=4,
        steps_per_dispatch=5,
    )


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("abacabad" * 40)
    return load_corpus(TextConfig(path=str(path)))
