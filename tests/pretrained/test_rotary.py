"""Rotary features in the order of either pairing."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.core.modules import split
from transformer.core.parameters import ZEROS, Parameter
from transformer.core.weights import LowRank, Ternary, Weights
from transformer.mixers.attention.exclusive import XSA
from transformer.mixers.attention.gates import HeadScale, OutputGate, ValueGate
from transformer.mixers.attention.head_norms import QKNorm, ValueNorm
from transformer.mixers.attention.heads import LatentHeads
from transformer.mixers.attention.normalizers import Performer
from transformer.mixers.attention.projections import NoProjections
from transformer.mixers.attention.short_convolution import ShortConvolution
from transformer.models.build import build, pure_model
from transformer.models.classifier import ClassifierConfig
from transformer.models.config import ModelConfig
from transformer.models.pattern import Alternate
from transformer.models.pooling import AttentionPooling
from transformer.norms.group_norm import GroupNorm
from transformer.norms.norm import LayerNorm, RMSNorm
from transformer.positions.absolute import Learned
from transformer.positions.rotary import RoPE
from transformer.pretrained.rotary import with_pairs
from transformer.testing.subject import shaken

TOKENS = jnp.asarray(np.random.default_rng(0).integers(0, 9, (2, 7)), jnp.int32)


def config(**changes):
    own = {"mixer.num_heads": 3, "mixer.num_kv_heads": 1, "position": RoPE(fraction=0.5)}
    return ModelConfig(vocab_size=9, max_length=8, num_layers=2, d_model=24).replace(own | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"mixer.bias": ("query", "key"), "mixer.parts": (QKNorm(RMSNorm()),)},
        {"position": RoPE(interleaved=True)},
        {"mixer.parts": (OutputGate(), QKNorm(LayerNorm()), ValueNorm(), HeadScale(), ValueGate(), XSA())},
        {"weights": LowRank(rank=8)},
        {"weights": LowRank(rank=3)},
        {"weights": Ternary()},
    ],
    ids=[
        "plain",
        "biases and norms",
        "from interleaved",
        "other parts",
        "low rank of a head's size",
        "low rank",
        "ternary",
    ],
)
def test_the_same_model_with_the_other_pairs(changes):
    """Other parameters, the same logits; and back."""
    own = config(**changes)
    params = jax.tree.map(jnp.asarray, shaken(split(build(own, key=jax.random.key(0)))[0]))
    other, moved = with_pairs(own, params, interleaved=not own.position.interleaved)
    assert other.position.interleaved != own.position.interleaved
    models = ((own, params), (other, params), (other, moved))
    expected, wrong, logits = (pure_model(one)[1](values, TOKENS) for one, values in models)
    chex.assert_trees_all_close(logits, expected, rtol=1e-4, atol=1e-5)
    assert np.abs(wrong - expected).max() > 1e-2
    again, back = with_pairs(other, moved, interleaved=own.position.interleaved)
    assert again == own
    chex.assert_trees_all_equal(back, params)
    assert with_pairs(own, params, interleaved=own.position.interleaved) == (own, params)


def test_the_query_of_a_pooling_stays():
    """It is compared with states, whose features keep their order."""
    sizes = {field.name: getattr(config(), field.name) for field in dataclasses.fields(config())}
    own = ClassifierConfig(**sizes | {"causal": False, "num_classes": 3, "pooling": AttentionPooling()})
    params = jax.tree.map(jnp.asarray, shaken(split(build(own, key=jax.random.key(0)))[0]))
    other, moved = with_pairs(own, params, interleaved=True)
    logits, expected = (pure_model(one)[1](values, TOKENS) for one, values in ((other, moved), (own, params)))
    chex.assert_trees_all_close(logits, expected, rtol=1e-4, atol=1e-5)
    chex.assert_trees_all_equal(moved["pooling_params"], params["pooling_params"])


def test_parameters_of_matrices_that_nobody_knows_are_refused():
    @dataclasses.dataclass(frozen=True)
    class Louder(Weights):
        def parameters(self, d_in, d_out):
            return {"gain": Parameter((d_out,), ZEROS)}

        def __call__(self, kernel_DF, params):
            return kernel_DF * (1 + params["gain"])

    with pytest.raises(
        ConfigError, match=r"^model\.weights: which parameters of louder have features is not known here$"
    ):
        with_pairs(config(weights=Louder()), {}, interleaved=True)


def test_where_the_order_of_features_matters():
    """Other positions, norms of parts of a head, heads of other kinds and what mixes features are refused."""
    with pytest.raises(ConfigError, match=r"model.position: features of learned are not paired"):
        with_pairs(config(position=Learned()), {}, interleaved=True)
    with pytest.raises(ConfigError, match=r"model.position: .* in all layers"):
        with_pairs(config(pattern=(Alternate("position", (RoPE(fraction=0.5), None)),)), {}, interleaved=True)
    for changes in (GROUPS, SHARE, LATENT, CONVOLVED, UNPROJECTED, RANDOM, OTHER_SIZES):
        with pytest.raises(ConfigError, match="have to be plain"):
            with_pairs(config(**changes), {}, interleaved=True)


GROUPS, SHARE = ({"mixer.parts": (QKNorm(norm),)} for norm in (GroupNorm(groups=2), RMSNorm(fraction=0.5)))
LATENT = {"mixer.heads": LatentHeads(rank=6, rotary=4), "mixer.num_kv_heads": None, "position": RoPE()}
CONVOLVED = {"mixer.parts": (ShortConvolution(2),)}
UNPROJECTED = {"mixer.projection": NoProjections(), "mixer.num_kv_heads": None}
RANDOM = {"mixer.normalizer": Performer()}
OTHER_SIZES = {"pattern": (Alternate("mixer.num_heads", (3, 2)),)}
