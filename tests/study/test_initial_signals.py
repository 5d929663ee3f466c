"""Root mean squares before training, and what they warn of."""

import numpy as np
import pytest

import transformer as T
from transformer.data.dataset import load_data
from transformer.data.pictures import ImageConfig
from transformer.mixers.attention.attention import Attention
from transformer.models.images import AutoencoderConfig
from transformer.objectives.pictures import Reconstruction
from transformer.runs.config import RunConfig
from transformer.study.initial_signals import doubts, signals


@pytest.fixture
def base(base, tmp_path):
    """Of a text whose held-out rows differ."""
    path = tmp_path / "varied.txt"
    path.write_text("".join(np.random.default_rng(0).choice([*"abcd"], 4000)))
    return base.replace({"data": T.TextConfig(path=str(path))})


def sizes(base, corpus, changes=None):
    return signals(corpus.complete(base.replace(changes or {})), corpus)


def test_signals_are_those_of_the_initial_values(base, corpus):
    """Embeddings and positions of deviation 0.02 add up to √2 · 0.02."""
    found = sizes(base.replace({"model.d_model": 128}), corpus)
    assert list(found) == ["stream", "tokens", "positions", "branch", "logits"]
    assert found["stream"] == pytest.approx(0.02 * np.sqrt(2), rel=0.15)
    assert found["tokens"] < found["stream"]
    assert doubts(found) == []
    large = sizes(base, corpus, {"model.embedding.initializer": "normal(1.0)"})
    assert large["stream"] == pytest.approx(1, rel=0.3)


def test_rows_that_are_the_same_have_no_signal_of_their_own(base, tmp_path):
    path = tmp_path / "one.txt"
    path.write_text("abacabad" * 40)
    base = base.replace({"data.path": str(path)})
    found = sizes(base, load_data(base.data))
    assert list(found) == ["stream", "positions", "branch", "logits"]
    assert doubts(found) == []


def test_sinusoids_drown_small_embeddings_and_their_recipe_does_not(base, corpus):
    plain = doubts(sizes(base, corpus, {"model.position": T.Sinusoidal()}))
    assert len(plain) == 1
    assert plain[0].startswith("before training the stream (0.7")
    assert "drowns the tokens (0.0" in plain[0]
    recipe = {"model.position": T.Sinusoidal(), **T.Sinusoidal().recipe(base.model.d_model)}
    assert doubts(sizes(base, corpus, recipe)) == []


def test_tanh_in_place_of_a_norm_leaves_faint_logits_and_its_recipe_does_not(base, corpus):
    dyt = T.norms.DyT()
    assert any("logits are faint" in said for said in doubts(sizes(base, corpus, {"model.norm": dyt})))
    recipe = {"model.norm": dyt, **dyt.recipe(base.model.d_model)}
    assert doubts(sizes(base, corpus, recipe)) == []


def test_the_logits_are_the_answer_whatever_the_objective_calls(base, corpus):
    """Chunks of them have the size of all; a masked model is asked for its shape first."""
    plain = sizes(base, corpus)
    chunked = sizes(base, corpus, {"objective": T.ChunkedNextToken(chunk=4)})
    assert chunked == pytest.approx(plain, rel=1e-5)
    masked = base.replace({"objective": T.MaskedToken(), "model.causal": False, "data.tokenizer": T.Char(special=True)})
    found = sizes(masked, load_data(masked.data))
    assert found["logits"] == pytest.approx(plain["logits"], rel=0.3)


def test_the_answer_of_an_autoencoder_is_what_it_predicts():
    """Which begins near 0, and not the pictures that it is asked to predict."""
    model = AutoencoderConfig(patch_size=2, num_layers=1, d_model=32)
    config = RunConfig(model=model, data=ImageConfig(), objective=Reconstruction(), batch_size=16)
    data = load_data(config.data)
    assert signals(data.complete(config), data)["logits"] < 0.3  # that of the pictures is 0.45


def test_a_branch_that_drowns_the_stream():
    assert doubts({"stream": 0.01, "branch": 1.0}) == ["before training the branch (1) drowns the stream (0.01)"]
    assert doubts({"stream": 0.1, "branch": 1.0, "logits": 0.021}) == []


def test_equal_tokens_without_positions_have_no_signal_of_positions(tmp_path):
    path = tmp_path / "one.txt"
    path.write_text("a" * 400)
    model = T.ModelConfig(num_layers=1, d_model=8, max_length=8, position=None, mixer=Attention(num_heads=1))
    config = RunConfig(model=model, data=T.TextConfig(path=str(path)))
    data = load_data(config.data)
    found = signals(data.complete(config), data)
    assert found["positions"] < 1e-6 < found["stream"]
