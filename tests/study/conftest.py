"""A tiny base config and corpus for studies."""

import pytest

from transformer.data.corpus import load_corpus
from transformer.mixers.attention.attention import Attention
from transformer.models.config import ModelConfig
from transformer.runs.config import RunConfig
from transformer.runs.data import TextConfig
from transformer.runs.optimizer import OptimizerConfig


def tiny(folder) -> RunConfig:
    """A run of a second, on a text in the folder."""
    path = folder / "text.txt"
    path.write_text("abacabad" * 40)
    return RunConfig(
        model=ModelConfig(max_length=8, num_layers=1, d_model=16, mixer=Attention(num_heads=2)),
        data=TextConfig(path=str(path)),
        optimizer=OptimizerConfig(warmup_steps=2),
        steps=10,
        batch_size=4,
        steps_per_dispatch=5,
    )


@pytest.fixture
def base(tmp_path) -> RunConfig:
    return tiny(tmp_path)


@pytest.fixture
def corpus(base):
    return load_corpus(base.data)
