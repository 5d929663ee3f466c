"""Values and whole configs through JSON, and errors that say where in the file they are."""

import json
from dataclasses import dataclass

import pytest

from transformer.activations.activation import GELU, GLU
from transformer.core.errors import ConfigError
from transformer.core.json import fingerprint, from_json, later, to_json
from transformer.core.parameters import Normal
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.backends import Chunked
from transformer.mixers.attention.projections import ConstantScale
from transformer.models.classifier import ClassifierConfig
from transformer.models.config import ModelConfig
from transformer.models.stack import Scanned
from transformer.norms.norm import Norm, RMSNorm
from transformer.objectives.classes import Classification
from transformer.objectives.objective import NextToken
from transformer.positions.rotary import RoPE
from transformer.residuals.residual import SandwichNorm
from transformer.runs.config import RunConfig
from transformer.runs.optimizer import OptimizerConfig


def test_whole_configs_through_json():
    """A config with choices of every kind comes back equal, and its JSON has every field."""
    config = RunConfig(
        model=ModelConfig(
            vocab_size=10,
            norm=RMSNorm(eps=1e-4),
            residual=SandwichNorm(),
            feed_forward=FeedForward(activation=GLU(gate=GELU(tanh=True))),
            position=RoPE(fraction=0.5),
            mixer=Attention(num_kv_heads=2, scale=ConstantScale(0.5), bias=("query", "out"), backend=Chunked(block=8)),
            layers=Scanned(remat="full"),
            initializer=Normal(0.1),
            dtype="bfloat16",
        ),
        objective=NextToken(label_smoothing=0.1),
        steps=3,
    )
    data = json.loads(json.dumps(to_json(config)))
    assert from_json(RunConfig, data) == config
    assert data["model"]["norm"] | {"variant": "rmsnorm", "eps": 1e-4} == data["model"]["norm"]
    assert data["model"]["mixer"]["scale"] == {"variant": "constant", "value": 0.5}
    assert data["model"]["mixer"]["backend"] == {"variant": "chunked", "block": 8}
    assert from_json(RunConfig, {}) == RunConfig()
    assert RunConfig().model.mixer.backend is None


def test_a_whole_number_for_a_float_is_that_float():
    """Equal configs have one hash, by which studies name their cells and runs their data."""
    config, same = (
        RunConfig(
            model=ClassifierConfig(position=RoPE(base=base)),
            optimizer=OptimizerConfig(weight_decay=decay, clip_norm=clip),
            objective=Classification(class_weights=weights),
        )
        for base, decay, clip, weights in ((500000, 0, 1, (1, 4)), (500000.0, 0.0, 1.0, (1.0, 4.0)))
    )
    assert config == same
    assert fingerprint(config) == fingerprint(same) == fingerprint(from_json(RunConfig, to_json(config)))


@dataclass(frozen=True, kw_only=True)
class Grown(RunConfig):
    """A config with a field that it got later."""

    more: int | None = later(None)


def test_a_field_that_came_later_is_said_where_it_is_set():
    """So that the hash of what was run before stays."""
    assert to_json(Grown()) == to_json(RunConfig())
    assert to_json(Grown())["average_last"] == RunConfig().average_last  # others are said at their defaults too
    assert fingerprint(Grown()) == fingerprint(RunConfig())
    data = to_json(Grown(more=3))
    assert data["more"] == 3
    assert from_json(Grown, data) == Grown(more=3)
    assert from_json(Grown, to_json(Grown())) == Grown()


JSON_ERRORS = [
    (Norm, {"variant": "rmsnrom"}, "config: unknown norm 'rmsnrom'; did you mean 'rmsnorm'?"),
    (Norm, {"variant": "rmsnorm", "epz": 1.0}, "config: unknown field 'epz'; did you mean 'eps'?"),
    (Norm, {"variant": "rmsnorm", "eps": "1"}, "config.eps: '1' is not float"),
    (Norm, {"eps": 1.0}, "is not a variant"),
    (Norm, "rmsnorm", "is not a variant"),
    (RunConfig, {"modle": {}}, "config: unknown field 'modle'; did you mean 'model'?"),
    (
        RunConfig,
        {"model": {"norm": {"variant": "x"}}},
        "config.model.norm: unknown norm 'x'; known: derf, dyt, groupnorm, ",
    ),
    (RunConfig, {"model": {"d_model": "128"}}, "config.model.d_model: '128' is not int"),
    (RunConfig, {"model": 5}, "config.model: 5"),
    (RunConfig, {"model": ["d_model"]}, "config.model: ['d_model']"),
    (Norm, {"variant": 3}, "config: unknown norm 3"),
]


@pytest.mark.parametrize(("cls", "data", "message"), JSON_ERRORS, ids=[str(data) for _, data, _ in JSON_ERRORS])
def test_json_errors(cls, data, message):
    """An unknown name or a wrong type says where in the file it is."""
    with pytest.raises(ConfigError) as caught:
        from_json(cls, data)
    assert message in str(caught.value)
