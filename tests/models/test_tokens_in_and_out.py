"""Between tokens and states: types of tokens, the head; and a norm for each of two sublayers."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.activations.activation import GLU, ReLU
from transformer.core.modules import split
from transformer.core.values import ConfigError
from transformer.embeddings.embedding import Head
from transformer.embeddings.head_transforms import DenseTransform
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.score_mods import SoftCap
from transformer.models.blocks import Parallel, ParallelNorms
from transformer.models.classifier import ClassifierConfig
from transformer.models.config import ModelConfig
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.models.images import PatchConfig, VisionConfig
from transformer.models.language_model import LanguageModel
from transformer.norms.norm import RMSNorm, layer_norm, rms_norm
from transformer.norms.sequence_norm import SequenceLayerNorm
from transformer.positions.absolute import Sinusoidal
from transformer.residuals.residual import PostNorm

TINY = ModelConfig(vocab_size=11, max_length=8, d_model=8, mixer=Attention(num_heads=2), num_layers=2)
TOKENS = jnp.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]], jnp.int32)


def pure(config: ModelConfig, seed: int = 0):
    """Random parameters, none of which is at a special value, and the model."""
    params, apply = split(LanguageModel(config, key=jax.random.key(seed)))
    rng = np.random.default_rng(seed)
    params = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape, scale=0.3), a.dtype), params)
    return params, jax.jit(apply, static_argnames="method")


def test_a_type_adds_its_vector():
    """Of every token, and type 0 where none is given; only where the model has types."""
    params, run = pure(TINY.replace({"embedding.types": 3}))
    types = jnp.array([[0, 0, 1, 1, 2], [2, 1, 0, 1, 2]], jnp.int32)
    plain_params, plain = pure(TINY)
    moved = params | {"embedding": {"table": params["embedding"]["table"]}}
    table = params["embedding"]["types"]
    for row in range(2):  # types that all tokens share can be had by another table
        same = moved | {"position": {"table": params["position"]["table"] + table[row]}}
        np.testing.assert_allclose(
            run(params, TOKENS, types_BL=jnp.full_like(types, row)), plain(same, TOKENS), rtol=1e-4, atol=1e-5
        )
    np.testing.assert_array_equal(run(params, TOKENS), run(params, TOKENS, types_BL=jnp.zeros_like(types)))
    assert np.abs(run(params, TOKENS) - run(params, TOKENS, types_BL=types)).max() > 1e-3
    assert np.isnan(run(params, TOKENS, types_BL=types + 1)).any()
    with pytest.raises(ConfigError, match=r"embedding\.types is not set"):
        plain(plain_params, TOKENS, types_BL=types)


def test_what_happens_to_the_states_by_hand():
    """cap · tanh((norm(relu(xW + b)) · tableᵀ + bias) / cap)."""
    transform = DenseTransform(ReLU(), RMSNorm(eps=1e-3))
    params, run = pure(TINY.replace(head=Head(transform=transform, bias=True, score_mod=SoftCap(0.5))))
    plain = {name: value for name, value in params.items() if name != "logits"}
    states = split(LanguageModel(TINY, key=jax.random.key(0)))[1]
    read, table = params["logits"]["transform"], params["embedding"]["table"]
    # The plain model answers x · tableᵀ, and the table has full rank.
    x = states(plain, TOKENS) @ jnp.linalg.pinv(table.T)
    hidden = rms_norm(jax.nn.relu(x @ read["kernel"] + read["bias"]), scale_D=read["norm_scale"], eps=1e-3)
    expected = 0.5 * jnp.tanh((hidden @ table.T + params["logits"]["output"]["bias"]) / 0.5)
    chex.assert_trees_all_close(run(params, TOKENS), expected, rtol=1e-3, atol=1e-4)


def test_each_of_two_parallel_sublayers_has_a_norm():
    """With equal norms it is the block that shares one; with others it is x + f(norm₁(x)) + g(norm₂(x))."""
    shared_params, shared = pure(TINY.replace(block=Parallel()))
    params, run = pure(TINY.replace(block=ParallelNorms()))

    def with_norms(attention, feed_forward):
        block = dict(shared_params["blocks"]["kinds"]["0"])
        block["attention_residual"] = {"norms": {"attention": attention, "feed_forward": feed_forward}}
        return shared_params | {"blocks": {"kinds": {"0": block}}}

    norm = shared_params["blocks"]["kinds"]["0"]["attention_residual"]["norms"]["input"]
    other = jax.tree.map(lambda a: a + 0.5, norm)
    chex.assert_trees_all_equal_shapes(params, with_norms(norm, norm))
    same = shared(shared_params, TOKENS)
    chex.assert_trees_all_close(run(with_norms(norm, norm), TOKENS), same, rtol=1e-5, atol=1e-6)
    outs = [run(with_norms(*norms), TOKENS) for norms in ((other, norm), (norm, other), (other, other))]
    assert min(np.abs(a - b).max() for i, a in enumerate(outs) for b in [same, *outs[:i]]) > 1e-3


def test_sines_before_cosines():
    interleaved, halves = (Sinusoidal(interleaved=i).to_embedding(jnp.arange(5)[None], 6, {}) for i in (True, False))
    assert interleaved is not None
    np.testing.assert_array_equal(halves, jnp.concatenate([interleaved[..., ::2], interleaved[..., 1::2]], -1))


@pytest.mark.parametrize(
    ("kind", "changes", "match"),
    [
        (ModelConfig, {"block": ParallelNorms(), "residual": PostNorm()}, "use parallel"),
        (ModelConfig, {"head.transform": DenseTransform(activation=GLU())}, "takes 2 branches"),
        (ModelConfig, {"head.transform": DenseTransform(norm=SequenceLayerNorm())}, "whole sequences"),
        (ModelConfig, {"embedding.types": 0}, "embedding.types: 0 is not a positive"),
        (EncoderDecoderConfig, {"embedding.types": 2}, "embedding.types: an encoder-decoder"),
        (ClassifierConfig, {"head.bias": True}, "head.bias: True applies to logits of tokens"),
        (VisionConfig, {"embedding.types": 2}, r"embedding\(types=2\) applies to tokens"),
        (VisionConfig, {"embedding.dim": 4}, r"embedding\(dim=4\) applies to tokens"),
        (PatchConfig, {"embedding.unit_length": True}, r"embedding\(unit_length=True\) applies to tokens"),
        (PatchConfig, {"embedding.scaled": True}, r"embedding\(scaled=True\) applies to tokens"),
    ],
)
def test_what_has_no_place_is_refused(kind, changes, match):
    with pytest.raises(ConfigError, match=match):
        kind().replace(changes)


def test_layer_norm_of_a_transform():
    """Its parameters are those of the norm, and the norm is the last thing."""
    transform, rng = DenseTransform(), np.random.default_rng(0)
    specs = transform.parameters(4)
    assert set(specs) == {"kernel", "bias", "norm_scale", "norm_bias"}
    params = {name: jnp.asarray(rng.normal(size=spec.shape), jnp.float32) for name, spec in specs.items()}
    x = jnp.asarray(rng.normal(size=(1, 2, 4)), jnp.float32)
    hidden = jax.nn.gelu(x @ params["kernel"] + params["bias"], approximate=False)
    expected = layer_norm(hidden, scale_D=params["norm_scale"], bias_D=params["norm_bias"])
    chex.assert_trees_all_close(transform(x, params), expected, rtol=1e-5, atol=1e-6)
