"""Replacing fields of a config by dotted path."""

import pytest

from transformer.activations.activation import GELU, GLU
from transformer.core.changes import replace
from transformer.core.errors import ConfigError
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.projections import ConstantScale
from transformer.models.config import ModelConfig
from transformer.norms.norm import LayerNorm, RMSNorm
from transformer.positions.rotary import RoPE
from transformer.residuals.residual import PreNorm
from transformer.runs.config import RunConfig
from transformer.runs.optimizer import ParameterGroup
from transformer.runs.schedules import WarmupStableDecay


def test_replace_by_path():
    """Values and text forms, at any depth; the original stays as it was."""
    config = RunConfig()
    new = config.replace(
        {"model.norm": RMSNorm(), "model.position": "rope(base=5)", "optimizer.schedule": "wsd", "steps": 7},
        batch_size=3,
    )
    assert (new.model.norm, new.model.position) == (RMSNorm(), RoPE(base=5.0))
    assert (new.optimizer.schedule, new.steps, new.batch_size) == (WarmupStableDecay(), 7, 3)
    assert config == RunConfig()
    assert new.model.residual == PreNorm()
    parts = RunConfig().replace({"model.mixer.parts": "[qk_norm, output_gate]"}).model.mixer.parts
    assert [part.name for part in parts] == ["qk_norm", "output_gate"]


def test_replace_inside_a_variant():
    """A path may go on into the fields of a variant."""
    assert replace(ModelConfig(), {"norm.eps": 1e-3}).norm == LayerNorm(eps=1e-3)
    config = ModelConfig(feed_forward=FeedForward(activation=GLU()))
    tanh = replace(config, {"feed_forward.activation.gate": "gelu(tanh=True)"})
    assert tanh.feed_forward == FeedForward(activation=GLU(gate=GELU(tanh=True)))
    assert replace(config, {"norm.eps": 1e-3, "norm": "rmsnorm"}).norm == RMSNorm(eps=1e-3)


def test_replace_casts_only_int_to_float():
    """1 is a float where a float is wanted; none where it may be."""
    assert type(RunConfig().replace({"optimizer.learning_rate": 1}).optimizer.learning_rate) is float
    assert type(RunConfig().replace({"optimizer.clip_norm": 2}).optimizer.clip_norm) is float
    scaled = ModelConfig(mixer=Attention(scale=ConstantScale())).replace({"mixer.scale.value": 2})
    assert type(scaled.mixer.scale.value) is float
    grouped = ModelConfig(mixer=Attention(num_kv_heads=2))
    assert grouped.replace({"mixer.num_kv_heads": None}).mixer.num_kv_heads is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.nrom": "rmsnorm"}, "model.nrom: no field 'nrom'; did you mean 'norm'?"),
        ({"modell.norm": "rmsnorm"}, "modell.norm: no field 'modell'; did you mean 'model'?"),
        ({"\nmodel": 1}, "'\\nmodel': no field '\\nmodel'; did you mean 'model'?"),
        ({"model.norm": "rmsnrom"}, "model.norm: unknown name 'rmsnrom'; did you mean 'rmsnorm'?"),
        ({"model.norm": PreNorm()}, "model.norm: PreNorm() is not Norm"),
        ({"model.d_model": "128"}, "model.d_model: '128' is not int"),
        ({"model.d_model": 1.5}, "model.d_model: 1.5 is not int"),
        ({"model.mixer.num_kv_heads": True}, "model.mixer.num_kv_heads: True is not int or none"),
        ({"model.dtype": "float16"}, "model.dtype: unknown value 'float16'; did you mean 'bfloat16'?"),
        ({"model.norm.epz": 1.0}, "model.norm.epz: no field 'epz'; did you mean 'eps'?"),
        ({"model.d_model.x": 1}, "model.d_model.x: no field 'x'"),
        ({"model.num_heads": 8}, "model.num_heads: no field 'num_heads'; did you mean 'mixer.num_heads'?"),
        ({"": 1}, "no field ''"),
    ],
)
def test_replace_errors(changes, message):
    """A wrong path or type is one line with the path and the nearest name."""
    with pytest.raises(ConfigError) as caught:
        RunConfig().replace(changes)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "changes", [{"d_model": 90, "mixer.num_heads": 6}, {"mixer.num_heads": 6, "d_model": 90}], ids=list
)
def test_changes_are_made_together(changes):
    """Fields that must fit each other can be changed in one call, in any order."""
    config = ModelConfig(d_model=128, mixer=Attention(num_heads=4)).replace(changes)
    assert (config.d_model, config.mixer.num_heads, config.mixer.sizes(config).head_dim) == (90, 6, 15)


def test_texts_of_variants_in_a_tuple():
    config = RunConfig().replace({"optimizer.groups": ["group('*embedding*', rate=0.1)", ParameterGroup("*")]})
    assert config.optimizer.groups == (ParameterGroup("*embedding*", rate=0.1), ParameterGroup("*"))
    with pytest.raises(ConfigError, match="unknown name 'grup'"):
        RunConfig().replace({"optimizer.groups": ["grup('*')"]})
