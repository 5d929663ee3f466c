"""How layers are run: loop and scan agree, and recomputing for the backward pass changes its cost only."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.activations.activation import ReLU
from transformer.core.modules import split
from transformer.core.parameters import Normal
from transformer.embeddings.embedding import Embedding
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.functional.masks import Causal, Tokens
from transformer.functional.normalizers import Normalized
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.backends import Recurrent
from transformer.models.config import ModelConfig
from transformer.models.language_model import LanguageModel
from transformer.models.stack import Scanned, Unrolled
from transformer.norms.norm import RMSNorm

TOKENS = jnp.asarray(np.arange(16).reshape(2, 8) % 7, jnp.int32)
LAYERS = [how(remat=remat) for how in (Unrolled, Scanned) for remat in ("none", "dots", "full")]


@functools.cache
def gradient(layers, num_layers):
    """The parameters, and the logits' square with its gradients as a function of them; dropout is on."""
    sizes = {"vocab_size": 7, "max_length": 8, "num_layers": num_layers, "d_model": 16, "mixer": Attention(num_heads=2)}
    choices = {"norm": RMSNorm(), "feed_forward": FeedForward(activation=ReLU()), "position": None, "dropout": 0.25}
    laws = {"initializer": Normal(0.3), "embedding": Embedding(initializer=Normal(0.3))}
    config = ModelConfig(**sizes, **choices, **laws, layers=layers)
    params, apply = split(LanguageModel(config, key=jax.random.key(0)))

    def loss(params):
        return (apply(params, TOKENS, key=jax.random.key(1, impl="unsafe_rbg")) ** 2).mean()

    return params, jax.value_and_grad(loss)


@functools.cache
def result(layers):
    params, run = gradient(layers, 2)
    return jax.device_get(jax.jit(run)(params))


@pytest.mark.parametrize("layers", LAYERS[1:], ids=str)
def test_equals_unrolled(layers):
    """Values and gradients are those of the plain loop, with the same dropout in every layer."""
    assert result(layers)[0] > 0.1
    chex.assert_trees_all_close(result(layers), result(LAYERS[0]), atol=2e-5, rtol=1e-4)


def program(layers, num_layers):
    params, run = gradient(layers, num_layers)
    return str(jax.make_jaxpr(run)(params))


def test_scan_does_not_grow():
    """A second layer makes the unrolled program longer, and the scanned one not."""
    for how, grows in ((Unrolled, True), (Scanned, False)):
        one, two = (program(how(), num_layers) for num_layers in (1, 2))
        assert (" scan[" in two) == (not grows)
        assert (two.count("dot_general[") > one.count("dot_general[")) == grows


@pytest.mark.parametrize("how", [Unrolled, Scanned])
def test_rematerialization_recomputes_what_it_says(how):
    """`full` computes matrix products again, `dots` none of them, and both compute other things again."""
    products = {remat: program(how(remat=remat), 1).count("dot_general[") for remat in ("none", "dots", "full")}
    roots = {remat: program(how(remat=remat), 1).count(" rsqrt") for remat in ("none", "dots", "full")}
    assert products["none"] < products["full"]
    assert roots["none"] < roots["dots"] == roots["full"]
    assert products["dots"] == products["none"]


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
