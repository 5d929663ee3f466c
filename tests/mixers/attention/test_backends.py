"""Backends: what each computes, and what it refuses."""

import jax
import jax.numpy as jnp
import pytest

from transformer.core.errors import ConfigError
from transformer.functional.masks import Causal, Tokens
from transformer.functional.normalizers import Normalized
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.backends import Fused, Recurrent
from transformer.mixers.attention.heads import LatentHeads
from transformer.mixers.attention.normalizers import ReLUNormalizer
from transformer.mixers.attention.score_mods import LogLength
from transformer.models.config import ModelConfig


def test_recurrent_is_told_whose_keys_they_are():
    """Under `jit` the tokens of queries and keys are two objects; only keys of other tokens are read at once."""
    side, x = Tokens.at(jnp.arange(64)), jax.ShapeDtypeStruct((1, 64, 1, 4), jnp.float32)

    def forms_all_scores(own_keys):
        def run(x, queries, keys):
            how = {"queries": queries, "keys": keys, "mask": Causal(), "weigh": Normalized()}
            return Recurrent(block=8)(x, x, x, own_keys=own_keys, **how).out

        return "64,64" in str(jax.make_jaxpr(jax.jit(run))(x, side, side))

    assert not forms_all_scores(own_keys=True)
    assert forms_all_scores(own_keys=False)
    with pytest.raises(TypeError, match="own_keys"):
        Recurrent()(x, x, x, queries=side, keys=side, mask=Causal(), weigh=Normalized())


@pytest.mark.parametrize(
    ("choices", "reason"),
    [
        ({}, r"mixer.normalizer: recurrent does not compute softmax; use backend=none"),
        ({"mixer.normalizer": "sigmoid"}, r"recurrent does not compute sigmoid; use backend=none"),
        ({"mixer.normalizer": "linear", "causal": False}, r"mixer.backend: recurrent sums from left to right"),
        (
            {"mixer.normalizer": "linear", "mixer.sparsity": "sliding_window(4)"},
            r"mixer.sparsity: recurrent cannot leave out what",
        ),
        ({"mixer.normalizer": "retention", "mixer.dropout": 0.1}, r"recurrent never forms the weights; use backend"),
    ],
)
def test_what_recurrent_attention_cannot_do(choices, reason):
    """It sums up what linear attention has passed, of a causal model that looks at all of it."""
    with pytest.raises(ConfigError, match=reason):
        ModelConfig().replace({"mixer.backend": "recurrent"} | choices, position="none")


def test_what_fused_attention_cannot_do():
    """In a config by one line."""
    config = ModelConfig(vocab_size=8, mixer=Attention(backend=Fused()))
    refused = {
        "fused does not compute relu; use backend=none": {"mixer.normalizer": ReLUNormalizer()},
        "fused has no kernel for log_length; use backend=none": {"mixer.score_mod": LogLength()},
        "fused never forms the weights; use backend=none": {"mixer.dropout": 0.1},
        "fused has no kernel for keys of 16 and values of 8 features": {
            "mixer.heads": LatentHeads(8, rotary=8),
            "mixer.head_dim": 8,
        },
    }
    for line, choices in refused.items():
        with pytest.raises(ConfigError, match=line):
            config.replace(choices)
