"""Statistics over all tokens of a sequence."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from transformer.core.parameters import Normal
from transformer.embeddings.embedding import Embedding
from transformer.mixers.attention.attention import Attention
from transformer.models.config import ModelConfig
from transformer.models.encoder import Encoder
from transformer.norms.norm import LayerNorm
from transformer.norms.sequence_norm import SequenceLayerNorm, sequence_layer_norm
from transformer.positions.rotary import RoPE

KEY = jax.random.key(0)
L, D = 6, 8
X = np.random.default_rng(0).normal(size=(L, D)).astype(np.float32)
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def config(**choices):
    """A small config without positions, with choices by dotted path."""
    laws = {"initializer": Normal(0.5), "embedding": Embedding(initializer=Normal(0.5)), "scale_residual_init": False}
    sizes = {"vocab_size": 9, "max_length": 8, "num_layers": 2, "d_model": 8, "mixer": Attention(num_heads=2)}
    return ModelConfig(**sizes | laws, position=None).replace(choices)


def encoder(**choices):
    return Encoder(config(causal=False, **choices), key=KEY)


def test_sequence_layer_norm_by_hand():
    """One mean and one variance for all features of the real tokens, whatever stands in the padding."""
    x = np.stack([X, 3 * X + 1])
    valid = np.array([[True] * 4 + [False] * 2, [True] * 6])
    scale, bias = (np.random.default_rng(i).normal(size=D).astype(np.float32) for i in (2, 3))
    arguments = {"scale_D": jnp.asarray(scale), "bias_D": jnp.asarray(bias), "eps": 1e-3}
    out = sequence_layer_norm(jnp.asarray(x), jnp.asarray(valid), **arguments)
    for row, real, got in zip(x, valid, out, strict=True):
        expected = (row - row[real].mean()) / np.sqrt(row[real].var() + 1e-3) * scale + bias
        chex.assert_trees_all_close(got[real], expected[real], **CLOSE)
    other = np.where(valid[..., None], x, 100.0)
    again = sequence_layer_norm(jnp.asarray(other), jnp.asarray(valid), **arguments)
    chex.assert_trees_all_close(np.asarray(again)[valid], np.asarray(out)[valid], **CLOSE)


def test_statistics_over_tokens_leak_the_future():
    """A token's output depends on all later ones: by the gradient, and not so with statistics per token."""

    def seen(norm):
        params = {name: spec.initial_value(KEY) for name, spec in norm.parameters(D).items()}
        gradient = jax.grad(lambda x: (norm(x, params)[0, 2] ** 3).sum())(jnp.asarray(X)[None])[0]
        return np.flatnonzero(np.abs(gradient).max(-1) > 1e-6).tolist()

    assert seen(SequenceLayerNorm()) == list(range(L))
    assert seen(LayerNorm()) == [2]


def test_an_encoder_with_statistics_over_tokens_ignores_padding():
    """Neither the tokens nor the number of the padding changes the output of real tokens."""
    model = encoder(norm=SequenceLayerNorm(), position=RoPE())
    alone = model(jnp.array([[5, 6, 7]]))
    for padding in ([1], [2], [3, 4, 1]):
        valid = jnp.array([[True] * 3 + [False] * len(padding)])
        padded = model(jnp.array([[5, 6, 7, *padding]]), valid_BL=valid)
        chex.assert_trees_all_close(padded[:, :3], alone, **CLOSE)
    assert np.abs(model(jnp.array([[5, 6, 7, 1]]))[:, :3] - alone).max() > 1e-2
